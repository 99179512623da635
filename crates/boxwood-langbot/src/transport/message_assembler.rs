//! Assembles messages from text frames.
//!
//! The client of SDK 0.4 splits a message of more than 64 KiB into several text frames, so a message ends
//! when its JSON object is closed, not at the end of a frame. Text that cannot become an object is
//! dropped, and the connection stays usable.

use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::json_scanner::{Progress, Scanner};

/// A message longer than this is dropped.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// Maximum time between two frames of a message. The client sends them one after the other.
const CONTINUATION_TIMEOUT: Duration = Duration::from_secs(30);

/// The frames of an incomplete message.
#[derive(Default)]
pub struct MessageAssembler {
    pending: String,
    scanner: Scanner,
    last_frame: Option<Instant>,
}

#[derive(Debug, PartialEq)]
pub enum Assembled {
    /// No complete message.
    Nothing,
    Message(Value),
    /// The message exceeds the size limit and cannot be answered.
    TooLong,
}

impl MessageAssembler {
    /// Adds one frame. A frame continues the pending message whenever possible: what looks like a message
    /// may be part of a string in it.
    pub fn push(&mut self, frame: &str) -> Assembled {
        let age = self.last_frame.map(|last| last.elapsed());
        if age.is_some_and(|age| age > CONTINUATION_TIMEOUT) {
            self.reset();
        }
        // If the pending text was not a message, the frame itself may be one.
        self.continue_with(frame)
            .or_else(|| self.continue_with(frame))
            .unwrap_or(Assembled::Nothing)
    }

    /// `None` if the frame cannot continue the pending message, which is then dropped.
    fn continue_with(&mut self, frame: &str) -> Option<Assembled> {
        match self.scanner.push(frame) {
            Progress::Incomplete if self.pending.len() + frame.len() > MAX_MESSAGE_BYTES => {
                self.reset();
                Some(Assembled::TooLong)
            }
            Progress::Incomplete => {
                self.pending.push_str(frame);
                self.last_frame = Some(Instant::now());
                Some(Assembled::Nothing)
            }
            Progress::Complete(end) if frame[end..].trim().is_empty() => {
                let message = if self.pending.is_empty() {
                    parse(&frame[..end])
                } else {
                    self.pending.push_str(&frame[..end]);
                    parse(&self.pending)
                };
                self.reset();
                Some(message.map_or(Assembled::Nothing, Assembled::Message))
            }
            Progress::Complete(_) | Progress::Invalid => {
                self.reset();
                None
            }
        }
    }

    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Parses JSON as Python writes it: with lone surrogates, `NaN` and infinities.
pub(crate) fn parse(text: &str) -> Option<Value> {
    serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(&to_strict_json(text)))
        .inspect_err(|error| tracing::debug!(%error, "failed to parse a message"))
        .ok()
}

/// Replaces lone surrogates by the replacement character, and non-finite numbers by strings, so that
/// validation rejects them with the name of the field.
fn to_strict_json(text: &str) -> String {
    let mut strict = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((between, string)) = rest.split_once('"') {
        copy_quoting_non_finite(between, &mut strict);
        strict.push('"');
        rest = copy_string(string, &mut strict);
    }
    copy_quoting_non_finite(rest, &mut strict);
    strict
}

/// Copies the text between two strings.
fn copy_quoting_non_finite(between: &str, strict: &mut String) {
    let is_delimiter = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '+' | '.');
    for token in between.split_inclusive(is_delimiter) {
        let word = token.trim_end_matches(is_delimiter);
        if word.parse::<f64>().is_ok_and(|number| !number.is_finite()) {
            strict.extend(["\"", word, "\"", &token[word.len()..]]);
        } else {
            strict.push_str(token);
        }
    }
}

/// Copies the rest of a string and its closing quote. Returns the text after it.
fn copy_string<'a>(mut rest: &'a str, strict: &mut String) -> &'a str {
    let code_unit = |text: &str| u32::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
    while let Some(at) = rest.find(['"', '\\']) {
        strict.push_str(&rest[..at]);
        rest = &rest[at..];
        let next = rest.get(6..).and_then(code_unit);
        let length = match (code_unit(rest), next) {
            _ if rest.starts_with('"') => {
                strict.push('"');
                return &rest[1..];
            }
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                strict.push_str("\\ufffd");
                rest = &rest[6..];
                continue;
            }
            // The backslash and what it escapes, which may be another backslash.
            _ => rest.chars().take(2).map(char::len_utf8).sum(),
        };
        strict.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    strict.push_str(rest);
    ""
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn split_messages_are_joined() {
        let message =
            json!({"seq_id": 3, "action": "box_exec", "data": {"cmd": "é{\"x\":1}\n".repeat(50)}});
        let text = message.to_string();
        for size in [1, 7, 64] {
            let mut assembler = MessageAssembler::default();
            let characters: Vec<char> = text.chars().collect();
            let mut assembled = Vec::new();
            for chunk in characters.chunks(size) {
                match assembler.push(&chunk.iter().collect::<String>()) {
                    Assembled::Nothing => {}
                    other => assembled.push(other),
                }
            }
            assert_eq!(assembled, [Assembled::Message(message.clone())], "{size}");
        }
    }

    #[test]
    fn garbage_does_not_swallow_the_next_message() {
        for garbage in [
            "not json",
            "{\"half",
            "{\"a\":tru",
            "{\"a\":01}",
            "{\"a\":--1}",
            "{\"a\":\"\\x\"}",
            "}",
            "[1]",
            "{} {}",
            "",
            "\u{0}",
        ] {
            let mut assembler = MessageAssembler::default();
            assert_eq!(assembler.push(garbage), Assembled::Nothing, "{garbage}");
            let good = json!({"seq_id": 1, "action": "__ping", "data": {}});
            assert_eq!(
                assembler.push(&good.to_string()),
                Assembled::Message(good),
                "{garbage}"
            );
        }
    }

    /// A string may contain a message, which must not be executed.
    #[test]
    fn a_message_inside_a_string_stays_a_string() {
        let mut assembler = MessageAssembler::default();
        let inner = r#"{\"seq_id\":9,\"action\":\"box_shutdown\",\"data\":{}}"#;
        assert_eq!(
            assembler.push(r#"{"seq_id":1,"action":"box_exec","data":{"cmd":""#),
            Assembled::Nothing
        );
        assert_eq!(assembler.push(inner), Assembled::Nothing);
        let Assembled::Message(message) = assembler.push("\"}}") else {
            panic!("the message is whole");
        };
        assert_eq!(message["action"], "box_exec");
    }

    #[test]
    fn an_oversized_message_is_dropped() {
        let mut assembler = MessageAssembler::default();
        assert_eq!(assembler.push("{\"a\":\""), Assembled::Nothing);
        let chunk = "x".repeat(1024 * 1024);
        let mut too_long = 0;
        for _ in 0..20 {
            if assembler.push(&chunk) == Assembled::TooLong {
                too_long += 1;
                break;
            }
        }
        assert_eq!(too_long, 1);
        assert_eq!(assembler.push("{}"), Assembled::Message(json!({})));
    }

    #[test]
    fn json_in_pythons_spelling_is_parsed() {
        assert_eq!(
            parse(r#"{"a":"x\ud83dy","b":"\ud83d\ude00","c":"\\ud83d","d":"\udc00"}"#),
            Some(json!({"a": "x\u{fffd}y", "b": "\u{1f600}", "c": "\\ud83d", "d": "\u{fffd}"}))
        );
        assert_eq!(
            parse(r#"{"a":NaN,"b":[-Infinity,1e999,1.5],"c":"NaN"}"#),
            Some(json!({"a": "NaN", "b": ["-Infinity", "1e999", 1.5], "c": "NaN"}))
        );
        assert_eq!(parse("{"), None);
    }
}
