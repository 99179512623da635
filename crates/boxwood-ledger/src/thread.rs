//! The thread that owns the database.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use boxwood_api::with_causes;
use tokio::sync::oneshot;

use crate::OpenError;
use crate::store::{Contents, Store};

/// Interval between attempts to write deferred changes.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) enum Message {
    Job(Box<dyn FnOnce(&mut Store) + Send>),
    /// Answered when the database is closed.
    Close(oneshot::Sender<()>),
}

/// The channel is unbounded. It stays short, because a session waits until its own row is written.
pub(crate) fn spawn(
    path: PathBuf,
    opened: oneshot::Sender<Result<(Sender<Message>, Contents), OpenError>>,
) -> io::Result<()> {
    let work = move || match Store::open(&path) {
        Ok((store, contents)) => {
            let (sender, messages) = channel();
            // If the caller was cancelled, the ledger is closed again.
            if opened.send(Ok((sender, contents))).is_ok() {
                run(store, &messages);
            }
        }
        Err(error) => {
            let _ = opened.send(Err(error));
        }
    };
    let thread = std::thread::Builder::new().name("ledger".to_owned());
    thread.spawn(work).map(drop)
}

fn run(mut store: Store, messages: &Receiver<Message>) {
    let closed = loop {
        match next(&store, messages) {
            Ok(Message::Job(job)) => job(&mut store),
            Ok(Message::Close(closed)) => break Some(closed),
            // The error was logged when it occurred first.
            Err(RecvTimeoutError::Timeout) => drop(store.catch_up()),
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    if let Err(error) = store.catch_up() {
        tracing::warn!(error = %with_causes(&error), "the ledger was closed before all changes were written; the next daemon corrects it from the boxes that are running");
    }
    drop(store);
    if let Some(closed) = closed {
        let _ = closed.send(());
    }
}

fn next(store: &Store, messages: &Receiver<Message>) -> Result<Message, RecvTimeoutError> {
    if store.is_behind() {
        return messages.recv_timeout(RETRY);
    }
    messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
}
