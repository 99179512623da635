//! Answers as the clients read them.
//!
//! Comes in: what an action gave or why it failed. Goes out: one line of ASCII. Never here: sending.

use std::io;

use serde::Serialize as _;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use serde_json::{Value, json};

use super::Fault;
use super::fit::fit;

/// The whole answer, within `limit` bytes: a client that is sent more drops the connection and
/// everything under way on it.
pub(super) fn reply(seq_id: &Value, outcome: Result<Value, Fault>, limit: usize) -> String {
    let text = match outcome {
        Ok(data) => {
            let text = success(seq_id, &data);
            if text.len() <= limit {
                return text;
            }
            let excess = text.len() - limit;
            fit(data, excess).map(|data| success(seq_id, &data))
        }
        Err(fault) => Some(failure(seq_id, &fault)),
    };
    text.filter(|text| text.len() <= limit).unwrap_or_else(|| {
        let fault = Fault::validation(format!(
            "the answer is longer than the {limit} bytes this client takes; ask for less at a time"
        ));
        failure(seq_id, &fault)
    })
}

fn success(seq_id: &Value, data: &Value) -> String {
    ascii_json(&json!({
        "seq_id": seq_id, "code": 0, "message": "success", "data": data, "chunk_status": "continue",
    }))
}

fn failure(seq_id: &Value, fault: &Fault) -> String {
    ascii_json(&json!({
        "seq_id": seq_id, "code": 1, "message": fault.to_string(), "data": {}, "chunk_status": "continue",
    }))
}

/// JSON with everything beyond ASCII escaped, so that it can be cut anywhere.
pub(super) fn ascii_json(value: &Value) -> String {
    let mut bytes = Vec::with_capacity(256);
    let mut serializer = Serializer::with_formatter(&mut bytes, Ascii(CompactFormatter));
    // Writing a value to memory cannot fail.
    if value.serialize(&mut serializer).is_err() {
        return String::from("{}");
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// How many bytes a character takes in such JSON.
pub(super) fn ascii_len(c: char) -> usize {
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
    fn answers_are_ascii_and_mean_the_same() {
        let data = json!({"stdout": "é😀\u{7f}\u{1}\"\\\n", "n": 1.0});
        let text = reply(&json!(7), Ok(data.clone()), 1 << 20);
        assert!(text.is_ascii());
        assert!(text.contains("\\u00e9\\ud83d\\ude00"), "{text}");
        let read: Value = serde_json::from_str(&text).expect("valid");
        assert_eq!(read["data"], data);
        assert_eq!(read["seq_id"], 7);
    }

    #[test]
    fn the_length_of_each_character_is_known() {
        for c in [
            'a', '"', '\\', '\n', '\u{1}', '\u{8}', '\u{c}', '\u{7f}', 'é', '😀', '/',
        ] {
            let text = ascii_json(&json!(c.to_string()));
            assert_eq!(text.len() - 2, ascii_len(c), "{c:?} is {text}");
        }
    }

    #[test]
    fn no_answer_is_longer_than_its_limit() {
        let long = json!({"content": "x".repeat(5000), "path": "p"});
        let text = reply(&json!(1), Ok(long), 1000);
        assert!(
            text.contains("BoxValidationError: the answer is longer"),
            "{text}"
        );
        let fits = json!({"stdout": "é".repeat(5000), "stderr": "kept", "exit_code": 0});
        let text = reply(&json!(1), Ok(fits), 10_000);
        assert!(text.len() <= 10_000 && text.len() > 9_000, "{}", text.len());
        let read: Value = serde_json::from_str(&text).expect("valid");
        assert_eq!(read["data"]["stderr"], "kept");
        let fault = Fault::validation("y".repeat(5000));
        assert!(reply(&json!(1), Err(fault), 1000).len() <= 1000);
    }
}
