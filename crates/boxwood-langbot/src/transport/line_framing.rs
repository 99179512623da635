//! Framing on stdio: one message per line, long messages in several chunk lines.

use serde_json::{Value, json};

use super::message_assembler::{MAX_MESSAGE_BYTES, parse};
use super::response::ascii_json;

/// Longer messages are sent in chunks of this size, because clients do not read longer lines.
const CHUNK_BYTES: usize = 16 * 1024;

/// Joins the chunks of long messages.
#[derive(Default)]
pub(crate) struct LineDecoder {
    /// The chunks of an incomplete message. `None` between messages.
    chunks: Option<String>,
}

impl LineDecoder {
    /// The message that this line completes, if any. Other lines are ignored: a library may print to the
    /// pipe by mistake.
    pub(crate) fn push(&mut self, line: &str) -> Option<Value> {
        let line = line.trim();
        if !line.starts_with('{') || !line.ends_with('}') {
            return None;
        }
        let message = parse(line)?;
        let kind = message.get("type").and_then(Value::as_str);
        match (kind, &mut self.chunks) {
            (Some("chunk_start"), _) => self.chunks = Some(String::new()),
            (Some("chunk_data"), Some(chunks)) => {
                chunks.push_str(message.get("data").and_then(Value::as_str).unwrap_or(""));
                if chunks.len() > MAX_MESSAGE_BYTES {
                    tracing::warn!("dropped a message of more than {MAX_MESSAGE_BYTES} bytes");
                    self.chunks = None;
                }
            }
            (Some("chunk_end"), chunks) => return parse(&chunks.take()?),
            (Some("chunk_data"), None) => {}
            _ => return Some(message),
        }
        None
    }
}

/// The lines of a response. It is ASCII, so that it can be split anywhere.
pub(crate) fn encode(response: String) -> Vec<String> {
    if response.len() <= CHUNK_BYTES {
        return vec![response];
    }
    let mut lines = vec![ascii_json(
        &json!({"type": "chunk_start", "total_size": response.len()}),
    )];
    for offset in (0..response.len()).step_by(CHUNK_BYTES) {
        let end = (offset + CHUNK_BYTES).min(response.len());
        let chunk = response.get(offset..end).unwrap_or_default();
        lines.push(ascii_json(
            &json!({"type": "chunk_data", "data": chunk, "offset": offset}),
        ));
    }
    lines.push(ascii_json(&json!({"type": "chunk_end"})));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_survive_a_round_trip() {
        for length in [10, CHUNK_BYTES - 20, CHUNK_BYTES, 100_000] {
            let message =
                json!({"seq_id": 1, "code": 0, "data": {"stdout": "\"\\é\n".repeat(length / 4)}});
            let mut decoder = LineDecoder::default();
            let sent = encode(ascii_json(&message));
            assert!(
                sent.iter()
                    .all(|line| line.len() < 64 * 1024 && !line.contains('\n'))
            );
            let received: Vec<Value> = sent.iter().filter_map(|line| decoder.push(line)).collect();
            assert_eq!(received, [message]);
        }
    }

    #[test]
    fn other_lines_are_ignored() {
        let mut decoder = LineDecoder::default();
        for garbage in [
            "",
            "hello",
            "{broken",
            "{\"a\":}",
            "[1]",
            "{\"type\":\"chunk_data\",\"data\":\"x\"}",
            "{\"type\":\"chunk_end\"}",
        ] {
            assert_eq!(decoder.push(garbage), None, "{garbage}");
        }
        let good = json!({"seq_id": 1, "action": "__ping", "data": {}});
        assert_eq!(decoder.push(&format!("  {good}\r\n")), Some(good.clone()));
        // An incomplete message does not swallow the next one.
        assert_eq!(
            decoder.push("{\"type\":\"chunk_start\",\"total_size\":5}"),
            None
        );
        assert_eq!(decoder.push(&good.to_string()), Some(good));
    }

    #[test]
    fn an_oversized_message_is_dropped() {
        let mut decoder = LineDecoder::default();
        decoder.push("{\"type\":\"chunk_start\"}");
        let chunk = json!({"type": "chunk_data", "data": "x".repeat(1 << 20)}).to_string();
        for _ in 0..20 {
            assert_eq!(decoder.push(&chunk), None);
        }
        assert_eq!(decoder.push("{\"type\":\"chunk_end\"}"), None);
    }
}
