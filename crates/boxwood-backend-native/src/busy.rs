//! Work that a shutdown has to wait for.

use tokio::sync::watch;

/// Counts what is under way. Clones count together.
#[derive(Clone)]
pub(crate) struct Busy {
    count: watch::Sender<usize>,
}

/// One piece of work; its end is its drop.
pub(crate) struct Work {
    count: watch::Sender<usize>,
}

impl Busy {
    pub(crate) fn new() -> Self {
        Self {
            count: watch::channel(0).0,
        }
    }

    pub(crate) fn enter(&self) -> Work {
        self.count.send_modify(|count| *count += 1);
        Work {
            count: self.count.clone(),
        }
    }

    /// Resolves when nothing is under way.
    pub(crate) async fn idle(&self) {
        // Cannot fail: this very handle keeps the channel open.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}
