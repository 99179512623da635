//! The moment from which a daemon that ends leaves its boxes alone.
//!
//! Whoever moves bytes of a program stops then and waits, holding what it holds: the end of the process
//! closes all of it at once, and until then nothing of it may be taken for the program's end.

use std::sync::Arc;

use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(crate) struct Parting(Arc<watch::Sender<bool>>);

impl Default for Parting {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Parting {
    pub(crate) fn begin(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) async fn begun(&self) {
        let mut news = self.0.subscribe();
        // The sender is part of `self`, so the channel cannot close meanwhile.
        let _ = news.wait_for(|begun| *begun).await;
    }

    /// Does the work, and none of it any more once the parting has begun.
    pub(crate) async fn until<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            () = self.begun() => {}
            outcome = &mut work => return outcome,
        }
        // `work` is still held.
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn work_stops_where_it_is_and_lets_go_of_nothing() {
        let parting = Parting::default();
        let held = Arc::new(Mutex::new(0));
        let work = {
            let (parting, held) = (parting.clone(), Arc::clone(&held));
            async move {
                parting
                    .until(async {
                        loop {
                            *held.lock().expect("no panic") += 1;
                            tokio::task::yield_now().await;
                        }
                    })
                    .await;
            }
        };
        let mut work = std::pin::pin!(work);
        assert_eq!((&mut work).now_or_never(), None::<()>);
        let before = *held.lock().expect("no panic");
        assert!(before > 0 && !parting.has_begun());
        parting.begin();
        for _ in 0..10 {
            assert_eq!((&mut work).now_or_never(), None);
        }
        assert!(*held.lock().expect("no panic") <= before + 1);
        assert_eq!(Arc::strong_count(&held), 2, "what it held is still held");
    }
}
