//! Tells the tasks of a session that its box is detached for the next daemon.
//!
//! A task that follows a program stops then and keeps what it holds: closing a pipe before the daemon
//! exits would look like the end of the program or its input.

use std::sync::Arc;

use tokio::sync::watch;

#[derive(Clone, Debug, Default)]
pub(crate) struct DetachSignal(Arc<watch::Sender<bool>>);

impl DetachSignal {
    pub(crate) fn begin(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) async fn begun(&self) {
        let mut receiver = self.0.subscribe();
        // The sender is part of `self`, so the channel cannot close.
        let _ = receiver.wait_for(|begun| *begun).await;
    }

    /// Runs `work` until the box is detached. Then it is neither polled nor dropped.
    pub(crate) async fn until<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            () = self.begun() => {}
            outcome = &mut work => return outcome,
        }
        // Holds `work`.
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn work_stops_and_keeps_what_it_holds() {
        let detach = DetachSignal::default();
        let held = Arc::new(Mutex::new(0));
        let work = {
            let (detach, held) = (detach.clone(), Arc::clone(&held));
            async move {
                detach
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
        assert!(before > 0 && !detach.has_begun());
        detach.begin();
        for _ in 0..10 {
            assert_eq!((&mut work).now_or_never(), None);
        }
        assert!(*held.lock().expect("no panic") <= before + 1);
        assert_eq!(Arc::strong_count(&held), 2, "what it held is still held");
    }
}
