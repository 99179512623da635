//! A progress line on stderr that is redrawn in place. Shown only on a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::printable::{first_columns, printable};
use crate::interactive::terminal;

const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct StatusLine {
    is_terminal: bool,
    next_draw: Instant,
    is_drawn: bool,
}

impl StatusLine {
    /// Never draws if not `enabled`.
    pub(crate) fn new(enabled: bool) -> Self {
        let mut line = Self::after(Duration::ZERO);
        line.is_terminal &= enabled;
        line
    }

    /// Draws nothing before `delay` has passed, so that short operations show no progress.
    pub(crate) fn after(delay: Duration) -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            next_draw: Instant::now() + delay,
            is_drawn: false,
        }
    }

    /// Draws the text, at most every 100 ms.
    pub(crate) fn draw(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if !self.is_terminal || now < self.next_draw {
            return;
        }
        self.next_draw = now + REDRAW_INTERVAL;
        self.is_drawn = true;
        let columns = usize::from(terminal::size().cols);
        eprint!("\r\u{1b}[K{}", fitted(&text(), columns));
        // A terminal that does not accept the line is no reason to stop.
        let _ = std::io::stderr().flush();
    }

    /// Removes the line, so that other output can be printed. The next `draw` is not delayed.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            eprint!("\r\u{1b}[K");
            self.next_draw = Instant::now();
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A line that wraps cannot be cleared, so it stays one column below the width of the terminal.
fn fitted(text: &str, columns: usize) -> String {
    let columns = columns.saturating_sub(1).max(20);
    first_columns(&printable(text), columns).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_columns() {
        assert_eq!(fitted(&"x".repeat(50), 41), "x".repeat(40));
        // Two columns each.
        assert_eq!(fitted(&"字".repeat(50), 41), "字".repeat(20));
        assert_eq!(fitted(&"字".repeat(50), 40), "字".repeat(19));
        // Combining characters take no column.
        let accented = "e\u{301}".repeat(50);
        assert_eq!(fitted(&accented, 41), "e\u{301}".repeat(40));
        assert_eq!(fitted("a\u{1b}[2J", 80), "a\\u{1b}[2J");
    }
}
