//! Reads what a server writes, for as long as it does. Waits for nobody else.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::error::Ended;
use super::framing::{Frame, Lines};
use super::message::{BadMessage, Payload};
use super::shared::Shared;
use crate::hosting::Wire;

/// After the process has ended: what it wrote is still read, but a child of its own that has its output
/// open is not waited for.
const TO_DRAIN: Duration = Duration::from_secs(1);

/// How far beyond the limit a line without an end is followed to see whose answer it was.
const MOST_SKIPPED: usize = 8;

pub(crate) async fn read(wire: Arc<dyn Wire>, shared: Arc<Shared>) {
    let why = tokio::select! {
        () = shared.stop.cancelled() => return,
        why = read_to_end(&*wire, &shared) => why,
    };
    shared.end(&why);
}

async fn read_to_end(wire: &dyn Wire, shared: &Shared) -> Ended {
    let mut listener = Listener::new(shared);
    let mut exited = wire.exited();
    let mut gone = None;
    let mut drained_by = Instant::now();
    let mut next = wire.next();
    loop {
        tokio::select! {
            chunk = &mut next => {
                let Some(chunk) = chunk else { break };
                next = wire.next();
                if let Some(why) = listener.hear(chunk) {
                    return why;
                }
            }
            left = &mut exited, if gone.is_none() => {
                gone = Some(left);
                drained_by = Instant::now() + TO_DRAIN;
            }
            () = tokio::time::sleep_until(drained_by), if gone.is_some() => break,
        }
    }
    if gone.is_none() {
        gone = tokio::time::timeout(TO_DRAIN, exited).await.ok();
    }
    gone.map_or(Ended::OutputClosed, Ended::Exited)
}

struct Listener<'a> {
    shared: &'a Shared,
    lines: Lines,
    garbage: usize,
    /// Whether the line that goes on and on has been laid at a call's door.
    is_excused: bool,
}

impl<'a> Listener<'a> {
    fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            lines: Lines::new(shared.limits.line),
            garbage: 0,
            is_excused: false,
        }
    }

    /// Why it must end, if it must.
    fn hear(&mut self, chunk: bytes::Bytes) -> Option<Ended> {
        let mut lines = std::mem::replace(&mut self.lines, Lines::new(1));
        let mut why = None;
        lines.feed(chunk, |frame| {
            if why.is_none() {
                why = self.take(frame);
            }
        });
        let limit = self.shared.limits.line;
        let unfinished = lines.unfinished();
        self.lines = lines;
        if why.is_none() && unfinished / MOST_SKIPPED > limit {
            return Some(Ended::TooLong { limit });
        }
        why
    }

    fn take(&mut self, frame: Frame) -> Option<Ended> {
        let limit = self.shared.limits.line;
        match frame {
            Frame::Line(line) => self.take_line(&line),
            Frame::Overlong(overlong) => {
                self.is_excused |= self.shared.hear_overlong(&overlong);
                let is_over = overlong.has_ended();
                let is_excused = self.is_excused;
                if is_over {
                    self.is_excused = false;
                }
                let is_blamed = is_over && !is_excused;
                // What is no JSON from the start answers nobody.
                let is_hopeless = !is_excused && !overlong.head().trim_ascii().starts_with(b"{");
                (is_blamed || is_hopeless).then(|| {
                    let log = &self.shared.log;
                    log.garbage("a line that is too long", overlong.head());
                    Ended::TooLong { limit }
                })
            }
        }
    }

    fn take_line(&mut self, line: &[u8]) -> Option<Ended> {
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        match parse(line, self.shared) {
            Ok(Payload::One(message)) => self.shared.hear(message),
            Ok(Payload::Batch(messages)) => {
                for message in messages {
                    self.shared.hear(message);
                }
            }
            Err(bad) => {
                self.garbage += 1;
                self.shared.log.garbage(&bad.to_string(), line);
                let lines = self.garbage;
                let is_enough = lines >= self.shared.limits.garbage_lines;
                return is_enough.then_some(Ended::Garbage { lines });
            }
        }
        self.garbage = 0;
        None
    }
}

/// Bytes that are no text are replaced, as the official clients do: better than an answer nobody gets.
fn parse(line: &[u8], shared: &Shared) -> Result<Payload, BadMessage> {
    match Payload::parse(line) {
        Err(BadMessage::NotUtf8) => match String::from_utf8_lossy(line) {
            Cow::Borrowed(text) => Payload::parse(text.as_bytes()),
            Cow::Owned(text) => {
                let payload = Payload::parse(text.as_bytes())?;
                shared
                    .log
                    .note("a message was not UTF-8; the bytes that were not are replaced");
                Ok(payload)
            }
        },
        parsed => parsed,
    }
}
