//! The last part of unbounded text.

use std::collections::VecDeque;

/// The last lines, up to a number of bytes.
#[derive(Debug)]
pub(crate) struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
    max_bytes: usize,
}

/// Longer lines are cut.
pub(crate) const MAX_LINE_BYTES: usize = 4 * 1024;

/// Bytes processed before yielding to other tasks.
pub(crate) const CHUNK_BYTES: usize = 1024;

impl Tail {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            lines: VecDeque::new(),
            bytes: 0,
            max_bytes,
        }
    }

    pub(crate) fn push(&mut self, line: &str) {
        let line = head(line, MAX_LINE_BYTES).to_owned();
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
        while self.bytes > self.max_bytes {
            let Some(oldest) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= oldest.len() + 1;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.bytes = 0;
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::with_capacity(self.bytes);
        for line in &self.lines {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

/// Splits a byte stream into lines. Drops the rest of oversized lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The incomplete line.
    line: Vec<u8>,
    /// The rest of the line is dropped.
    is_cut: bool,
}

impl Lines {
    pub(crate) fn feed(&mut self, bytes: &[u8], mut on_line: impl FnMut(&str)) {
        for byte in bytes {
            // Installers draw progress bars with carriage returns.
            if matches!(byte, b'\n' | b'\r') {
                self.end(&mut on_line);
                continue;
            }
            if self.is_cut {
                continue;
            }
            self.line.push(*byte);
            if self.line.len() >= MAX_LINE_BYTES {
                // Emitted at once, because the line may never end.
                self.end(&mut on_line);
                self.is_cut = true;
            }
        }
    }

    /// Yields to other tasks regularly, because processing the lines takes time.
    pub(crate) async fn feed_in_chunks(&mut self, bytes: &[u8], mut on_line: impl FnMut(&str)) {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            self.feed(chunk, &mut on_line);
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn end(&mut self, mut on_line: impl FnMut(&str)) {
        let line = String::from_utf8_lossy(&self.line);
        let line = line.trim_end();
        if !line.is_empty() {
            on_line(line);
        }
        self.line.clear();
        self.is_cut = false;
    }
}

/// The first `max_bytes` bytes, cut at a character boundary.
pub(crate) fn head(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// The last `max_bytes` bytes, cut at a character boundary.
pub(crate) fn tail(text: &str, max_bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max_bytes))..]
}

/// The last `max_bytes` bytes, starting at a line if possible.
pub(crate) fn tail_of_lines(text: &str, max_bytes: usize) -> &str {
    let last = tail(text, max_bytes);
    if last.len() == text.len() || text[..text.len() - last.len()].ends_with('\n') {
        return last;
    }
    match last.split_once('\n') {
        Some((_, lines)) if !lines.is_empty() => lines,
        _ => last,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut kept = Tail::new(8);
        for line in ["one", "two", "three"] {
            kept.push(line);
        }
        assert_eq!(kept.text(), "three\n");
        kept.push(&"x".repeat(MAX_LINE_BYTES * 2));
        assert_eq!(kept.text(), "", "a line that alone is too much is not kept");
    }

    #[test]
    fn lines_end_at_cr_or_lf_and_are_bounded() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        lines.feed(b"a\r\nb\rc", |line| seen.push(line.to_owned()));
        lines.feed(b"d\n\n", |line| seen.push(line.to_owned()));
        assert_eq!(seen, ["a", "b", "cd"]);
        seen.clear();
        lines.feed(&vec![b'x'; MAX_LINE_BYTES + 1], |line| {
            seen.push(line.to_owned());
        });
        lines.feed(b"yy\nz\n", |line| seen.push(line.to_owned()));
        assert_eq!(
            seen.iter().map(String::len).collect::<Vec<_>>(),
            [MAX_LINE_BYTES, 1],
            "what follows of a line that was cut is left out"
        );
    }

    #[tokio::test]
    async fn other_tasks_run_between_many_lines() {
        let (mut lines, seen) = (Lines::default(), Cell::new(0));
        let text = "a\n".repeat(10 * CHUNK_BYTES);
        let count = |_: &str| seen.set(seen.get() + 1);
        let mut feeding = Box::pin(lines.feed_in_chunks(text.as_bytes(), count));
        assert_eq!(feeding.as_mut().now_or_never(), None, "it paused");
        assert_eq!(seen.get(), CHUNK_BYTES / 2);
        feeding.await;
        assert_eq!(seen.get(), 10 * CHUNK_BYTES);
    }

    #[test]
    fn cuts_are_at_character_boundaries() {
        assert_eq!(head("aé", 2), "a");
        assert_eq!(tail("éa", 2), "a");
        assert_eq!(tail("short", 500), "short");
    }

    #[test]
    fn a_tail_starts_at_a_line() {
        assert_eq!(tail_of_lines("one\ntwo\n", 6), "two\n");
        assert_eq!(tail_of_lines("one\ntwo\n", 4), "two\n");
        assert_eq!(tail_of_lines("one\ntwo\n", 80), "one\ntwo\n");
        assert_eq!(tail_of_lines("without end", 3), "end");
    }
}
