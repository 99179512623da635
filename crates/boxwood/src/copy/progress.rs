//! Progress of a copy.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::flags::size_text;
use crate::output::printable::printable;
use crate::output::status_line::StatusLine;

/// Shorter copies show no progress.
const SHOW_AFTER: Duration = Duration::from_millis(400);

/// The result of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Copied {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Links and special files that were left out.
    pub(crate) skipped: u64,
}

/// Counters, with a progress line on a terminal.
pub(crate) struct Progress(Mutex<(Copied, StatusLine)>);

impl Progress {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((
            Copied::default(),
            StatusLine::after(SHOW_AFTER),
        )))
    }

    pub(crate) fn add_bytes(&self, count: usize) {
        let (copied, line) = &mut *self.lock();
        copied.bytes += count as u64;
        line.draw(|| format!("copied {}", size_text(copied.bytes)));
    }

    pub(crate) fn file_done(&self) {
        self.lock().0.files += 1;
    }

    /// Reports what was left out: an incomplete copy must not look complete.
    pub(crate) fn skip(&self, path: &str, why: &str) {
        let (copied, line) = &mut *self.lock();
        copied.skipped += 1;
        line.clear();
        eprintln!("boxwood: skipped `{}`: {why}", printable(path));
    }

    pub(crate) fn finish(&self) -> Copied {
        let (copied, line) = &mut *self.lock();
        line.clear();
        *copied
    }

    fn lock(&self) -> MutexGuard<'_, (Copied, StatusLine)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
