//! Values into YAML that every reader reads alike.

use super::is_yaml_printable;
use super::scalar;
use super::value::{Kind, Value};

/// One line that reads back as this string, in YAML 1.1 and 1.2: bare where nothing can mistake
/// it, else in single quotes, else in double quotes with escapes.
pub(super) fn string(text: &str) -> String {
    if is_plain(text) {
        text.to_owned()
    } else if text.chars().all(fits_single_quotes) && !text.is_empty() {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        double_quoted(text)
    }
}

fn is_plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    first.is_alphanumeric()
        && text.chars().all(|c| c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric())
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        // YAML 1.2 writes octal so, and 1.1 calls `y` and `n` truth values in some readers.
        && !text.starts_with("0o")
        && !matches!(text, "y" | "Y" | "n" | "N")
        && scalar::resolve(text).is_ok_and(|scalar| scalar.kind == Kind::Text)
}

fn fits_single_quotes(character: char) -> bool {
    is_yaml_printable(character)
        && !matches!(
            character,
            '\t' | '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}'
        )
}

fn double_quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            _ if fits_single_quotes(character) => quoted.push(character),
            _ => {
                let code = u32::from(character);
                let escape = match code {
                    0..=0xff => format!("\\x{code:02X}"),
                    0x100..=0xffff => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                };
                quoted.push_str(&escape);
            }
        }
    }
    quoted.push('"');
    quoted
}

/// A whole value on one line, for a front matter that could not be edited in place.
pub(super) fn flow(value: &Value, out: &mut String) {
    match value {
        Value::Scalar(scalar) if scalar.kind == Kind::Null => out.push_str("null"),
        Value::Scalar(scalar) if scalar.kind == Kind::Text => {
            out.push_str(&double_quoted(&scalar.shown));
        }
        Value::Scalar(scalar) => out.push_str(&scalar.source),
        Value::Sequence(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                flow(item, out);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                flow(key, out);
                out.push_str(": ");
                flow(value, out);
            }
            out.push('}');
        }
    }
}
