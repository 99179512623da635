//! Output of a program, kept in its journal until a client has read it.
//!
//! A client reads whole lines, or bytes from any offset that is still kept. When too much is unread the
//! pipe is not read and the program waits, as it would on a terminal that is not read. Only while a client
//! that reads lines is attached, the rest of a longer line is read too. Lines are handed out once; a line
//! counts as delivered when the client asks for the next one, so that a daemon that is killed in between
//! repeats a line rather than loses it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use tokio::sync::Notify;

use super::journal::Journal;
use super::replay::Since;
use crate::Result;
use crate::session::activity::lock;

/// Unread bytes, beyond which the program waits.
const UNREAD_BYTES: u64 = 1024 * 1024;
/// A longer line is handed out in pieces of this size.
const MAX_LINE_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum of one read from the journal.
const AHEAD_BYTES: usize = 64 * 1024;

/// How the attached client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Detached,
    Lines,
    Bytes,
}

/// Part of the journal in memory, for finding lines.
#[derive(Default)]
struct Ahead {
    at: u64,
    bytes: Vec<u8>,
}

impl Ahead {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// Returns bytes from `offset` on, reading them from the journal if necessary.
    fn from(&mut self, journal: &Journal, offset: u64) -> io::Result<&[u8]> {
        if !(self.at..self.end()).contains(&offset) {
            self.bytes = journal.read(offset, AHEAD_BYTES)?;
            self.at = offset;
        }
        Ok(&self.bytes[index(offset - self.at)..])
    }

    fn slice(&self, from: u64, to: u64) -> Option<&[u8]> {
        (self.at <= from && to <= self.end())
            .then(|| &self.bytes[index(from - self.at)..index(to - self.at)])
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

struct State {
    /// Offset of the first unread byte.
    taken: u64,
    /// Start of the line that was handed out and may not have been delivered.
    undelivered_line: Option<u64>,
    /// There is no newline between `taken` and here.
    scanned: u64,
    ahead: Ahead,
    /// Maximum bytes that are kept after they were handed out.
    replay_bytes: u64,
    mode: Mode,
    /// Incremented by every attachment. Calls of earlier clients have no effect.
    client: u64,
    /// Offset of a client that reads bytes, which may be before `taken`.
    bytes_at: u64,
    /// Everything before has been acknowledged; `None` if the client does not acknowledge.
    acknowledged: Option<u64>,
    /// The journal does not grow any more.
    ended: bool,
    /// No client can attach any more.
    abandoned: bool,
}

impl State {
    /// Returns the offset of the first newline.
    fn line_end(&mut self, journal: &Journal) -> io::Result<Option<u64>> {
        while self.scanned < journal.end() && self.scanned - self.taken < MAX_LINE_BYTES {
            let bytes = self.ahead.from(journal, self.scanned)?;
            match memchr::memchr(b'\n', bytes) {
                Some(position) => {
                    self.scanned += position as u64;
                    return Ok(Some(self.scanned));
                }
                None => self.scanned += bytes.len() as u64,
            }
        }
        Ok(None)
    }

    fn take_line(&mut self, journal: &Journal) -> io::Result<Option<Vec<u8>>> {
        let waiting = journal.end().saturating_sub(self.taken);
        let (end, next) = match self.line_end(journal)? {
            Some(end) => (end, end + 1),
            None if waiting >= MAX_LINE_BYTES => {
                let end = self.taken + MAX_LINE_BYTES;
                (end, end)
            }
            // The last line may have no newline.
            None if self.ended && waiting > 0 => (journal.end(), journal.end()),
            None => return Ok(None),
        };
        let line = match self.ahead.slice(self.taken, end) {
            Some(line) => line.to_vec(),
            None => journal.read(self.taken, index(end - self.taken))?,
        };
        self.undelivered_line = Some(self.taken);
        self.taken = next;
        self.scanned = next;
        if self.taken == journal.end() {
            self.ahead = Ahead::default();
        }
        Ok(Some(line))
    }

    /// The last line has reached the client.
    fn delivered(&mut self, journal: &Journal) {
        if self.undelivered_line.take().is_some() {
            self.save_read_position(journal);
        }
    }

    fn take_bytes(
        &mut self,
        journal: &Journal,
        max_bytes: usize,
    ) -> io::Result<Option<(u64, Vec<u8>)>> {
        let at = self.bytes_at;
        let unacknowledged = self.acknowledged.map_or(0, |end| at.saturating_sub(end));
        let replay_room = self.replay_bytes.saturating_sub(unacknowledged);
        let max_bytes = max_bytes.min(AHEAD_BYTES).min(index(replay_room));
        if max_bytes == 0 || at >= journal.end() {
            return Ok(None);
        }
        let bytes = journal.read(at, max_bytes)?;
        self.bytes_at = at + bytes.len() as u64;
        if self.bytes_at > self.taken {
            self.taken = self.bytes_at;
            self.scanned = self.scanned.max(self.taken);
            self.save_read_position(journal);
        }
        Ok(Some((at, bytes)))
    }

    fn save_read_position(&mut self, journal: &Journal) {
        if let Err(error) = journal.set_delivered(self.taken) {
            tracing::warn!(%error, "failed to save the read position; output may be repeated after a restart");
        }
        self.forget(journal);
    }

    /// Output of an ended program stays as it is, so that clients can read it again.
    fn forget(&self, journal: &Journal) {
        if self.ended {
            return;
        }
        let mut start = self.taken.saturating_sub(self.replay_bytes);
        if self.mode == Mode::Bytes {
            start = start.min(self.acknowledged.unwrap_or(self.bytes_at));
        }
        journal.forget_before(start);
    }

    fn room(&mut self, journal: &Journal) -> io::Result<u64> {
        if self.abandoned && self.mode == Mode::Detached {
            // Discarded, so that the program can exit.
            self.taken = journal.end();
            self.scanned = self.taken;
            self.save_read_position(journal);
        }
        let unread = journal.end().saturating_sub(self.taken);
        if unread < UNREAD_BYTES {
            return Ok(UNREAD_BYTES - unread);
        }
        let long_line = self.mode == Mode::Lines
            && unread < MAX_LINE_BYTES
            && self.line_end(journal)?.is_none();
        Ok(if long_line {
            MAX_LINE_BYTES - unread
        } else {
            0
        })
    }
}

pub(crate) struct OutputQueue {
    journal: Arc<Journal>,
    state: Mutex<State>,
    /// Wakes the client: there are bytes, the output has ended, or another client has attached.
    changed: Notify,
    /// Wakes the task that reads the pipe.
    room: Notify,
}

impl OutputQueue {
    pub(crate) fn new(journal: Arc<Journal>, replay_bytes: u64) -> Self {
        let taken = journal.delivered();
        Self {
            journal,
            state: Mutex::new(State {
                taken,
                undelivered_line: None,
                scanned: taken,
                ahead: Ahead::default(),
                replay_bytes,
                mode: Mode::Detached,
                client: 0,
                bytes_at: taken,
                acknowledged: None,
                ended: false,
                abandoned: false,
            }),
            changed: Notify::new(),
            room: Notify::new(),
        }
    }

    /// Call after appending to the journal.
    pub(crate) fn grown(&self) {
        self.changed.notify_one();
    }

    pub(crate) fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_one();
    }

    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Waits until the pipe may be read, and returns how many bytes may be read.
    pub(crate) async fn room(&self) -> usize {
        loop {
            match self.room_now() {
                0 => self.room.notified().await,
                bytes => return bytes,
            }
        }
    }

    fn room_now(&self) -> usize {
        let room = lock(&self.state).room(&self.journal);
        room.map_or_else(
            |error| {
                Self::log_failed_read(&error);
                0
            },
            index,
        )
    }

    /// Returns the next line without its newline, or `None` after the last. Cancel-safe: a line is taken
    /// when it is returned.
    pub(crate) async fn next_line(&self) -> Option<Vec<u8>> {
        lock(&self.state).delivered(&self.journal);
        self.next(|state, journal| {
            Ok(match state.take_line(journal)? {
                None if !state.ended => Poll::Pending,
                line => Poll::Ready(line),
            })
        })
        .await
    }

    /// Returns bytes and the offset of the first, or `None` after the last or if another client has
    /// attached. Cancel-safe, as above.
    pub(crate) async fn next_bytes(&self, client: u64, max_bytes: usize) -> Option<(u64, Vec<u8>)> {
        self.next(|state, journal| {
            if state.client != client {
                return Ok(Poll::Ready(None));
            }
            let at_end = state.ended && state.bytes_at >= journal.end();
            Ok(match state.take_bytes(journal, max_bytes)? {
                None if !at_end => Poll::Pending,
                taken => Poll::Ready(taken),
            })
        })
        .await
    }

    async fn next<T>(
        &self,
        mut take: impl FnMut(&mut State, &Journal) -> io::Result<Poll<Option<T>>>,
    ) -> Option<T> {
        loop {
            // Created first: it notices a client that attaches after the check.
            let changed = self.changed.notified();
            let next = take(&mut lock(&self.state), &self.journal);
            match next {
                Ok(Poll::Ready(Some(taken))) => {
                    self.room.notify_one();
                    return Some(taken);
                }
                Ok(Poll::Pending) => changed.await,
                Ok(Poll::Ready(None)) => return None,
                Err(error) => {
                    Self::log_failed_read(&error);
                    return None;
                }
            }
        }
    }

    fn log_failed_read(error: &io::Error) {
        tracing::error!(%error, "failed to read the output of a program from its journal");
    }

    /// The last line was not delivered. It is the next one that is handed out.
    pub(crate) fn put_back(&self) {
        let mut state = lock(&self.state);
        if let Some(line) = state.undelivered_line.take() {
            state.taken = line;
            state.scanned = line;
            drop(state);
            self.changed.notify_one();
        }
    }

    pub(crate) fn has_undelivered(&self) -> bool {
        let state = lock(&self.state);
        !state.ended || state.taken < self.journal.end()
    }

    /// Returns the offset at which a client would start.
    pub(crate) fn find(&self, since: Since) -> Result<u64> {
        since.within(&self.journal, lock(&self.state).taken)
    }

    /// Returns the number of the client. It replaces an earlier one.
    pub(crate) fn attach_for_lines(&self) -> u64 {
        let mut state = lock(&self.state);
        state.mode = Mode::Lines;
        self.attached(state)
    }

    /// Returns the number of the client and its first offset. It replaces an earlier one.
    pub(crate) fn attach_for_bytes(&self, since: Since) -> Result<(u64, u64)> {
        let mut state = lock(&self.state);
        let at = since.within(&self.journal, state.taken)?;
        state.mode = Mode::Bytes;
        state.bytes_at = at;
        state.acknowledged = None;
        Ok((self.attached(state), at))
    }

    fn attached(&self, mut state: MutexGuard<'_, State>) -> u64 {
        state.client += 1;
        let client = state.client;
        drop(state);
        // Wakes an earlier client, and the reader of the pipe, which may read a longer line now.
        self.changed.notify_waiters();
        self.room.notify_one();
        client
    }

    /// Returns false if another client has attached since.
    pub(crate) fn is_current(&self, client: u64) -> bool {
        lock(&self.state).client == client
    }

    pub(crate) fn acknowledge(&self, client: u64, offset: u64) {
        let mut state = lock(&self.state);
        if state.client != client {
            return;
        }
        let offset = offset.min(state.bytes_at);
        state.acknowledged = Some(offset.max(state.acknowledged.unwrap_or(0)));
        state.forget(&self.journal);
        drop(state);
        self.changed.notify_one();
    }

    pub(crate) fn detach(&self, client: u64) {
        let mut state = lock(&self.state);
        if state.client != client {
            return;
        }
        state.delivered(&self.journal);
        state.mode = Mode::Detached;
        drop(state);
        self.room.notify_one();
    }

    /// No client can attach any more. Unread output is discarded once the last one has detached.
    pub(crate) fn abandon(&self) {
        lock(&self.state).abandoned = true;
        self.room.notify_one();
    }
}

#[cfg(test)]
mod tests;
