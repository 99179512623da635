//! The end of a process's stderr, shortened for display.

use std::collections::VecDeque;

/// Total characters, including newlines.
const PREVIEW_CHARS: usize = 4000;
/// Bytes for the longest preview.
const PARTIAL_BYTES: usize = PREVIEW_CHARS * 4;

#[derive(Default)]
pub(super) struct Preview {
    lines: VecDeque<Line>,
    /// Characters of all lines with their newlines.
    chars: usize,
    /// The line without a newline yet; only its end if it is very long.
    partial: Vec<u8>,
}

struct Line {
    text: String,
    chars: usize,
}

impl Preview {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        if let Some(first) = pieces.next() {
            self.extend_partial(first);
        }
        for piece in pieces {
            let line = std::mem::take(&mut self.partial);
            self.push_line(&line);
            self.extend_partial(piece);
        }
    }

    /// Lines without trailing spaces and empty lines.
    pub(super) fn text(&self) -> String {
        let unfinished = line_of(&self.partial);
        let mut room = PREVIEW_CHARS;
        let mut shown = Vec::new();
        for line in unfinished.iter().chain(self.lines.iter().rev()) {
            if line.chars + 1 > room {
                break;
            }
            room -= line.chars + 1;
            shown.push(line.text.as_str());
        }
        shown.reverse();
        shown.join("\n")
    }

    fn extend_partial(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(PARTIAL_BYTES)..];
        let too_many = (self.partial.len() + bytes.len()).saturating_sub(PARTIAL_BYTES);
        self.partial.drain(..too_many);
        self.partial.extend_from_slice(bytes);
    }

    fn push_line(&mut self, bytes: &[u8]) {
        let Some(line) = line_of(bytes) else {
            return;
        };
        self.chars += line.chars + 1;
        self.lines.push_back(line);
        while self.chars > PREVIEW_CHARS {
            let Some(oldest) = self.lines.pop_front() else {
                break;
            };
            self.chars -= oldest.chars + 1;
        }
    }
}

fn line_of(bytes: &[u8]) -> Option<Line> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end();
    if text.is_empty() {
        return None;
    }
    // Only the end of a line longer than the preview is shown.
    let chars = text.chars().count();
    let skipped = chars.saturating_sub(PREVIEW_CHARS - 1);
    let start = text
        .char_indices()
        .nth(skipped)
        .map_or(text.len(), |(index, _)| index);
    Some(Line {
        text: text[start..].to_owned(),
        chars: chars - skipped,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(pieces: &[&str], expected: &str) {
        let mut preview = Preview::default();
        for piece in pieces {
            preview.push(piece.as_bytes());
        }
        assert_eq!(preview.text(), expected);
    }

    #[test]
    fn lines_are_trimmed_at_the_right_and_empty_ones_left_out() {
        check(&["  one  \n\n", "two\r\n"], "  one\ntwo");
    }

    #[test]
    fn a_line_without_its_end_is_shown_already() {
        check(&["one\ntw", "o"], "one\ntwo");
    }

    #[test]
    fn the_oldest_lines_go_first() {
        let mut preview = Preview::default();
        for number in 0..2000 {
            preview.push(format!("line {number}\n").as_bytes());
        }
        let text = preview.text();
        assert!(text.ends_with("line 1998\nline 1999"));
        assert!(!text.contains("line 1\n"));
    }

    #[test]
    fn a_line_without_end_is_shown_by_its_last_part() {
        let mut preview = Preview::default();
        for _ in 0..100 {
            preview.push(&vec![b'a'; 100_000]);
        }
        preview.push(b"the end");
        let text = preview.text();
        assert!(text.ends_with("aaathe end"));
        assert_eq!(text.len(), PREVIEW_CHARS - 1);
    }

    proptest! {
        #[test]
        fn a_preview_is_never_longer_than_it_says(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..12),
        ) {
            let mut preview = Preview::default();
            for piece in &pieces {
                preview.push(piece);
            }
            prop_assert!(preview.text().chars().count() <= PREVIEW_CHARS);
        }
    }
}
