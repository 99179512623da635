//! The standard input of a program.
//!
//! A message is accepted when it is completely in the journal. From then on it is written to the program
//! exactly once, even if its sender has disconnected or the daemon is restarted.

use std::sync::{Arc, Mutex};
use std::{future::poll_fn, pin::Pin};

use boxwood_backend::Input;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Notify, watch};

use super::journal::Journal;
use crate::session::activity::lock;

/// Accepted and not yet written to the program; beyond it the sender waits.
const AHEAD_BYTES: u64 = 1024 * 1024;
/// Maximum of one move to the pipe.
const MOVE_BYTES: u64 = 64 * 1024;
/// Maximum size of a pipe. The pipe refers to pages of the journal, which must not be freed before the
/// program has read them.
const PIPE_BYTES: u64 = 1024 * 1024;

type Writer = Box<dyn Input>;

/// The program takes no more input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Closed;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum InputState {
    Open,
    /// Accepted bytes are still written.
    Finishing,
    /// Closed at once, with accepted bytes left.
    Shut,
    /// The pipe is closed.
    Closed,
}

struct Shared {
    journal: Journal,
    /// Held while a message is appended.
    accepting: Mutex<()>,
    /// Wakes the feeder.
    appended: Notify,
    state: watch::Sender<InputState>,
    /// Bytes written to the program. Separate from `state`, because the feeder waits for `state`.
    fed: watch::Sender<u64>,
}

impl Shared {
    /// States only advance.
    fn advance(&self, state: InputState) {
        self.state.send_if_modified(|current| {
            let later = state.max(*current);
            std::mem::replace(current, later) != later
        });
    }

    fn has_room(&self) -> bool {
        self.journal.undelivered() < AHEAD_BYTES
    }

    fn accept_now(&self, bytes: &[u8]) -> Result<u64, Closed> {
        let _one_at_a_time = lock(&self.accepting);
        if *self.state.borrow() != InputState::Open {
            return Err(Closed);
        }
        let end = self.journal.append(bytes).map_err(|error| {
            tracing::error!(%error, "failed to write input of a program to its journal");
            Closed
        })?;
        self.appended.notify_one();
        Ok(end)
    }
}

/// Accepts input. Dropping it closes the input at once.
pub(crate) struct Stdin(Arc<Shared>);

/// Writes accepted input to the program. Dropping it closes the input.
pub(crate) struct Feeder {
    shared: Arc<Shared>,
    writer: Option<Writer>,
}

/// The journal may have bytes that an earlier daemon accepted.
pub(crate) fn begin(writer: Option<Writer>, journal: Journal) -> (Stdin, Feeder) {
    let feeder = feed(writer, journal);
    (Stdin(Arc::clone(&feeder.shared)), feeder)
}

/// Feeds a journal that is complete.
pub(crate) fn feed(writer: Option<Writer>, journal: Journal) -> Feeder {
    let state = match &writer {
        None => InputState::Closed,
        Some(_) if journal.is_sealed() => InputState::Finishing,
        Some(_) => InputState::Open,
    };
    let fed = journal.delivered();
    let shared = Arc::new(Shared {
        journal,
        accepting: Mutex::default(),
        appended: Notify::new(),
        state: watch::Sender::new(state),
        fed: watch::Sender::new(fed),
    });
    Feeder { shared, writer }
}

impl Stdin {
    /// Returns when the message is accepted, with the number of all accepted bytes. Waits while too many
    /// bytes are on their way. Cancel-safe: all of it is accepted, or nothing.
    pub(crate) async fn accept(&self, bytes: &[u8]) -> Result<u64, Closed> {
        if !self.0.has_room() {
            // The senders are part of `self`, so the channels cannot close.
            let (mut state, mut fed) = (self.0.state.subscribe(), self.0.fed.subscribe());
            tokio::select! {
                _ = state.wait_for(|current| *current != InputState::Open) => {}
                _ = fed.wait_for(|_| self.0.has_room()) => {}
            }
        }
        self.0.accept_now(bytes)
    }

    /// Returns when the message is written to the program. If dropped, accepted bytes are still written.
    pub(crate) async fn send(&self, bytes: &[u8]) -> Result<u64, Closed> {
        let end = self.accept(bytes).await?;
        let (mut state, mut fed) = (self.0.state.subscribe(), self.0.fed.subscribe());
        tokio::select! {
            biased;
            _ = fed.wait_for(|fed| *fed >= end) => Ok(end),
            _ = state.wait_for(|current| *current >= InputState::Shut) => Err(Closed),
        }
    }

    /// Returns the number of all accepted bytes.
    pub(crate) fn accepted(&self) -> u64 {
        self.0.journal.end()
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.0.state.borrow() == InputState::Open
    }

    /// Closes the input after the accepted bytes, also after a restart of the daemon.
    pub(crate) fn finish(&self) {
        let _one_at_a_time = lock(&self.0.accepting);
        if self.is_open() {
            if let Err(error) = self.0.journal.seal() {
                tracing::warn!(%error, "failed to seal the input of a program; it will be open again after a restart");
            }
            self.0.advance(InputState::Finishing);
        }
    }

    /// Closes the input at once, also within a message.
    pub(crate) fn shut(&self) {
        self.0.advance(InputState::Shut);
    }

    /// As [`Stdin::shut`]. Returns when the pipe is closed.
    pub(crate) async fn close(&self) {
        self.shut();
        let mut state = self.0.state.subscribe();
        let _ = state
            .wait_for(|current| *current == InputState::Closed)
            .await;
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.shut();
    }
}

impl Feeder {
    /// Returns when the input is closed.
    pub(crate) async fn run(mut self) {
        let Some(mut writer) = self.writer.take() else {
            return;
        };
        let mut state = self.shared.state.subscribe();
        let shut = async {
            let _ = state.wait_for(|current| *current >= InputState::Shut).await;
        };
        tokio::select! {
            biased;
            () = shut => {}
            () = write_accepted(&self.shared, &mut writer) => {}
        }
        // Before the state becomes `Closed`.
        drop(writer);
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.writer = None;
        self.shared.advance(InputState::Closed);
    }
}

async fn write_accepted(shared: &Shared, writer: &mut Writer) {
    let journal = &shared.journal;
    let mut state = shared.state.subscribe();
    journal.update_delivered();
    loop {
        let fed = journal.delivered();
        journal.forget_before(fed.saturating_sub(PIPE_BYTES));
        shared
            .fed
            .send_if_modified(|current| std::mem::replace(current, fed) != fed);
        let is_open = *state.borrow_and_update() == InputState::Open;
        let ahead = journal.undelivered().min(MOVE_BYTES);
        if ahead == 0 {
            if !is_open {
                // Flushes buffered bytes; dropping the writer is the end of file.
                let _ = writer.shutdown().await;
                return;
            }
            tokio::select! {
                () = shared.appended.notified() => {}
                changed = state.changed() => if changed.is_err() {
                    return;
                },
            }
            continue;
        }
        // Not more than was accepted: an incomplete write may follow.
        let max_bytes = usize::try_from(ahead).unwrap_or(usize::MAX);
        let moved = poll_fn(|context| {
            Pin::new(&mut **writer).poll_feed(context, journal.reader(), max_bytes)
        });
        let moved = moved.await;
        journal.update_delivered();
        if !matches!(moved, Ok(1..)) {
            return;
        }
        tokio::task::coop::consume_budget().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use boxwood_backend::Copied;
    use tokio::io::{AsyncReadExt as _, DuplexStream};

    use super::*;

    fn begin_with(room: usize) -> (Stdin, Feeder, DuplexStream) {
        let (writer, reader) = tokio::io::duplex(room);
        let journal = Journal::new("stdin").expect("a journal");
        let (stdin, feeder) = begin(Some(Box::new(Copied(writer))), journal);
        (stdin, feeder, reader)
    }

    #[tokio::test]
    async fn a_partly_written_message_is_finished_before_the_next() {
        let (stdin, feeder, mut reader) = begin_with(4);
        tokio::spawn(feeder.run());
        {
            let send = std::pin::pin!(stdin.send(b"0123456789\n"));
            assert!(futures_util::poll!(send).is_pending());
        }
        let mut received = vec![0; 16];
        let (sent, read) = tokio::join!(stdin.send(b"next\n"), reader.read_exact(&mut received));
        assert_eq!(sent, Ok(16));
        read.expect("sixteen bytes");
        assert_eq!(received, b"0123456789\nnext\n");
    }

    #[tokio::test]
    async fn closing_interrupts_a_write_that_waits() {
        let (stdin, feeder, mut reader) = begin_with(4);
        tokio::spawn(feeder.run());
        let (sent, ()) = tokio::join!(stdin.send(b"0123456789\n"), stdin.close());
        assert_eq!(sent, Err(Closed));
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.expect("an end");
        assert!(received.len() <= 4);
        assert_eq!(stdin.send(b"x").await, Err(Closed));
    }

    #[tokio::test]
    async fn the_input_ends_after_the_accepted_bytes() {
        let (stdin, feeder, mut reader) = begin_with(4);
        tokio::spawn(feeder.run());
        assert_eq!(stdin.accept(b"0123456789").await, Ok(10));
        stdin.finish();
        assert_eq!(stdin.accept(b"late").await, Err(Closed));
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.expect("an end");
        assert_eq!(received, b"0123456789");
    }

    #[tokio::test]
    async fn a_sender_waits_while_too_many_bytes_are_on_their_way() {
        let (stdin, feeder, mut reader) = begin_with(64 * 1024);
        let max_bytes = usize::try_from(AHEAD_BYTES).expect("small");
        assert!(stdin.accept(&vec![b'x'; max_bytes]).await.is_ok());
        {
            let accept = std::pin::pin!(stdin.accept(b"more"));
            assert!(futures_util::poll!(accept).is_pending());
        }
        assert_eq!(stdin.accepted(), AHEAD_BYTES, "nothing of it was accepted");
        tokio::spawn(feeder.run());
        let mut received = vec![0; max_bytes + 4];
        let (accepted, read) =
            tokio::join!(stdin.accept(b"more"), reader.read_exact(&mut received));
        assert_eq!(accepted, Ok(AHEAD_BYTES + 4));
        read.expect("all of it");
        assert!(received.ends_with(b"xmore"));
    }

    /// The daemon is killed while a part of a message is in the pipe and an incomplete write follows it.
    #[tokio::test]
    async fn the_next_daemon_writes_accepted_bytes_exactly_once() {
        let (pipe_reader, pipe_writer) = tokio::net::unix::pipe::pipe().map_or_else(
            |error| panic!("a pipe: {error}"),
            |(writer, reader)| (reader, writer),
        );
        let journal = Journal::new("stdin").expect("a journal");
        let files = journal
            .files()
            .map(|file| file.try_clone().expect("a duplicate"));
        let message: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let (stdin, feeder) = begin(Some(Box::new(Copied(pipe_writer))), journal);
        assert!(stdin.accept(&message).await.is_ok());
        let mut feeding = Box::pin(feeder.run());
        let while_it_is_full = tokio::time::timeout(Duration::from_millis(200), feeding.as_mut());
        assert!(while_it_is_full.await.is_err(), "the pipe is full");
        let [writer, reader] = files;
        rustix::io::pwrite(&writer, b"torn", message.len() as u64).expect("written");
        let mut next = Journal::from_files(writer, reader).expect("a journal");
        assert_eq!(next.end(), message.len() as u64);
        let fed = usize::try_from(next.delivered()).expect("small");
        assert!(fed > 0 && fed < message.len());
        // What is in the pipe stays there; the rest comes through another writer.
        let mut pipe_reader = pipe_reader;
        let mut received = vec![0; fed];
        pipe_reader
            .read_exact(&mut received)
            .await
            .expect("the first part");
        let (writer, mut reader) = tokio::io::duplex(1024);
        next.seal().expect("closed by its client");
        next = adopted(&next);
        let (stdin, feeder) = begin(Some(Box::new(Copied(writer))), next);
        assert!(!stdin.is_open());
        tokio::spawn(feeder.run());
        reader.read_to_end(&mut received).await.expect("the rest");
        assert!(received == message);
    }

    fn adopted(journal: &Journal) -> Journal {
        let [writer, reader] = journal
            .files()
            .map(|file| file.try_clone().expect("a duplicate"));
        Journal::from_files(writer, reader).expect("a journal")
    }
}
