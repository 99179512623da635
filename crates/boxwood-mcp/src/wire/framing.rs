//! Bytes into lines, in bounded memory.

use bytes::{Buf, Bytes, BytesMut};

use super::overlong::Overlong;

#[derive(Debug)]
pub(crate) enum Frame {
    /// Without its line ending. Never empty.
    Line(Bytes),
    /// A line that is longer than allowed. Its end may be still to come; it is never kept.
    Overlong(Overlong),
}

/// Holds at most one line, and of a longer one only the beginning and the end.
pub(crate) struct Lines {
    limit: usize,
    held: BytesMut,
    overlong: Option<Overlong>,
}

impl Lines {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            held: BytesMut::new(),
            overlong: None,
        }
    }

    /// Hands over the frames that `chunk` completes.
    pub(crate) fn feed(&mut self, mut chunk: Bytes, mut take: impl FnMut(Frame)) {
        while !chunk.is_empty() {
            let Some(end) = memchr::memchr(b'\n', &chunk) else {
                self.keep(&chunk, &mut take);
                return;
            };
            let rest = chunk.split_to(end);
            chunk.advance(1);
            self.finish(rest, &mut take);
        }
    }

    /// How many bytes of the line that has not ended are there, kept or not.
    pub(crate) fn unfinished(&self) -> usize {
        self.overlong
            .as_ref()
            .map_or(self.held.len(), Overlong::bytes)
    }

    /// A part of a line, whose end is still to come.
    fn keep(&mut self, part: &[u8], take: &mut impl FnMut(Frame)) {
        if let Some(overlong) = &mut self.overlong {
            overlong.add(part);
        } else if self.held.len() + part.len() > self.limit {
            let overlong = self.give_up(part);
            take(Frame::Overlong(overlong.clone()));
            self.overlong = Some(overlong);
        } else {
            self.held.extend_from_slice(part);
        }
    }

    fn finish(&mut self, rest: Bytes, take: &mut impl FnMut(Frame)) {
        if let Some(mut overlong) = self.overlong.take() {
            overlong.add(&rest);
            overlong.end();
            take(Frame::Overlong(overlong));
            return;
        }
        if self.held.len() + rest.len() > self.limit {
            let mut overlong = self.give_up(&rest);
            overlong.end();
            take(Frame::Overlong(overlong));
            return;
        }
        // A line within one chunk is not copied.
        let line = if self.held.is_empty() {
            rest
        } else {
            self.held.extend_from_slice(&rest);
            std::mem::take(&mut self.held).freeze()
        };
        let kept = line.trim_ascii();
        if !kept.is_empty() {
            take(Frame::Line(line.slice_ref(kept)));
        }
    }

    fn give_up(&mut self, part: &[u8]) -> Overlong {
        let mut overlong = Overlong::default();
        overlong.add(&self.held);
        overlong.add(part);
        self.held = BytesMut::new();
        overlong
    }
}
