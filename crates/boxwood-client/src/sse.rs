//! Reads a body of server-sent events.
//!
//! Comes in: a streamed body. Goes out: one `(event, data)` after the other. Comments, ids and
//! retry times are passed over: the daemon sends them to keep proxies awake.

use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::ClientError;

/// No event of ours is longer; a peer that sends more is not a daemon.
const MAX_EVENT_BYTES: usize = 16 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) event: String,
    pub(crate) data: String,
}

#[derive(Default)]
struct Parser {
    pending: Vec<u8>,
    event: String,
    data: String,
    has_data: bool,
}

impl Parser {
    /// Takes the next whole message out of what was fed so far.
    fn next(&mut self) -> Option<Message> {
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if let Some(message) = self.line(line.trim_end_matches(['\r', '\n'])) {
                return Some(message);
            }
        }
        None
    }

    fn line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            let data = std::mem::take(&mut self.data);
            return std::mem::take(&mut self.has_data).then_some(Message { event, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event),
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.data.push_str(value);
                self.has_data = true;
            }
            _ => {}
        }
        None
    }
}

pub(crate) struct SseBody {
    operation: String,
    body: Incoming,
    parser: Parser,
}

impl SseBody {
    pub(crate) fn new(operation: String, body: Incoming) -> Self {
        Self {
            operation,
            body,
            parser: Parser::default(),
        }
    }

    /// The next message, or `None` when the daemon has ended the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>, ClientError> {
        loop {
            if let Some(message) = self.parser.next() {
                return Ok(Some(message));
            }
            if self.parser.pending.len() + self.parser.data.len() > MAX_EVENT_BYTES {
                return Err(ClientError::unexpected(&self.operation, "an endless event"));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(ClientError::lost(&self.operation, error)),
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.parser.pending.extend_from_slice(bytes);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(chunks: &[&str], expected: &[(&str, &str)]) {
        let mut parser = Parser::default();
        let mut found = Vec::new();
        for chunk in chunks {
            parser.pending.extend_from_slice(chunk.as_bytes());
            while let Some(message) = parser.next() {
                found.push((message.event, message.data));
            }
        }
        let expected: Vec<_> = expected
            .iter()
            .map(|(event, data)| ((*event).to_owned(), (*data).to_owned()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn events_arrive_whole_however_they_are_cut() {
        check(
            &["event: a\ndata: 1\n\ndata: 2\n\n"],
            &[("a", "1"), ("", "2")],
        );
        check(&["ev", "ent: a\nda", "ta: 1\n", "\n"], &[("a", "1")]);
        check(&["data: 1\r\n\r\n"], &[("", "1")]);
    }

    #[test]
    fn lines_of_data_are_joined_and_keep_alives_are_nothing() {
        check(&["data: 1\ndata:  2\n\n"], &[("", "1\n 2")]);
        check(&[": ping\n\n", "retry: 3\n\n", "data\n\n"], &[("", "")]);
    }
}
