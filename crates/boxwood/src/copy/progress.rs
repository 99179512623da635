//! Progress of a copy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::flags::size_text;
use crate::printable::printable;
use crate::status_line::StatusLine;

/// Shorter copies show no progress.
const SHOW_AFTER: Duration = Duration::from_millis(400);

/// The result of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Copied {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Links and special files that were left out.
    pub(crate) skipped: u64,
}

/// Counters, with a progress line on a terminal.
pub(crate) struct Progress {
    files: AtomicU64,
    bytes: AtomicU64,
    skipped: AtomicU64,
    line: Mutex<StatusLine>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            line: Mutex::new(StatusLine::after(SHOW_AFTER)),
        }
    }

    pub(crate) fn add_bytes(&self, count: usize) {
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        self.show();
    }

    pub(crate) fn file_done(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.show();
    }

    /// Reports what was left out: an incomplete copy must not look complete.
    pub(crate) fn skip(&self, path: &str, why: &str) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
        self.clear();
        eprintln!("boxwood: skipped `{}`: {why}", printable(path));
    }

    pub(crate) fn finish(&self) -> Copied {
        self.clear();
        self.copied()
    }

    fn copied(&self) -> Copied {
        Copied {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
        }
    }

    fn show(&self) {
        self.line().draw(|| {
            let Copied { files, bytes, .. } = self.copied();
            format!("{} in {files} files", size_text(bytes))
        });
    }

    fn clear(&self) {
        self.line().clear();
    }

    fn line(&self) -> MutexGuard<'_, StatusLine> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
