//! Blanks, line ends and timestamps as Python defines them, for compatibility with LangBot Box.

use std::borrow::Cow;

use jiff::Timestamp;

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

/// Equivalent of `datetime.fromtimestamp(float, utc).isoformat()`: microseconds if they are not zero, and `+00:00`.
/// LangBot Box converts through a double, so the same rounding is applied here.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the microseconds of a timestamp are far inside of an i64, and the loss is that of a double"
)]
pub fn python_isoformat(time: Timestamp) -> String {
    let seconds = time.as_second() as f64 + f64::from(time.subsec_nanosecond()) * 1e-9;
    let micros = (seconds.fract() * 1e6).round_ties_even() as i64;
    let rounded = Timestamp::from_microsecond(seconds.trunc() as i64 * 1_000_000 + micros);
    let time = rounded.unwrap_or(time);
    let format = if time.subsec_microsecond() == 0 {
        "%Y-%m-%dT%H:%M:%S+00:00"
    } else {
        "%Y-%m-%dT%H:%M:%S%.6f+00:00"
    };
    time.strftime(format).to_string()
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
