//! A process's stdout, kept as lines until somebody takes them.
//!
//! Comes in: bytes, as long as there is room. Goes out: whole lines, each exactly once. When the
//! buffer is full nothing more is read and the process waits on its pipe, as it would on a terminal
//! that nobody reads. A line longer than the buffer is let in while somebody is attached to take it.

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::{Buf as _, BytesMut};
use tokio::sync::Notify;

use crate::activity::lock;

/// Kept for the next attachment.
const KEPT_BYTES: usize = 1024 * 1024;
/// The longest line; one that is longer is handed out in pieces of this size.
const LONGEST_LINE: usize = 64 * 1024 * 1024;

#[derive(Default)]
struct State {
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    scanned: usize,
    /// Handed out and given back, because its receiver went away.
    returned: VecDeque<Vec<u8>>,
    attached: bool,
    /// Nothing more will come.
    ended: bool,
    /// The process is out of reach: nobody can attach any more.
    abandoned: bool,
}

impl State {
    /// The position of the first line end.
    fn line_end(&mut self) -> Option<usize> {
        let found = memchr::memchr(b'\n', &self.buffer[self.scanned..]);
        // A line end is looked at again when its line is taken; what has none never is.
        self.scanned += found.unwrap_or(self.buffer.len() - self.scanned);
        found.map(|_| self.scanned)
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        if let Some(line) = self.returned.pop_front() {
            return Some(line);
        }
        let (length, with_end) = match self.line_end() {
            Some(position) => (position, position + 1),
            None if self.buffer.len() >= LONGEST_LINE => (LONGEST_LINE, LONGEST_LINE),
            // The last line may have no end.
            None if self.ended && !self.buffer.is_empty() => (self.buffer.len(), self.buffer.len()),
            None => return None,
        };
        let line = self.buffer[..length].to_vec();
        self.buffer.advance(with_end);
        self.scanned = 0;
        if self.buffer.is_empty() {
            // One long line must not cost its memory for ever.
            self.buffer = BytesMut::new();
        }
        Some(line)
    }

    fn has_room(&mut self) -> bool {
        let kept = self.buffer.len();
        kept < KEPT_BYTES || (self.attached && kept < LONGEST_LINE && self.line_end().is_none())
    }
}

/// What the reader of the pipe may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Some,
    /// Wait for [`Outlet::room_changed`].
    None,
    /// Nobody will ever take it.
    Abandoned,
}

#[derive(Default)]
pub(super) struct Outlet {
    state: Mutex<State>,
    /// For the one attachment: a line, or the end.
    lines: Notify,
    /// For the one reader of the pipe: lines were taken, or nobody will take them.
    room: Notify,
}

impl Outlet {
    pub(super) fn push(&self, bytes: &[u8]) {
        lock(&self.state).buffer.extend_from_slice(bytes);
        self.lines.notify_one();
    }

    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.lines.notify_one();
    }

    pub(super) fn room(&self) -> Room {
        let mut state = lock(&self.state);
        if state.abandoned && !state.attached {
            Room::Abandoned
        } else if state.has_room() {
            Room::Some
        } else {
            Room::None
        }
    }

    pub(super) async fn room_changed(&self) {
        self.room.notified().await;
    }

    /// The next line without its end, or `None` after the last. Cancel-safe: a line is taken in
    /// the same instant in which it is returned.
    pub(super) async fn next_line(&self) -> Option<Vec<u8>> {
        loop {
            {
                let mut state = lock(&self.state);
                if let Some(line) = state.take_line() {
                    drop(state);
                    self.room.notify_one();
                    return Some(line);
                }
                if state.ended {
                    return None;
                }
            }
            self.lines.notified().await;
        }
    }

    pub(super) fn put_back(&self, line: Vec<u8>) {
        lock(&self.state).returned.push_front(line);
        self.lines.notify_one();
    }

    pub(super) fn has_undelivered(&self) -> bool {
        let state = lock(&self.state);
        !state.ended || !state.buffer.is_empty() || !state.returned.is_empty()
    }

    pub(super) fn set_attached(&self, attached: bool) {
        lock(&self.state).attached = attached;
        self.room.notify_one();
    }

    pub(super) fn abandon(&self) {
        lock(&self.state).abandoned = true;
        self.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[expect(clippy::option_option, reason = "not yet, never again, or a line")]
    fn next(outlet: &Outlet) -> Option<Option<Vec<u8>>> {
        outlet.next_line().now_or_never()
    }

    #[test]
    fn lines_come_out_whole_and_in_order() {
        let outlet = Outlet::default();
        outlet.push(b"one\n\ntwo\r\nthr");
        assert_eq!(next(&outlet), Some(Some(b"one".to_vec())));
        assert_eq!(next(&outlet), Some(Some(Vec::new())));
        assert_eq!(next(&outlet), Some(Some(b"two\r".to_vec())));
        assert_eq!(next(&outlet), None, "half a line is not a line");
        outlet.push(b"ee");
        outlet.end();
        assert_eq!(next(&outlet), Some(Some(b"three".to_vec())));
        assert_eq!(next(&outlet), Some(None));
        assert!(!outlet.has_undelivered());
    }

    #[test]
    fn a_line_put_back_is_the_next_one() {
        let outlet = Outlet::default();
        outlet.push(b"one\ntwo\n");
        let one = next(&outlet).flatten().expect("a line");
        outlet.put_back(one);
        assert_eq!(next(&outlet), Some(Some(b"one".to_vec())));
        assert_eq!(next(&outlet), Some(Some(b"two".to_vec())));
    }

    #[test]
    fn a_full_buffer_has_no_room_until_a_line_is_taken() {
        let outlet = Outlet::default();
        outlet.push(&b"x\n".repeat(KEPT_BYTES / 2));
        assert_eq!(outlet.room(), Room::None);
        assert!(next(&outlet).is_some());
        assert_eq!(outlet.room(), Room::Some);
    }

    #[test]
    fn a_line_longer_than_the_buffer_waits_for_an_attachment() {
        let outlet = Outlet::default();
        outlet.push(&vec![b'x'; KEPT_BYTES]);
        assert_eq!(outlet.room(), Room::None);
        outlet.set_attached(true);
        assert_eq!(outlet.room(), Room::Some);
        outlet.push(b"y\n");
        assert_eq!(outlet.room(), Room::None);
        let line = next(&outlet).flatten().expect("the long line");
        assert_eq!(line.len(), KEPT_BYTES + 1);
    }

    #[test]
    fn what_nobody_can_take_is_not_waited_for() {
        let outlet = Outlet::default();
        outlet.push(&vec![b'x'; KEPT_BYTES]);
        outlet.set_attached(true);
        outlet.abandon();
        assert_eq!(outlet.room(), Room::Some, "the last attachment is served");
        outlet.set_attached(false);
        assert_eq!(outlet.room(), Room::Abandoned);
    }
}
