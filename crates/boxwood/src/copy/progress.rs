//! How far a copy has come.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::flags::size_text;
use crate::printable::printable;

/// Short copies end before anything is shown.
const SHOW_AFTER: Duration = Duration::from_millis(400);
const SHOW_EVERY: Duration = Duration::from_millis(100);

/// What was copied, for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Copied {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Links and special files that were left out.
    pub(crate) skipped: u64,
}

/// Counts, and keeps one line on stderr up to date when that is a terminal.
pub(crate) struct Progress {
    files: AtomicU64,
    bytes: AtomicU64,
    skipped: AtomicU64,
    line: Option<Mutex<Line>>,
}

struct Line {
    next: Instant,
    shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let line = std::io::stderr().is_terminal().then(|| {
            Mutex::new(Line {
                next: Instant::now() + SHOW_AFTER,
                shown: false,
            })
        });
        Self {
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            line,
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

    /// Says what was left out: a copy that is not whole must not look whole.
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
        let Some(line) = &self.line else { return };
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now < line.next {
            return;
        }
        line.next = now + SHOW_EVERY;
        line.shown = true;
        let Copied { files, bytes, .. } = self.copied();
        eprint!("\r\u{1b}[K{} in {files} files", size_text(bytes));
        // The line is a courtesy; a terminal that does not take it is no reason to stop copying.
        let _ = std::io::stderr().flush();
    }

    fn clear(&self) {
        let Some(line) = &self.line else { return };
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut line.shown) {
            eprint!("\r\u{1b}[K");
        }
    }
}
