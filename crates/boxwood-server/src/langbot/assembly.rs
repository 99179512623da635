//! Makes whole messages out of what arrives.
//!
//! June's client cuts a message of more than 64 KiB into several text frames, so a message is whole
//! when its object is closed, not when a frame ends. What cannot become an object is dropped and the
//! connection stays usable.

use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::scanner::{Progress, Scanner};

/// A message longer than this is dropped.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// For the rest of a message that was begun. The client sends its pieces one after the other.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was begun and not yet ended.
#[derive(Default)]
pub(super) struct Assembly {
    begun: String,
    scanner: Scanner,
    last_piece: Option<Instant>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Heard {
    /// Nothing to answer yet, or nothing that can be answered.
    Nothing,
    Message(Value),
    /// A message that grew beyond [`MAX_MESSAGE_BYTES`]: its sender cannot be answered.
    TooLong,
}

impl Assembly {
    /// Takes one frame. A frame continues what was begun whenever it can: what looks like a message
    /// of its own may be the middle of somebody's text.
    pub(super) fn push(&mut self, frame: &str) -> Heard {
        let now = Instant::now();
        if self.last_piece.is_some_and(|last| now - last > PATIENCE) {
            self.forget();
        }
        match self.continue_with(frame) {
            Some(heard) => heard,
            // What was begun was rubbish; the frame may still be a message.
            None => self.continue_with(frame).unwrap_or(Heard::Nothing),
        }
    }

    /// `None` when the frame cannot follow what was begun, which is then forgotten.
    fn continue_with(&mut self, frame: &str) -> Option<Heard> {
        let fresh = self.begun.is_empty();
        match self.scanner.push(frame) {
            Progress::Open if self.begun.len() + frame.len() > MAX_MESSAGE_BYTES => {
                self.forget();
                Some(Heard::TooLong)
            }
            Progress::Open if fresh && frame.trim().is_empty() => {
                self.forget();
                Some(Heard::Nothing)
            }
            Progress::Open => {
                self.begun.push_str(frame);
                self.last_piece = Some(Instant::now());
                Some(Heard::Nothing)
            }
            Progress::Whole(end) if frame[end..].trim().is_empty() => {
                let message = if fresh {
                    parse(&frame[..end])
                } else {
                    self.begun.push_str(&frame[..end]);
                    parse(&self.begun)
                };
                self.forget();
                Some(message.map_or(Heard::Nothing, Heard::Message))
            }
            Progress::Whole(_) | Progress::Broken => {
                self.forget();
                if fresh { Some(Heard::Nothing) } else { None }
            }
        }
    }

    fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Reads JSON as Python writes it: with lone surrogates, `NaN` and the infinities.
pub(super) fn parse(text: &str) -> Option<Value> {
    serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(&plain_json(text)))
        .inspect_err(|error| tracing::debug!(%error, "a message cannot be read"))
        .ok()
}

/// Half a surrogate pair becomes the replacement character, and a number that is none becomes text,
/// so that whoever reads the field can refuse it by name.
fn plain_json(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(quote) = rest.find('"') {
        plain.push_str(&without_odd_numbers(&rest[..quote]));
        rest = &rest[quote + 1..];
        let end = end_of_text(rest);
        plain.push('"');
        plain.push_str(&without_halves(&rest[..end]));
        plain.push('"');
        rest = rest.get(end + 1..).unwrap_or("");
    }
    plain.push_str(&without_odd_numbers(rest));
    plain
}

/// Where the quote is that ends a text.
fn end_of_text(rest: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at,
            _ => {}
        }
    }
    rest.len()
}

fn without_odd_numbers(between: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.');
    let mut plain = String::with_capacity(between.len());
    let mut rest = between;
    while let Some(start) = rest.find(is_part) {
        plain.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        let odd = !matches!(word, "true" | "false" | "null")
            && word.parse::<f64>().is_ok_and(|number| !number.is_finite());
        if odd {
            plain.push('"');
            plain.push_str(word);
            plain.push('"');
        } else {
            plain.push_str(word);
        }
        rest = &rest[end..];
    }
    plain.push_str(rest);
    plain
}

fn without_halves(text: &str) -> String {
    let code = |at: usize| -> Option<u32> {
        let escape = text.get(at..at + 6)?;
        let hex = escape.strip_prefix("\\u")?;
        u32::from_str_radix(hex, 16).ok()
    };
    let mut plain = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let whole = match code(at) {
            Some(0xD800..=0xDBFF) if matches!(code(at + 6), Some(0xDC00..=0xDFFF)) => 12,
            Some(0xD800..=0xDFFF) => 0,
            Some(_) => 6,
            // An escaped backslash must not be read as the start of another escape.
            None if c == '\\' => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
            None => c.len_utf8(),
        };
        if whole == 0 {
            plain.push_str("\\ufffd");
            at += 6;
        } else {
            plain.push_str(&text[at..at + whole]);
            at += whole;
        }
    }
    plain
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
            let mut assembly = Assembly::default();
            let pieces: Vec<char> = text.chars().collect();
            let mut heard = Vec::new();
            for piece in pieces.chunks(size) {
                match assembly.push(&piece.iter().collect::<String>()) {
                    Heard::Nothing => {}
                    other => heard.push(other),
                }
            }
            assert_eq!(heard, [Heard::Message(message.clone())], "{size}");
        }
    }

    #[test]
    fn rubbish_does_not_swallow_what_follows() {
        for rubbish in ["not json", "{\"half", "}", "[1]", "{} {}", "", "\u{0}"] {
            let mut assembly = Assembly::default();
            assert_eq!(assembly.push(rubbish), Heard::Nothing, "{rubbish}");
            let good = json!({"seq_id": 1, "action": "__ping", "data": {}});
            assert_eq!(
                assembly.push(&good.to_string()),
                Heard::Message(good),
                "{rubbish}"
            );
        }
    }

    /// Somebody's text may hold a message; it must not become one.
    #[test]
    fn a_message_in_the_middle_of_a_text_stays_text() {
        let mut assembly = Assembly::default();
        let inner = r#"{\"seq_id\":9,\"action\":\"box_shutdown\",\"data\":{}}"#;
        assert_eq!(
            assembly.push(r#"{"seq_id":1,"action":"box_exec","data":{"cmd":""#),
            Heard::Nothing
        );
        assert_eq!(assembly.push(inner), Heard::Nothing);
        let Heard::Message(message) = assembly.push("\"}}") else {
            panic!("the message is whole");
        };
        assert_eq!(message["action"], "box_exec");
    }

    #[test]
    fn an_endless_message_is_let_go() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.push("{\"a\":\""), Heard::Nothing);
        let piece = "x".repeat(1024 * 1024);
        let mut too_long = 0;
        for _ in 0..20 {
            if assembly.push(&piece) == Heard::TooLong {
                too_long += 1;
                break;
            }
        }
        assert_eq!(too_long, 1);
        assert_eq!(assembly.push("{}"), Heard::Message(json!({})));
    }

    #[test]
    fn json_as_python_writes_it_is_understood() {
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
