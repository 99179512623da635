//! Reads and dispatches the output of a server.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::framing::{Frame, Lines, OversizedLine};
use super::state::ConnectionState;
use crate::hosting::ProcessIo;
use crate::wire::error::CloseReason;
use crate::wire::message::{BadMessage, Message};

/// Output is read for this time after the process exited. A child of the server may keep it open longer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A line is read up to this multiple of the limit, to find the call it belongs to.
const MAX_SKIP_FACTOR: usize = 8;

pub(crate) async fn read(wire: Arc<dyn ProcessIo>, shared: Arc<ConnectionState>) {
    let reason = tokio::select! {
        () = shared.stop.cancelled() => return,
        reason = read_to_end(&*wire, &shared) => reason,
    };
    shared.end(&reason);
}

async fn read_to_end(wire: &dyn ProcessIo, shared: &ConnectionState) -> CloseReason {
    let mut dispatcher = Dispatcher::new(shared);
    let mut exited = wire.exited();
    let mut exit = None;
    let mut drained_by = Instant::now();
    let mut next = wire.next();
    loop {
        tokio::select! {
            chunk = &mut next => {
                let Some(chunk) = chunk else { break };
                next = wire.next();
                if let Some(reason) = dispatcher.feed(chunk) {
                    return reason;
                }
            }
            ended = &mut exited, if exit.is_none() => {
                exit = Some(ended);
                drained_by = Instant::now() + DRAIN_TIMEOUT;
            }
            () = tokio::time::sleep_until(drained_by), if exit.is_some() => break,
        }
    }
    if exit.is_none() {
        exit = tokio::time::timeout(DRAIN_TIMEOUT, exited).await.ok();
    }
    exit.map_or(CloseReason::OutputClosed, CloseReason::Exited)
}

/// Splits the output into lines, parses and dispatches them.
struct Dispatcher<'a> {
    shared: &'a ConnectionState,
    lines: Lines,
    /// Consecutive lines that are not messages.
    garbage_lines: usize,
}

impl<'a> Dispatcher<'a> {
    fn new(shared: &'a ConnectionState) -> Self {
        Self {
            shared,
            lines: Lines::new(shared.limits.line),
            garbage_lines: 0,
        }
    }

    /// Returns a reason to close the connection.
    fn feed(&mut self, chunk: bytes::Bytes) -> Option<CloseReason> {
        for frame in self.lines.feed(chunk) {
            if let Some(reason) = self.take(frame) {
                return Some(reason);
            }
        }
        // A line that is not a JSON object belongs to no call.
        let cannot_match = |line: &&OversizedLine| {
            let is_object = line.head.trim_ascii_start().starts_with(b"{");
            !is_object || line.bytes / MAX_SKIP_FACTOR > self.shared.limits.line
        };
        let unfinished = self.lines.unfinished().filter(cannot_match);
        unfinished.map(|line| self.too_long(line))
    }

    fn take(&mut self, frame: Frame) -> Option<CloseReason> {
        match frame {
            Frame::Line(line) => self.take_line(&line),
            Frame::OversizedLine(line) => {
                (!self.shared.on_oversized_line(&line)).then(|| self.too_long(&line))
            }
        }
    }

    fn too_long(&self, line: &OversizedLine) -> CloseReason {
        self.shared.log.garbage("line too long", &line.head);
        CloseReason::TooLong {
            limit: self.shared.limits.line,
        }
    }

    fn take_line(&mut self, line: &[u8]) -> Option<CloseReason> {
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        match parse(line, self.shared) {
            Ok(message) => self.shared.on_message(message),
            Err(error) => {
                self.garbage_lines += 1;
                self.shared.log.garbage(&error.to_string(), line);
                let lines = self.garbage_lines;
                let is_enough = lines >= self.shared.limits.garbage_lines;
                return is_enough.then_some(CloseReason::Garbage { lines });
            }
        }
        self.garbage_lines = 0;
        None
    }
}

/// Replaces invalid UTF-8, like the official clients.
fn parse(line: &[u8], shared: &ConnectionState) -> Result<Message, BadMessage> {
    match Message::parse(line) {
        Err(BadMessage::NotUtf8) => match String::from_utf8_lossy(line) {
            Cow::Borrowed(text) => Message::parse(text.as_bytes()),
            Cow::Owned(text) => {
                let message = Message::parse(text.as_bytes())?;
                shared.log.note("replaced invalid UTF-8 in a message");
                Ok(message)
            }
        },
        parsed => parsed,
    }
}
