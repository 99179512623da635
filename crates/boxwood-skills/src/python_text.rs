//! Blanks and line ends as Python defines them, for compatibility with LangBot Box.

use std::borrow::Cow;

/// Python's `str.isspace` counts four separators that Unicode's `White_Space` does not.
fn is_blank(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// `str.strip()`.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// `str.splitlines(keepends=True)`, which also breaks at form feeds and Unicode separators.
pub(crate) fn lines_with_ends(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let mut end = at + character.len_utf8();
        match character {
            '\r' => {
                if let Some((_, '\n')) = characters.peek() {
                    characters.next();
                    end += 1;
                }
            }
            '\n' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
            }
            _ => continue,
        }
        lines.push(&text[start..end]);
        start = end;
    }
    if start < text.len() {
        lines.push(&text[start..]);
    }
    lines
}

/// Universal newlines: what Python does to line ends when it reads text.
pub(crate) fn universal_newlines(text: &str) -> Cow<'_, str> {
    if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_where_python_breaks_them() {
        assert_eq!(
            lines_with_ends("a\r\nb\rc\u{c}d\u{2028}e"),
            ["a\r\n", "b\r", "c\u{c}", "d\u{2028}", "e"]
        );
        assert!(lines_with_ends("").is_empty());
    }

    #[test]
    fn separators_are_blank() {
        assert_eq!(strip("\u{1f} x\u{a0}\n"), "x");
    }
}
