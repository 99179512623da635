//! The public interface of the ledger.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boxwood_api::SessionId;
use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::store::{MAX_ENDED, Note, Store};
use crate::thread::{self, Message};
use crate::{End, LedgerError, OpenError, Opened, Row};

/// Clones share one database, which is closed when the last of them is dropped.
#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

struct Inner {
    next_incarnation: AtomicU64,
    /// Oldest first.
    ended: Mutex<VecDeque<End>>,
    /// `None`: nothing is written anywhere.
    messages: Option<Sender<Message>>,
}

impl Ledger {
    /// Opens the ledger at `path`. Creates a missing one, and replaces an unreadable one.
    pub async fn open(path: &Path) -> Result<(Self, Opened), OpenError> {
        let (sender, opened) = oneshot::channel();
        thread::spawn(path.to_owned(), sender).map_err(|source| OpenError::Thread { source })?;
        let (messages, contents) = opened.await.map_err(|_| OpenError::Thread {
            source: std::io::Error::other("it ended while it opened the ledger"),
        })??;
        let ledger = Self::new(contents.next_incarnation, Some(messages));
        let ends = contents.ends.into_iter();
        ends.for_each(|end| ledger.add_ended(end));
        Ok((ledger, contents.opened))
    }

    /// A ledger without a file, for boxes that end with this process.
    pub fn in_memory() -> Self {
        Self::new(1, None)
    }

    fn new(next_incarnation: u64, messages: Option<Sender<Message>>) -> Self {
        Self(Arc::new(Inner {
            next_incarnation: AtomicU64::new(next_incarnation),
            ended: Mutex::default(),
            messages,
        }))
    }

    /// A number that no session had before. It is written with the first box that has it.
    pub fn next_incarnation(&self) -> u64 {
        self.0.next_incarnation.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns true if the number was assigned before.
    pub fn has_assigned(&self, incarnation: u64) -> bool {
        incarnation < self.0.next_incarnation.load(Ordering::Relaxed)
    }

    /// Adds a box before it starts. After an error it must not start. A second call for the same incarnation replaces
    /// the row.
    pub async fn insert(&self, row: Row) -> Result<(), LedgerError> {
        self.try_run(move |store| store.insert(&row)).await
    }

    /// Adds a running box that this daemon has adopted, or replaces its row.
    pub fn restore(&self, row: Row) {
        let next = row.incarnation.saturating_add(1);
        self.0.next_incarnation.fetch_max(next, Ordering::Relaxed);
        self.note(Note::Restored(row));
    }

    /// Marks a box as ready, before its client gets a response: if the box dies with the daemon, the next daemon can
    /// report it. Never fails: the change is written later if necessary.
    pub async fn ready(&self, incarnation: u64) {
        // Fails only without a thread: in memory, after `close`, or after a panic.
        let _ = self
            .run(move |store| store.note(Note::Ready(incarnation)))
            .await;
    }

    /// The box failed to start.
    pub fn forget(&self, incarnation: u64) {
        self.note(Note::Forgotten(incarnation));
    }

    /// Records the end of a session. Never fails: the change is written later if necessary, and visible at once.
    pub async fn end(&self, session: &SessionId, incarnation: u64, why: &str) {
        let end = End {
            session: session.clone(),
            incarnation,
            why: why.to_owned(),
            at: Timestamp::now(),
        };
        self.add_ended(end.clone());
        // Fails only without a thread: in memory, after `close`, or after a panic.
        let _ = self.run(move |store| store.note(Note::Ended(end))).await;
    }

    /// All boxes, ordered by incarnation.
    pub async fn rows(&self) -> Result<Vec<Row>, LedgerError> {
        self.try_run(Store::rows).await
    }

    /// The end of this incarnation.
    pub fn end_of(&self, session: &SessionId, incarnation: u64) -> Option<End> {
        let ended = self.ended_sessions();
        let is_same = |end: &&End| end.incarnation == incarnation && end.session == *session;
        ended.iter().rev().find(is_same).cloned()
    }

    /// Returns when the file is closed. Later changes are lost.
    pub async fn close(&self) {
        let (closed, waiting) = oneshot::channel();
        self.send(Message::Close(closed));
        // Without a thread there is nothing to close.
        let _ = waiting.await;
    }

    fn note(&self, note: Note) {
        self.send(Message::Job(Box::new(move |store| store.note(note))));
    }

    /// Without a thread the result is empty.
    async fn try_run<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        match self.run(work).await {
            Some(outcome) => outcome,
            None if self.0.messages.is_some() => Err(LedgerError::Closed),
            None => Ok(T::default()),
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> T + Send + 'static,
    ) -> Option<T> {
        let (response_sender, response) = oneshot::channel();
        self.send(Message::Job(Box::new(move |store| {
            // The caller may have been cancelled.
            let _ = response_sender.send(work(store));
        })));
        response.await.ok()
    }

    fn send(&self, message: Message) {
        if let Some(messages) = &self.0.messages {
            // A closed channel is detected by the missing response.
            let _ = messages.send(message);
        }
    }

    fn add_ended(&self, end: End) {
        let mut ended = self.ended_sessions();
        ended.push_back(end);
        if ended.len() > MAX_ENDED {
            ended.pop_front();
        }
    }

    fn ended_sessions(&self) -> MutexGuard<'_, VecDeque<End>> {
        self.0.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
