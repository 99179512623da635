//! Splits bytes into lines, in bounded memory.

use bytes::{Buf, Bytes, BytesMut};

#[derive(Debug)]
pub(crate) enum Frame {
    /// Without its line ending. Never empty.
    Line(Bytes),
    /// A line beyond the limit.
    OversizedLine(OversizedLine),
}

/// Buffers at most one line. Of a line beyond the limit, only the start and the end are kept.
pub(crate) struct Lines {
    limit: usize,
    partial: BytesMut,
    oversized: Option<OversizedLine>,
}

impl Lines {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            partial: BytesMut::new(),
            oversized: None,
        }
    }

    /// Returns the frames that `chunk` completes.
    pub(crate) fn feed(&mut self, mut chunk: Bytes) -> Vec<Frame> {
        let mut frames = Vec::new();
        while !chunk.is_empty() {
            if let Some(end) = memchr::memchr(b'\n', &chunk) {
                let rest = chunk.split_to(end);
                chunk.advance(1);
                frames.extend(self.finish(rest));
            } else {
                self.keep(&chunk);
                break;
            }
        }
        frames
    }

    /// The incomplete line, if it is beyond the limit already.
    pub(crate) fn unfinished(&self) -> Option<&OversizedLine> {
        self.oversized.as_ref()
    }

    /// Adds an incomplete part of a line.
    fn keep(&mut self, part: &[u8]) {
        if let Some(oversized) = &mut self.oversized {
            oversized.add(part);
        } else if self.partial.len() + part.len() > self.limit {
            self.oversized = Some(self.start_oversized(part));
        } else {
            self.partial.extend_from_slice(part);
        }
    }

    fn finish(&mut self, rest: Bytes) -> Option<Frame> {
        let oversized = match self.oversized.take() {
            Some(mut oversized) => {
                oversized.add(&rest);
                Some(oversized)
            }
            None if self.partial.len() + rest.len() > self.limit => {
                Some(self.start_oversized(&rest))
            }
            None => None,
        };
        if let Some(oversized) = oversized {
            return Some(Frame::OversizedLine(oversized));
        }
        // A line within one chunk is not copied.
        let line = if self.partial.is_empty() {
            rest
        } else {
            self.partial.extend_from_slice(&rest);
            std::mem::take(&mut self.partial).freeze()
        };
        let trimmed = line.trim_ascii();
        (!trimmed.is_empty()).then(|| Frame::Line(line.slice_ref(trimmed)))
    }

    fn start_oversized(&mut self, part: &[u8]) -> OversizedLine {
        let mut oversized = OversizedLine::default();
        oversized.add(&self.partial);
        oversized.add(part);
        self.partial = BytesMut::new();
        oversized
    }
}

/// Start and end of an oversized line. Enough for `jsonrpc` and `id` before or after a result.
const KEPT_BYTES: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct OversizedLine {
    pub(crate) head: Vec<u8>,
    tail: Vec<u8>,
    pub(crate) bytes: usize,
}

impl OversizedLine {
    pub(crate) fn add(&mut self, part: &[u8]) {
        self.bytes += part.len();
        let room = KEPT_BYTES - self.head.len();
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        let last = &part[part.len().saturating_sub(KEPT_BYTES)..];
        self.tail.extend_from_slice(last);
        self.tail
            .drain(..self.tail.len().saturating_sub(KEPT_BYTES));
    }

    /// The id of the request that the line responds to, as far as it can be recognized. A server that sends a wrong
    /// id can only make its own calls fail.
    pub(crate) fn request_id(&self) -> Option<u64> {
        if !self.head.starts_with(b"{") {
            return None;
        }
        // Servers write the id before or after the result.
        let before = memchr::memmem::find(&self.head, b"\"result\"").unwrap_or(0);
        if let Some(at) = memchr::memmem::find(&self.head[..before], b"\"id\"") {
            return id_at(&self.head[at..before]);
        }
        let at = memchr::memmem::rfind(&self.tail, b"\"id\"")?;
        let rest = self.tail[at..].trim_ascii_end();
        rest.ends_with(b"}").then(|| id_at(rest))?
    }
}

/// Parses the number in `"id": 17`.
fn id_at(text: &[u8]) -> Option<u64> {
    let value = text.strip_prefix(b"\"id\"")?.trim_ascii_start();
    let value = value.strip_prefix(b":")?.trim_ascii_start();
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let digits = value
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    std::str::from_utf8(&value[..digits]).ok()?.parse().ok()
}
