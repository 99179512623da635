//! The commands of one session: those that run, and for a while those that ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Default)]
pub(crate) struct ExecTable(Arc<Inner>);

#[derive(Default)]
struct Inner {
    let_go: AtomicBool,
}

impl ExecTable {
    /// The daemon ends and the box does not: from now on nobody kills a command for its reader's loss.
    pub(crate) fn let_go(&self) {
        self.0.let_go.store(true, Ordering::Release);
    }
}
