//! What Python's `repr` prints, cut in the middle as pydantic cuts it.
//!
//! Comes in: a value of any size. Goes out: at most 52 bytes of it. Never here: the whole text; only
//! its two ends are kept while it is written.

use std::fmt::{self, Write};

use super::input::Input;

/// A longer text is cut; these are bytes of UTF-8, not characters.
const MOST_BYTES: usize = 50;
const HEAD_BYTES: usize = 25;
const TAIL_BYTES: usize = 24;

/// Stands for a value that is not shown.
pub(super) const HIDDEN: &str = "...";

/// What an error shows of its input. The variables of an environment are never shown.
#[derive(Clone, Copy)]
pub(super) enum Shown<'a> {
    Value(&'a Input<'a>),
    /// A dictionary whose entries were rearranged before the model saw them.
    Entries(&'a [(&'a str, &'a Input<'a>)]),
}

impl Shown<'_> {
    pub(super) fn type_name(self) -> &'static str {
        match self {
            Self::Value(value) => value.type_name(),
            Self::Entries(_) => "dict",
        }
    }

    pub(super) fn clipped(self) -> String {
        let mut ends = Ends::default();
        // Writing to `Ends` cannot fail.
        let _ = match self {
            Self::Value(value) => write_value(&mut ends, value),
            Self::Entries(entries) => write_dict(&mut ends, entries.iter().copied()),
        };
        ends.finish()
    }
}

fn write_value(out: &mut impl Write, value: &Input<'_>) -> fmt::Result {
    match value {
        Input::Null => out.write_str("None"),
        Input::Bool(true) => out.write_str("True"),
        Input::Bool(false) => out.write_str("False"),
        Input::Int(number) => write!(out, "{number}"),
        Input::Float(number) => write_float(out, *number),
        Input::Text(text) => write_text(out, text),
        Input::List(items) => {
            out.write_char('[')?;
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.write_str(", ")?;
                }
                write_value(out, item)?;
            }
            out.write_char(']')
        }
        Input::Dict(entries) => write_dict(out, entries.iter().map(|(key, value)| (&**key, value))),
    }
}

fn write_dict<'a>(
    out: &mut impl Write,
    entries: impl Iterator<Item = (&'a str, &'a Input<'a>)>,
) -> fmt::Result {
    out.write_char('{')?;
    for (index, (key, value)) in entries.enumerate() {
        if index > 0 {
            out.write_str(", ")?;
        }
        write_text(out, key)?;
        out.write_str(": ")?;
        if key == "env" {
            out.write_str(HIDDEN)?;
        } else {
            write_value(out, value)?;
        }
    }
    out.write_char('}')
}

/// Single quotes, unless the text has some and no double ones.
fn write_text(out: &mut impl Write, text: &str) -> fmt::Result {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.write_char(quote)?;
    for character in text.chars() {
        match character {
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            _ if character == quote => write!(out, "\\{character}")?,
            _ if is_printable(character) => out.write_char(character)?,
            _ => match u32::from(character) {
                code @ ..=0xff => write!(out, "\\x{code:02x}")?,
                code @ ..=0xffff => write!(out, "\\u{code:04x}")?,
                code => write!(out, "\\U{code:08x}")?,
            },
        }
    }
    out.write_char(quote)
}

/// Rust and Python draw the line alike (controls, formats, separators and what is unassigned), but
/// only Rust escapes a combining mark too where it would stand first: hence the letter before it.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control();
    }
    let mut pair = [b'a'; 5];
    let length = 1 + character.encode_utf8(&mut pair[1..]).len();
    str::from_utf8(&pair[..length]).is_ok_and(|pair| pair.escape_debug().count() == 2)
}

/// The shortest digits that read back the same, with an exponent where Python uses one.
fn write_float(out: &mut impl Write, number: f64) -> fmt::Result {
    if number.is_nan() {
        return out.write_str("nan");
    }
    if number.is_infinite() {
        return out.write_str(if number > 0.0 { "inf" } else { "-inf" });
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific
        .split_once('e')
        .and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)))
        .unwrap_or((&scientific, 0));
    if (-4..16).contains(&exponent) {
        return write!(out, "{number:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// The beginning and the end of a text that may be far longer.
#[derive(Default)]
struct Ends {
    /// The first bytes, and the whole text as long as it is short.
    head: String,
    tail: String,
    bytes: usize,
}

impl Ends {
    fn finish(self) -> String {
        if self.bytes <= MOST_BYTES {
            return self.head;
        }
        let head = floor(&self.head, HEAD_BYTES);
        let tail = ceil(&self.tail, self.tail.len().saturating_sub(TAIL_BYTES));
        format!("{}...{}", &self.head[..head], &self.tail[tail..])
    }
}

impl Write for Ends {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes += text.len();
        if self.head.len() <= MOST_BYTES {
            // A character more than fits does no harm: it is cut off again at the end.
            let end = ceil(text, (MOST_BYTES + 1).min(text.len()));
            self.head.push_str(&text[..end]);
        }
        self.tail.push_str(text);
        if self.tail.len() > 4096 {
            let start = floor(&self.tail, self.tail.len() - TAIL_BYTES);
            self.tail.drain(..start);
        }
        Ok(())
    }
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|index| text.is_char_boundary(*index))
        .unwrap_or(0)
}

fn ceil(text: &str, at: usize) -> usize {
    (at..=text.len())
        .find(|index| text.is_char_boundary(*index))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(value: &Value, expected: &str) {
        assert_eq!(Shown::Value(&Input::from(value)).clipped(), expected);
    }

    #[test]
    fn values_read_as_in_python() {
        check(&json!(null), "None");
        check(&json!([true, false]), "[True, False]");
        check(&json!({"a": {}, "b": []}), "{'a': {}, 'b': []}");
        check(&json!("it's"), "\"it's\"");
        check(&json!("it's \"so\""), r#"'it\'s "so"'"#);
        check(&json!("\\ \n\t\r\u{1b}\u{7f}"), r"'\\ \n\t\r\x1b\x7f'");
        check(&json!("é \u{200b}\u{e000}\u{a0}"), r"'é \u200b\ue000\xa0'");
        check(&json!("\u{301} \u{e0001}"), "'\u{301} \\U000e0001'");
    }

    #[test]
    fn floats_read_as_in_python() {
        let cases = [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (123_456_789.123, "123456789.123"),
        ];
        for (number, expected) in cases {
            check(&json!(number), expected);
        }
    }

    #[test]
    fn only_the_ends_of_a_long_text_are_kept() {
        check(&json!("x".repeat(48)), &format!("'{}'", "x".repeat(48)));
        check(
            &json!("x".repeat(49)),
            &format!("'{}...{}'", "x".repeat(24), "x".repeat(23)),
        );
        check(
            &json!("é".repeat(100_000)),
            &format!("'{}...{}'", "é".repeat(12), "é".repeat(11)),
        );
    }
}
