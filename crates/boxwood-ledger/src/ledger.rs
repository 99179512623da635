//! The ledger as everybody else sees it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boxwood_api::SessionId;
use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::book::Book;
use crate::store::{Note, Store};
use crate::thread::{self, Message};
use crate::{End, Lease, LedgerError, OpenError, Opened, Row};

/// Clones are the same ledger. The database closes with the last of them.
#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

struct Inner {
    next_incarnation: AtomicU64,
    book: Mutex<Book>,
    /// `None`: nothing is written anywhere.
    messages: Option<Sender<Message>>,
}

impl Ledger {
    /// Opens what is at `path`, makes it when there is nothing, and moves it out of the way when it
    /// cannot be read.
    pub async fn open(path: &Path) -> Result<(Self, Opened), OpenError> {
        let (answer, opened) = oneshot::channel();
        let place: PathBuf = path.to_owned();
        thread::spawn(move || Store::open(&place), answer)
            .map_err(|source| OpenError::Thread { source })?;
        let (messages, beginning) = opened.await.map_err(|_| OpenError::Thread {
            source: std::io::Error::other("it ended while it opened the ledger"),
        })??;
        let mut book = Book::default();
        beginning.ends.into_iter().for_each(|end| book.add(end));
        let ledger = Self::new(beginning.next_incarnation, book, Some(messages));
        Ok((ledger, beginning.opened))
    }

    /// For boxes that end with this process: numbers are given out and ends are remembered, but
    /// nothing is written.
    pub fn in_memory() -> Self {
        Self::new(1, Book::default(), None)
    }

    fn new(next_incarnation: u64, book: Book, messages: Option<Sender<Message>>) -> Self {
        Self(Arc::new(Inner {
            next_incarnation: AtomicU64::new(next_incarnation),
            book: Mutex::new(book),
            messages,
        }))
    }

    /// A number that no session had before. It is on disk as soon as a box of that number is, and
    /// nobody is told of it earlier.
    pub fn next_incarnation(&self) -> u64 {
        self.0.next_incarnation.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether such a number was ever given out.
    pub fn has_given_out(&self, incarnation: u64) -> bool {
        incarnation < self.0.next_incarnation.load(Ordering::Relaxed)
    }

    /// Writes down a box before it starts. On an error it must not start. A second time for the same
    /// incarnation takes the place of the first.
    pub async fn insert(&self, row: Row) -> Result<(), LedgerError> {
        match self.ask(move |store| store.insert(&row)).await {
            Some(written) => written,
            None if self.0.messages.is_some() => Err(LedgerError::Closed),
            None => Ok(()),
        }
    }

    /// Writes down a box that was found alive and that the ledger did not have.
    pub fn restore(&self, row: Row) {
        let next = row.incarnation.saturating_add(1);
        self.0.next_incarnation.fetch_max(next, Ordering::Relaxed);
        self.note(Note::Restored(row));
    }

    /// Somebody is about to be told of the box, and waits for this: should it die with the daemon,
    /// the next one can say so. Never an error: what cannot be written now is written later.
    pub async fn ready(&self, incarnation: u64) {
        // A thread that is gone has said why.
        let _ = self
            .ask(move |store| store.note(Note::Ready(incarnation)))
            .await;
    }

    pub fn update_spec(&self, incarnation: u64, spec: String) {
        self.note(Note::Spec(incarnation, spec));
    }

    /// The box was taken over.
    pub fn adopt(&self, incarnation: u64, lease: Lease) {
        self.note(Note::Leased(incarnation, lease));
    }

    /// The box came to nothing before anybody was told of it.
    pub fn forget(&self, incarnation: u64) {
        self.note(Note::Forgotten(incarnation));
    }

    /// The box is gone. Never an error: what cannot be written now is written later, and how the
    /// session ended is known at once.
    pub async fn end(&self, session: &SessionId, incarnation: u64, why: &str) {
        let end = End {
            session: session.clone(),
            incarnation,
            why: why.to_owned(),
            at: Timestamp::now(),
        };
        self.book().add(end.clone());
        // A thread that is gone has said why.
        let _ = self.ask(move |store| store.note(Note::Ended(end))).await;
    }

    /// Every box that is written down, in the order of incarnations.
    pub async fn rows(&self) -> Result<Vec<Row>, LedgerError> {
        match self.ask(Store::rows).await {
            Some(rows) => rows,
            None if self.0.messages.is_some() => Err(LedgerError::Closed),
            None => Ok(Vec::new()),
        }
    }

    /// How the last session of that name ended that did.
    pub fn ended(&self, session: &SessionId) -> Option<End> {
        self.book().of(session).cloned()
    }

    /// How that very session ended.
    pub fn end_of(&self, session: &SessionId, incarnation: u64) -> Option<End> {
        self.book().at(session, incarnation).cloned()
    }

    /// Returns when the file is closed. Whatever is written after that is not.
    pub async fn close(&self) {
        let (closed, waiting) = oneshot::channel();
        self.send(Message::Close(closed));
        // Without a thread there is nothing to close.
        let _ = waiting.await;
    }

    fn note(&self, note: Note) {
        self.send(Message::Job(Box::new(move |store| store.note(note))));
    }

    async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::Job(Box::new(move |store| {
            // Whoever asked may have left; the work is done all the same.
            let _ = answer.send(work(store));
        })));
        answered.await.ok()
    }

    fn send(&self, message: Message) {
        if let Some(messages) = &self.0.messages {
            // A closed channel shows in the answer that never comes.
            let _ = messages.send(message);
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Adding an end leaves nothing half changed.
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
