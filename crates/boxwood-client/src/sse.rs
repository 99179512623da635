//! Parses a stream of server-sent events. Comments, which the daemon sends as keep-alives, are skipped.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::ClientError;

/// No event of ours is longer; a peer that sends more is not a daemon.
const MAX_EVENT_BYTES: usize = 16 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) event: String,
    pub(crate) data: String,
    /// The last one that was said, for this event or one before.
    pub(crate) id: Option<String>,
}

#[derive(Default)]
struct Parser {
    pending: Vec<u8>,
    /// How much of `pending` is known to have no newline. A long line comes in many pieces, and its
    /// beginning must not be looked at again for each.
    searched: usize,
    event: String,
    data: String,
    has_data: bool,
    id: Option<String>,
    retry: Option<Duration>,
}

impl Parser {
    /// Takes the next whole message out of what was fed so far.
    fn next(&mut self) -> Option<Message> {
        while let Some(end) = self.pending[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map(|end| self.searched + end)
        {
            self.searched = 0;
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if let Some(message) = self.line(line.trim_end_matches(['\r', '\n'])) {
                return Some(message);
            }
        }
        self.searched = self.pending.len();
        None
    }

    fn line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            let data = std::mem::take(&mut self.data);
            let id = self.id.clone();
            return std::mem::take(&mut self.has_data).then_some(Message { event, data, id });
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
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" => {
                let retry = value.parse().ok().map(Duration::from_millis);
                self.retry = retry.or(self.retry);
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
    most: usize,
}

impl SseBody {
    pub(crate) fn new(operation: String, body: Incoming) -> Self {
        Self {
            operation,
            body,
            parser: Parser::default(),
            most: MAX_EVENT_BYTES,
        }
    }

    /// The same for events that may be longer.
    pub(crate) fn with_limit(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// How long to wait before asking again, if it was said.
    pub(crate) fn retry(&self) -> Option<Duration> {
        self.parser.retry
    }

    /// The next message, or `None` when the daemon has ended the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>, ClientError> {
        loop {
            if let Some(message) = self.parser.next() {
                return Ok(Some(message));
            }
            if self.parser.pending.len() + self.parser.data.len() > self.most {
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
    fn ids_are_kept_until_there_is_another() {
        let mut parser = Parser::default();
        parser.pending.extend_from_slice(
            b"id: 1\nretry: 250\ndata:\n\ndata: x\n\nid: 2\ndata: y\nretry: soon\n\n",
        );
        let ids: Vec<_> = std::iter::from_fn(|| parser.next())
            .map(|message| (message.id.unwrap_or_default(), message.data))
            .collect();
        let expected = [("1", ""), ("1", "x"), ("2", "y")];
        assert_eq!(
            ids,
            expected.map(|(id, data)| (id.to_owned(), data.to_owned()))
        );
        assert_eq!(parser.retry, Some(Duration::from_millis(250)));
    }

    #[test]
    fn a_long_line_in_many_pieces_is_searched_once() {
        let mut parser = Parser::default();
        parser.pending.extend_from_slice(b"data: ");
        let piece = vec![b'x'; 1 << 10];
        // Searching everything anew for each piece would take minutes.
        for _ in 0..16 << 10 {
            parser.pending.extend_from_slice(&piece);
            assert_eq!(parser.next(), None);
        }
        parser.pending.extend_from_slice(b"\n\n");
        let message = parser.next().expect("an event");
        assert_eq!(message.data.len(), 16 << 20);
    }

    #[test]
    fn lines_of_data_are_joined_and_keep_alives_are_nothing() {
        check(&["data: 1\ndata:  2\n\n"], &[("", "1\n 2")]);
        check(&[": ping\n\n", "retry: 3\n\n", "data\n\n"], &[("", "")]);
    }
}
