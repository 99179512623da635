//! The one thread that touches the database.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::OpenError;
use crate::store::{Start, Store};

/// Between two attempts to write what could not be written.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) enum Message {
    Job(Box<dyn FnOnce(&mut Store) + Send>),
    /// Answered when nothing of the database is open any more.
    Close(oneshot::Sender<()>),
}

/// Not bounded by the channel, but by whoever sends: a session waits for its own row.
pub(crate) fn spawn(
    open: impl FnOnce() -> Result<Start, OpenError> + Send + 'static,
    opened: oneshot::Sender<Result<(Sender<Message>, Beginning), OpenError>>,
) -> io::Result<()> {
    let work = move || match open() {
        Ok(start) => {
            let (sender, messages) = channel();
            let beginning = Beginning {
                opened: start.opened,
                ends: start.ends,
                next_incarnation: start.next_incarnation,
            };
            // Whoever asked may have left; then the channel is closed, and so is the ledger.
            if opened.send(Ok((sender, beginning))).is_ok() {
                run(start.store, &messages);
            }
        }
        Err(error) => {
            let _ = opened.send(Err(error));
        }
    };
    let thread = std::thread::Builder::new().name("ledger".to_owned());
    thread.spawn(work).map(drop)
}

/// What the front needs of a start.
pub(crate) struct Beginning {
    pub(crate) opened: crate::Opened,
    pub(crate) ends: Vec<crate::End>,
    pub(crate) next_incarnation: u64,
}

fn run(mut store: Store, messages: &Receiver<Message>) {
    let closed = loop {
        match next(&store, messages) {
            Ok(Message::Job(job)) => job(&mut store),
            Ok(Message::Close(closed)) => break Some(closed),
            // What stands in the way was said when it began.
            Err(RecvTimeoutError::Timeout) => drop(store.catch_up()),
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    if let Err(error) = store.catch_up() {
        tracing::warn!(%error, "the ledger was closed before everything was written; the next start puts it right");
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
