//! One line on stderr that says how far something has come.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::printable::printable;

const SHOW_EVERY: Duration = Duration::from_millis(100);
/// What is more would wrap, and a wrapped line cannot be taken back.
const MOST_CHARS: usize = 76;

/// Shows nothing where nobody looks.
pub(super) struct Line {
    is_terminal: bool,
    next: Instant,
    shown: bool,
}

impl Line {
    pub(super) fn new() -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            next: Instant::now(),
            shown: false,
        }
    }

    pub(super) fn show(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if !self.is_terminal || now < self.next {
            return;
        }
        self.next = now + SHOW_EVERY;
        self.shown = true;
        let text: String = printable(&text()).chars().take(MOST_CHARS).collect();
        eprint!("\r\u{1b}[K{text}");
        // The line is a courtesy; a terminal that does not take it is no reason to stop.
        let _ = std::io::stderr().flush();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown {
            eprint!("\r\u{1b}[K");
        }
    }
}
