//! Makes text safe to print.
//!
//! Names, paths and messages may come out of a box. Printed raw, an escape sequence in one could
//! clear the screen, retitle the window or paste into the shell; a bidirectional override could make
//! a name read as another.

use std::borrow::Cow;
use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar as _;

/// Escapes control and invisible characters, newlines and tabs included.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe, |char, safe| {
        safe.extend(char.escape_default());
    })
}

/// The same for a line of text that may contain tabs.
pub(crate) fn printable_line(line: &str) -> String {
    let columns: Vec<_> = line.split('\t').map(printable).collect();
    columns.join("\t")
}

/// The same for JSON text. Outside of strings JSON contains no such characters except newlines, so the
/// escapes do not change its meaning.
pub(crate) fn printable_json(json: &str) -> Cow<'_, str> {
    let is_unsafe = |char| char != '\n' && is_unsafe(char);
    escaped(json, is_unsafe, |char, safe| {
        for unit in char.encode_utf16(&mut [0; 2]) {
            let _ = write!(safe, "\\u{unit:04x}");
        }
    })
}

fn escaped(
    text: &str,
    is_unsafe: impl Fn(char) -> bool,
    escape: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.chars().any(&is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        if is_unsafe(char) {
            escape(char, &mut safe);
        } else {
            safe.push(char);
        }
    }
    Cow::Owned(safe)
}

/// The beginning of a text that fits into this many terminal columns.
pub(crate) fn first_columns(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (start, char) in text.char_indices() {
        used += char.width().unwrap_or(0);
        if used > columns {
            return &text[..start];
        }
    }
    text
}

/// The same, with an ellipsis in the last column if the text was cut.
pub(crate) fn ellipsized(text: &str, columns: usize) -> Cow<'_, str> {
    if first_columns(text, columns).len() == text.len() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!(
        "{}…",
        first_columns(text, columns.saturating_sub(1))
    ))
}

fn is_unsafe(char: char) -> bool {
    char.is_control()
        || matches!(char,
            // Zero width, direction marks and overrides, line and paragraph separators.
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{061c}' | '\u{180e}' | '\u{fff9}'..='\u{fffb}'
            // Tags: invisible copies of ASCII.
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_left_alone() {
        assert_eq!(printable("búild 字 1"), "búild 字 1");
    }

    #[test]
    fn escape_sequences_and_overrides_are_spelled_out() {
        assert_eq!(printable("a\u{1b}[31m\nb"), "a\\u{1b}[31m\\nb");
        assert_eq!(printable("x\u{202e}gpj"), "x\\u{202e}gpj");
        assert_eq!(printable("\u{9b}2J"), "\\u{9b}2J");
    }

    #[test]
    fn text_is_cut_by_columns() {
        assert_eq!(first_columns("abc", 2), "ab");
        assert_eq!(first_columns("abc", 3), "abc");
        assert_eq!(first_columns("字字字", 5), "字字");
        assert_eq!(first_columns("e\u{301}x", 1), "e\u{301}");
    }

    #[test]
    fn cut_text_ends_with_an_ellipsis_and_keeps_its_width() {
        assert_eq!(ellipsized("short", 5), "short");
        assert_eq!(ellipsized("longer", 5), "long…");
        assert_eq!(ellipsized("字字字", 5), "字字…");
        assert_eq!(ellipsized("字字字", 4), "字…");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let json = serde_json::to_string("a\u{9b}\u{7f}\u{e0041}").unwrap();
        let safe = printable_json(&json);
        assert!(safe.is_ascii(), "{safe}");
        assert_eq!(
            serde_json::from_str::<String>(&safe).unwrap(),
            "a\u{9b}\u{7f}\u{e0041}"
        );
    }
}
