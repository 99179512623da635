//! Messages on a pair of pipes: one line each, long ones in pieces.
//!
//! Comes in: lines, or an answer. Goes out: messages, or the lines that carry the answer. Never here:
//! reading and writing.

use serde_json::{Value, json};

use super::assembly::{MAX_MESSAGE_BYTES, parse};
use super::reply::ascii_json;

/// A message longer than this goes in pieces of this size: the clients read no longer lines.
const PIECE_BYTES: usize = 16 * 1024;

/// Puts the pieces of long messages together.
#[derive(Default)]
pub(super) struct Lines {
    /// What has come of a message in pieces. `None` between messages.
    pieces: Option<String>,
}

impl Lines {
    /// The message that this line completes, if any. What is no message is ignored: a library may
    /// print to the pipe by mistake.
    pub(super) fn push(&mut self, line: &str) -> Option<Value> {
        let line = line.trim();
        if !line.starts_with('{') || !line.ends_with('}') {
            return None;
        }
        let message = parse(line)?;
        let kind = message.get("type").and_then(Value::as_str);
        match (kind, &mut self.pieces) {
            (Some("chunk_start"), _) => self.pieces = Some(String::new()),
            (Some("chunk_data"), Some(pieces)) => {
                pieces.push_str(message.get("data").and_then(Value::as_str).unwrap_or(""));
                if pieces.len() > MAX_MESSAGE_BYTES {
                    tracing::warn!("a message of more than {MAX_MESSAGE_BYTES} bytes is dropped");
                    self.pieces = None;
                }
            }
            (Some("chunk_end"), pieces) => return parse(&pieces.take()?),
            (Some("chunk_data"), None) => {}
            _ => return Some(message),
        }
        None
    }
}

/// The lines that carry an answer, which is ASCII, so that it can be cut anywhere.
pub(super) fn lines_of(answer: String) -> Vec<String> {
    if answer.len() <= PIECE_BYTES {
        return vec![answer];
    }
    let mut lines = vec![ascii_json(
        &json!({"type": "chunk_start", "total_size": answer.len()}),
    )];
    let mut offset = 0;
    while offset < answer.len() {
        let end = (offset + PIECE_BYTES).min(answer.len());
        let piece = answer.get(offset..end).unwrap_or_default();
        lines.push(ascii_json(
            &json!({"type": "chunk_data", "data": piece, "offset": offset}),
        ));
        offset = end;
    }
    lines.push(ascii_json(&json!({"type": "chunk_end"})));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_survive_the_way_there_and_back() {
        for length in [10, PIECE_BYTES - 20, PIECE_BYTES, 100_000] {
            let message =
                json!({"seq_id": 1, "code": 0, "data": {"stdout": "\"\\é\n".repeat(length / 4)}});
            let mut lines = Lines::default();
            let sent = lines_of(ascii_json(&message));
            assert!(
                sent.iter()
                    .all(|line| line.len() < 64 * 1024 && !line.contains('\n'))
            );
            let heard: Vec<Value> = sent.iter().filter_map(|line| lines.push(line)).collect();
            assert_eq!(heard, [message]);
        }
    }

    #[test]
    fn what_is_no_message_is_ignored() {
        let mut lines = Lines::default();
        for rubbish in [
            "",
            "hello",
            "{broken",
            "{\"a\":}",
            "[1]",
            "{\"type\":\"chunk_data\",\"data\":\"x\"}",
            "{\"type\":\"chunk_end\"}",
        ] {
            assert_eq!(lines.push(rubbish), None, "{rubbish}");
        }
        let good = json!({"seq_id": 1, "action": "__ping", "data": {}});
        assert_eq!(lines.push(&format!("  {good}\r\n")), Some(good.clone()));
        // A start that is never ended does not swallow what follows.
        assert_eq!(
            lines.push("{\"type\":\"chunk_start\",\"total_size\":5}"),
            None
        );
        assert_eq!(lines.push(&good.to_string()), Some(good));
    }

    #[test]
    fn an_endless_message_is_dropped() {
        let mut lines = Lines::default();
        lines.push("{\"type\":\"chunk_start\"}");
        let piece = json!({"type": "chunk_data", "data": "x".repeat(1 << 20)}).to_string();
        for _ in 0..20 {
            assert_eq!(lines.push(&piece), None);
        }
        assert_eq!(lines.push("{\"type\":\"chunk_end\"}"), None);
    }
}
