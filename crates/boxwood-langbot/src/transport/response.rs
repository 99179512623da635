//! Encodes responses as one line of ASCII JSON within the size limit of the client.

use std::io;

use serde::Serialize as _;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use serde_json::{Value, json};

use super::truncate::truncate;
use crate::ActionError;

/// The encoded response, at most `limit` bytes long: a client drops the connection and all its requests
/// if it receives more.
pub(crate) fn response(
    seq_id: &Value,
    outcome: Result<Value, ActionError>,
    limit: usize,
) -> String {
    let text = match outcome {
        Ok(data) => {
            let text = success(seq_id, &data);
            if text.len() <= limit {
                return text;
            }
            let excess = text.len() - limit;
            truncate(data, excess).map(|data| success(seq_id, &data))
        }
        Err(error) => Some(failure(seq_id, &error)),
    };
    text.filter(|text| text.len() <= limit).unwrap_or_else(|| {
        let error = ActionError::validation(format!(
            "the response is longer than the {limit} bytes that this client accepts; request less at a time"
        ));
        failure(seq_id, &error)
    })
}

fn success(seq_id: &Value, data: &Value) -> String {
    ascii_json(&json!({
        "seq_id": seq_id, "code": 0, "message": "success", "data": data, "chunk_status": "continue",
    }))
}

fn failure(seq_id: &Value, error: &ActionError) -> String {
    ascii_json(&json!({
        "seq_id": seq_id, "code": 1, "message": error.to_string(), "data": {}, "chunk_status": "continue",
    }))
}

/// JSON with non-ASCII characters escaped, so that it can be split anywhere.
pub(crate) fn ascii_json(value: &Value) -> String {
    let mut bytes = Vec::with_capacity(256);
    let mut serializer = Serializer::with_formatter(&mut bytes, Ascii(CompactFormatter));
    // Writing a value to memory cannot fail.
    if value.serialize(&mut serializer).is_err() {
        return String::from("{}");
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// The length of a character in this encoding.
pub(crate) fn ascii_len(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        ' '..='\u{7f}' => 1,
        _ => 6 * c.len_utf16(),
    }
}

struct Ascii(CompactFormatter);

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if fragment.is_ascii() {
            return self.0.write_string_fragment(writer, fragment);
        }
        let mut units = [0; 2];
        for c in fragment.chars() {
            if c.is_ascii() {
                writer.write_all(&[c as u8])?;
            } else {
                for unit in c.encode_utf16(&mut units) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_ascii_and_equivalent() {
        let data = json!({"stdout": "é😀\u{7f}\u{1}\"\\\n", "n": 1.0});
        let text = response(&json!(7), Ok(data.clone()), 1 << 20);
        assert!(text.is_ascii());
        assert!(text.contains("\\u00e9\\ud83d\\ude00"), "{text}");
        let read: Value = serde_json::from_str(&text).expect("valid");
        assert_eq!(read["data"], data);
        assert_eq!(read["seq_id"], 7);
    }

    #[test]
    fn the_length_of_characters_is_exact() {
        for c in [
            'a', '"', '\\', '\n', '\u{1}', '\u{8}', '\u{c}', '\u{7f}', 'é', '😀', '/',
        ] {
            let text = ascii_json(&json!(c.to_string()));
            assert_eq!(text.len() - 2, ascii_len(c), "{c:?} is {text}");
        }
    }

    #[test]
    fn no_response_exceeds_the_limit() {
        let long = json!({"content": "x".repeat(5000), "path": "p"});
        let text = response(&json!(1), Ok(long), 1000);
        assert!(
            text.contains("BoxValidationError: the response is longer"),
            "{text}"
        );
        let fits = json!({"stdout": "é".repeat(5000), "stderr": "kept", "exit_code": 0});
        let text = response(&json!(1), Ok(fits), 10_000);
        assert!(text.len() <= 10_000 && text.len() > 9_000, "{}", text.len());
        let read: Value = serde_json::from_str(&text).expect("valid");
        assert_eq!(read["data"]["stderr"], "kept");
        let error = ActionError::validation("y".repeat(5000));
        assert!(response(&json!(1), Err(error), 1000).len() <= 1000);
    }
}
