//! A process's stdout, kept in its journal until somebody takes it.
//!
//! Comes in: the news that the journal has grown. Goes out: whole lines, or bytes from any place that is
//! still kept. When too much waits nothing more is read and the process waits on its pipe, as it would
//! on a terminal that nobody reads. A line longer than that is let in while somebody is attached to take
//! it. Lines are handed out once; a line is delivered when its receiver asks for the next one, so that
//! a daemon that is killed in between repeats a line rather than loses it.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::SessionError;
use crate::activity::lock;
use crate::journal::Journal;
use crate::replay::{ReplayLimits, Since, Window};

/// Kept for the next attachment.
const KEPT_BYTES: u64 = 1024 * 1024;
/// The longest line; one that is longer is handed out in pieces of this size.
const LONGEST_LINE: u64 = 64 * 1024 * 1024;
/// Read from the journal at one time.
const AHEAD_BYTES: usize = 64 * 1024;

/// How the one who is attached takes the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taking {
    Nobody,
    Lines,
    Bytes,
}

/// A few bytes of the journal, in memory.
#[derive(Default)]
struct Ahead {
    at: u64,
    bytes: Vec<u8>,
}

impl Ahead {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// What there is from `offset` on; reads more when that is nothing.
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
    /// The first byte that nobody has taken.
    taken: u64,
    /// Where the line begins that is on its way to its receiver.
    on_its_way: Option<u64>,
    /// No line ends between `taken` and here.
    scanned: u64,
    ahead: Ahead,
    window: Window,
    taking: Taking,
    /// Where the one who takes bytes is, which may be before `taken`.
    bytes_at: u64,
    /// Everything before is safe with the one who takes bytes; `None` when it does not say.
    acknowledged: Option<u64>,
    /// Nothing more will come.
    ended: bool,
    /// The process is out of reach: nobody can attach any more.
    abandoned: bool,
}

impl State {
    /// The offset of the first line end.
    fn line_end(&mut self, journal: &Journal) -> io::Result<Option<u64>> {
        while self.scanned < journal.end() && self.scanned - self.taken < LONGEST_LINE {
            let bytes = self.ahead.from(journal, self.scanned)?;
            match memchr::memchr(b'\n', bytes) {
                // A line end is looked at again when its line is taken; what has none never is.
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
            None if waiting >= LONGEST_LINE => {
                let end = self.taken + LONGEST_LINE;
                (end, end)
            }
            // The last line may have no end.
            None if self.ended && waiting > 0 => (journal.end(), journal.end()),
            None => return Ok(None),
        };
        let line = match self.ahead.slice(self.taken, end) {
            Some(line) => line.to_vec(),
            None => journal.read(self.taken, index(end - self.taken))?,
        };
        self.on_its_way = Some(self.taken);
        self.taken = next;
        self.scanned = next;
        if self.taken == journal.end() {
            self.ahead = Ahead::default();
        }
        Ok(Some(line))
    }

    /// The line that was on its way has arrived.
    fn delivered(&mut self, journal: &Journal) {
        if self.on_its_way.take().is_some() {
            self.window.passed_line(self.taken);
            self.handed_out(journal);
        }
    }

    fn take_bytes(&mut self, journal: &Journal, most: usize) -> io::Result<Option<(u64, Vec<u8>)>> {
        let at = self.bytes_at;
        let unsafe_yet = self.acknowledged.map_or(0, |safe| at.saturating_sub(safe));
        let room = self.window.bytes().saturating_sub(unsafe_yet);
        let most = most.min(AHEAD_BYTES).min(index(room));
        if most == 0 || at >= journal.end() {
            return Ok(None);
        }
        let bytes = journal.read(at, most)?;
        self.bytes_at = at + bytes.len() as u64;
        if self.bytes_at > self.taken {
            self.window
                .passed(self.taken, &bytes[index(self.taken.saturating_sub(at))..]);
            self.taken = self.bytes_at;
            self.scanned = self.scanned.max(self.taken);
            self.handed_out(journal);
        }
        Ok(Some((at, bytes)))
    }

    fn handed_out(&mut self, journal: &Journal) {
        if let Err(error) = journal.set_delivered(self.taken) {
            tracing::warn!(%error, "the next daemon may repeat a line");
        }
        self.forget(journal);
    }

    fn forget(&self, journal: &Journal) {
        let mut start = self.window.start(self.taken);
        if self.taking == Taking::Bytes {
            start = start.min(self.acknowledged.unwrap_or(self.bytes_at));
        }
        journal.forget_before(start);
    }

    fn room(&mut self, journal: &Journal) -> io::Result<u64> {
        let kept = journal.end().saturating_sub(self.taken);
        if kept < KEPT_BYTES {
            return Ok(KEPT_BYTES - kept);
        }
        let long_line = self.taking == Taking::Lines
            && kept < LONGEST_LINE
            && self.line_end(journal)?.is_none();
        Ok(if long_line { LONGEST_LINE - kept } else { 0 })
    }
}

/// What the reader of the pipe may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Read at most so many bytes.
    Some(usize),
    /// Wait for [`Outlet::room_changed`].
    None,
    /// Nobody will ever take it.
    Abandoned,
}

pub(super) struct Outlet {
    journal: Arc<Journal>,
    state: Mutex<State>,
    /// For the one attachment: bytes, or the end.
    news: Notify,
    /// For the one reader of the pipe: something was taken, or nobody will take it.
    room: Notify,
}

impl Outlet {
    pub(super) fn new(journal: Arc<Journal>, limits: ReplayLimits) -> Self {
        let taken = journal.delivered();
        let mut window = Window::new(limits);
        // What an earlier daemon handed out counts too.
        let handed_out = index(taken.saturating_sub(journal.start()));
        match journal.read(journal.start(), handed_out) {
            Ok(bytes) => window.passed(journal.start(), &bytes),
            Err(error) => tracing::warn!(%error, "old output could not be read"),
        }
        Self {
            journal,
            state: Mutex::new(State {
                taken,
                on_its_way: None,
                scanned: taken,
                ahead: Ahead::default(),
                window,
                taking: Taking::Nobody,
                bytes_at: taken,
                acknowledged: None,
                ended: false,
                abandoned: false,
            }),
            news: Notify::new(),
            room: Notify::new(),
        }
    }

    /// The journal has more.
    pub(super) fn grown(&self) {
        self.news.notify_one();
    }

    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.news.notify_one();
    }

    pub(super) fn room(&self) -> Room {
        let mut state = lock(&self.state);
        if state.abandoned && state.taking == Taking::Nobody {
            return Room::Abandoned;
        }
        match state.room(&self.journal) {
            Ok(0) => Room::None,
            Ok(bytes) => Room::Some(index(bytes)),
            Err(error) => {
                Self::broken(&error);
                Room::None
            }
        }
    }

    pub(super) async fn room_changed(&self) {
        self.room.notified().await;
    }

    /// The next line without its end, or `None` after the last. Cancel-safe: a line is taken in
    /// the same instant in which it is returned.
    pub(super) async fn next_line(&self) -> Option<Vec<u8>> {
        lock(&self.state).delivered(&self.journal);
        self.next(State::take_line).await
    }

    /// Bytes and where the first of them is, or `None` after the last. Cancel-safe, as above.
    pub(super) async fn next_bytes(&self, most: usize) -> Option<(u64, Vec<u8>)> {
        self.next(|state, journal| state.take_bytes(journal, most))
            .await
    }

    async fn next<T>(
        &self,
        mut take: impl FnMut(&mut State, &Journal) -> io::Result<Option<T>>,
    ) -> Option<T> {
        loop {
            {
                let mut state = lock(&self.state);
                match take(&mut state, &self.journal) {
                    Ok(Some(taken)) => {
                        drop(state);
                        self.room.notify_one();
                        return Some(taken);
                    }
                    Ok(None) => {}
                    Err(error) => {
                        Self::broken(&error);
                        return None;
                    }
                }
                let all_taken = match state.taking {
                    Taking::Bytes => state.bytes_at >= self.journal.end(),
                    Taking::Lines | Taking::Nobody => true,
                };
                if state.ended && all_taken {
                    return None;
                }
            }
            self.news.notified().await;
        }
    }

    fn broken(error: &io::Error) {
        tracing::error!(%error, "the output of a process cannot be read back");
    }

    /// The last line was not delivered: it is the next one to come out.
    pub(super) fn put_back(&self) {
        let mut state = lock(&self.state);
        if let Some(line) = state.on_its_way.take() {
            state.taken = line;
            state.scanned = line;
            drop(state);
            self.news.notify_one();
        }
    }

    pub(super) fn has_undelivered(&self) -> bool {
        let state = lock(&self.state);
        !state.ended || state.taken < self.journal.end()
    }

    /// Where an attachment would begin.
    pub(super) fn find(&self, since: Since) -> Result<u64, SessionError> {
        since.within(&self.journal, lock(&self.state).taken)
    }

    pub(super) fn attach_for_lines(&self) {
        lock(&self.state).taking = Taking::Lines;
        self.room.notify_one();
    }

    pub(super) fn attach_for_bytes(&self, since: Since) -> Result<u64, SessionError> {
        let mut state = lock(&self.state);
        let at = since.within(&self.journal, state.taken)?;
        state.taking = Taking::Bytes;
        state.bytes_at = at;
        state.acknowledged = None;
        Ok(at)
    }

    pub(super) fn acknowledge(&self, offset: u64) {
        let mut state = lock(&self.state);
        let offset = offset.min(state.bytes_at);
        state.acknowledged = Some(offset.max(state.acknowledged.unwrap_or(0)));
        state.forget(&self.journal);
        drop(state);
        self.news.notify_one();
    }

    pub(super) fn detach(&self) {
        let mut state = lock(&self.state);
        state.delivered(&self.journal);
        state.taking = Taking::Nobody;
        drop(state);
        self.room.notify_one();
    }

    pub(super) fn abandon(&self) {
        lock(&self.state).abandoned = true;
        self.room.notify_one();
    }
}

#[cfg(test)]
mod tests;
