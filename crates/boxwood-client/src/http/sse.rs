//! Parses a stream of server-sent events. Comments, which the daemon sends as keep-alives, are skipped.

use std::time::Duration;

use super::{HttpResponse, Lines};
use crate::{ClientError, Result};

/// Tool results of MCP servers can be long, but the daemon sends no event that is longer than this.
const MAX_EVENT_BYTES: usize = 64 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) event: String,
    pub(crate) data: String,
    /// The last id that was sent, with this event or an earlier one.
    pub(crate) id: Option<String>,
}

#[derive(Default)]
struct Parser {
    lines: Lines,
    event: String,
    data: Option<String>,
    id: Option<String>,
    retry: Option<Duration>,
}

impl Parser {
    /// The next complete message.
    fn next(&mut self) -> Option<Message> {
        while let Some(line) = self.lines.next() {
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
            let data = self.data.take()?;
            let id = self.id.clone();
            return Some(Message { event, data, id });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
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
    response: HttpResponse,
    parser: Parser,
}

impl SseBody {
    pub(crate) fn new(response: HttpResponse) -> Self {
        Self {
            response,
            parser: Parser::default(),
        }
    }

    pub(crate) fn operation(&self) -> &str {
        &self.response.operation
    }

    /// The delay before reconnecting, if the server sent one.
    pub(crate) fn retry(&self) -> Option<Duration> {
        self.parser.retry
    }

    /// The next message, or `None` when the daemon has ended the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>> {
        loop {
            if let Some(message) = self.parser.next() {
                return Ok(Some(message));
            }
            let data = self.parser.data.as_ref().map_or(0, String::len);
            if self.parser.lines.len() + data > MAX_EVENT_BYTES {
                let reason = "an event is too long";
                return Err(ClientError::unexpected(self.operation(), reason));
            }
            let Some(bytes) = self.response.chunk().await? else {
                return Ok(None);
            };
            self.parser.lines.push(&bytes);
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
            parser.lines.push(chunk.as_bytes());
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
    fn events_may_be_split_anywhere() {
        check(
            &["event: a\ndata: 1\n\ndata: 2\n\n"],
            &[("a", "1"), ("", "2")],
        );
        check(&["ev", "ent: a\nda", "ta: 1\n", "\n"], &[("a", "1")]);
        check(&["data: 1\r\n\r\n"], &[("", "1")]);
    }

    #[test]
    fn an_event_id_applies_until_the_next_one() {
        let mut parser = Parser::default();
        parser
            .lines
            .push(b"id: 1\nretry: 250\ndata:\n\ndata: x\n\nid: 2\ndata: y\nretry: soon\n\n");
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
    fn a_long_line_in_many_pieces_is_scanned_once() {
        let mut parser = Parser::default();
        parser.lines.push(b"data: ");
        let piece = vec![b'x'; 1 << 10];
        // Searching everything anew for each piece would take minutes.
        for _ in 0..16 << 10 {
            parser.lines.push(&piece);
            assert_eq!(parser.next(), None);
        }
        parser.lines.push(b"\n\n");
        let message = parser.next().expect("an event");
        assert_eq!(message.data.len(), 16 << 20);
    }

    #[test]
    fn data_lines_are_joined_and_keep_alives_are_skipped() {
        check(&["data: 1\ndata:  2\n\n"], &[("", "1\n 2")]);
        check(&[": ping\n\n", "retry: 3\n\n", "data\n\n"], &[("", "")]);
    }
}
