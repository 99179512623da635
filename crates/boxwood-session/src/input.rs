//! A program's standard input, on its way.
//!
//! Comes in: messages of whoever may write. Goes out: their bytes to the program, in order, each
//! exactly once. A message is accepted when it is in the journal as a whole; from then on it reaches the
//! program even when its sender, or the daemon, is gone. Never here: who may write.

use std::sync::{Arc, Mutex};
use std::{future::poll_fn, pin::Pin};

use boxwood_backend::Input;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Notify, watch};

use crate::activity::lock;
use crate::journal::Journal;

/// Accepted and not yet taken by the program; beyond it the sender waits.
const AHEAD_BYTES: u64 = 1024 * 1024;
/// One move to the pipe.
const MOVE_BYTES: u64 = 64 * 1024;
/// The most that a pipe holds. It holds pages of the journal itself, and where those are large ones a
/// part that is given back is wiped at once.
const PIPE_BYTES: u64 = 1024 * 1024;

type Writer = Box<dyn Input>;

/// The program takes no more input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Closed;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Door {
    Open,
    /// What was accepted still goes in, nothing else does.
    Finishing,
    /// At once, whatever is left.
    Shut,
    /// Nobody writes to the program any more.
    Closed,
}

struct Shared {
    journal: Journal,
    /// One message after the other.
    accepting: Mutex<()>,
    /// Wakes the feeder.
    appended: Notify,
    door: watch::Sender<Door>,
    /// Bytes written to the program. Not together with the door: the feeder would wake itself.
    fed: watch::Sender<u64>,
}

impl Shared {
    /// The door only ever closes.
    fn close_to(&self, door: Door) {
        self.door.send_if_modified(|now| {
            let closes = *now < door;
            if closes {
                *now = door;
            }
            closes
        });
    }

    fn has_room(&self) -> bool {
        self.journal.undelivered() < AHEAD_BYTES
    }

    fn accept_now(&self, bytes: &[u8]) -> Result<u64, Closed> {
        let _one_at_a_time = lock(&self.accepting);
        if *self.door.borrow() != Door::Open {
            return Err(Closed);
        }
        let end = self.journal.append(bytes).map_err(|error| {
            tracing::error!(%error, "input could not be kept for a program");
            Closed
        })?;
        self.appended.notify_one();
        Ok(end)
    }
}

/// The way in. Dropped, the input is closed at once.
pub(crate) struct Stdin(Arc<Shared>);

/// Carries what is accepted to the program, for as long as it is polled. Dropped, the program's input
/// ends.
pub(crate) struct Feeder {
    shared: Arc<Shared>,
    writer: Option<Writer>,
}

/// Both halves of one program's input. The journal may have bytes that an earlier daemon accepted.
pub(crate) fn begin(writer: Option<Writer>, journal: Journal) -> (Stdin, Feeder) {
    let door = match &writer {
        None => Door::Closed,
        Some(_) if journal.is_sealed() => Door::Finishing,
        Some(_) => Door::Open,
    };
    let fed = journal.delivered();
    let shared = Arc::new(Shared {
        journal,
        accepting: Mutex::default(),
        appended: Notify::new(),
        door: watch::Sender::new(door),
        fed: watch::Sender::new(fed),
    });
    let feeder = Feeder {
        shared: Arc::clone(&shared),
        writer,
    };
    (Stdin(shared), feeder)
}

impl Stdin {
    /// Returns when the message is safe, with how many bytes have been accepted by then. Waits while
    /// too much is ahead of it. Cancel-safe: all of it was accepted, or nothing.
    pub(crate) async fn accept(&self, bytes: &[u8]) -> Result<u64, Closed> {
        if !self.0.has_room() {
            // The senders are part of `self`, so neither channel can close meanwhile.
            let (mut door, mut fed) = (self.0.door.subscribe(), self.0.fed.subscribe());
            tokio::select! {
                _ = door.wait_for(|now| *now != Door::Open) => {}
                _ = fed.wait_for(|_| self.0.has_room()) => {}
            }
        }
        self.0.accept_now(bytes)
    }

    /// Returns when the program has the message too. Dropped half-way, the rest of what was accepted
    /// goes in all the same.
    pub(crate) async fn send(&self, bytes: &[u8]) -> Result<u64, Closed> {
        let end = self.accept(bytes).await?;
        let (mut door, mut fed) = (self.0.door.subscribe(), self.0.fed.subscribe());
        tokio::select! {
            biased;
            _ = fed.wait_for(|fed| *fed >= end) => Ok(end),
            _ = door.wait_for(|now| *now >= Door::Shut) => Err(Closed),
        }
    }

    /// All bytes that were ever accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.0.journal.end()
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.0.door.borrow() == Door::Open
    }

    /// Accepts nothing more; the input ends after what was accepted, whichever daemon is there then.
    pub(crate) fn finish(&self) {
        let _one_at_a_time = lock(&self.0.accepting);
        if self.is_open() {
            if let Err(error) = self.0.journal.seal() {
                tracing::warn!(%error, "the next daemon will not know that an input is over");
            }
            self.0.close_to(Door::Finishing);
        }
    }

    /// Ends the input at once, also in the middle of a message.
    pub(crate) fn shut(&self) {
        self.0.close_to(Door::Shut);
    }

    /// As [`Stdin::shut`]. Returns when it is over.
    pub(crate) async fn close(&self) {
        self.shut();
        let mut door = self.0.door.subscribe();
        let _ = door.wait_for(|now| *now == Door::Closed).await;
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.shut();
    }
}

impl Feeder {
    /// Ends when the input is over.
    pub(crate) async fn run(mut self) {
        let Some(mut writer) = self.writer.take() else {
            return;
        };
        let mut door = self.shared.door.subscribe();
        let over = async {
            let _ = door.wait_for(|now| *now >= Door::Shut).await;
        };
        tokio::select! {
            biased;
            () = over => {}
            () = feed(&self.shared, &mut writer) => {}
        }
        // Before the door is said to be closed.
        drop(writer);
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.writer = None;
        self.shared.close_to(Door::Closed);
    }
}

async fn feed(shared: &Shared, writer: &mut Writer) {
    let journal = &shared.journal;
    let mut door = shared.door.subscribe();
    journal.handed_out();
    loop {
        let fed = journal.delivered();
        journal.forget_before(fed.saturating_sub(PIPE_BYTES));
        shared
            .fed
            .send_if_modified(|now| std::mem::replace(now, fed) != fed);
        let is_open = *door.borrow_and_update() == Door::Open;
        let ahead = journal.undelivered().min(MOVE_BYTES);
        if ahead == 0 {
            if !is_open {
                // Flushes what a writer may hold back; dropping it is the end of file.
                let _ = writer.shutdown().await;
                return;
            }
            tokio::select! {
                () = shared.appended.notified() => {}
                changed = door.changed() => if changed.is_err() {
                    return;
                },
            }
            continue;
        }
        // Never more than was accepted: behind it there may be the rest of a torn write.
        let most = usize::try_from(ahead).unwrap_or(usize::MAX);
        let moved =
            poll_fn(|context| Pin::new(&mut **writer).poll_feed(context, journal.reader(), most));
        let moved = moved.await;
        journal.handed_out();
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

    fn begun(room: usize) -> (Stdin, Feeder, DuplexStream) {
        let (writer, reader) = tokio::io::duplex(room);
        let journal = Journal::new("stdin").expect("a journal");
        let (stdin, feeder) = begin(Some(Box::new(Copied(writer))), journal);
        (stdin, feeder, reader)
    }

    #[tokio::test]
    async fn a_message_left_half_written_is_finished_before_the_next() {
        let (stdin, feeder, mut reader) = begun(4);
        tokio::spawn(feeder.run());
        {
            let send = std::pin::pin!(stdin.send(b"0123456789\n"));
            assert!(futures_util::poll!(send).is_pending());
        }
        let mut got = vec![0; 16];
        let (sent, read) = tokio::join!(stdin.send(b"next\n"), reader.read_exact(&mut got));
        assert_eq!(sent, Ok(16));
        read.expect("sixteen bytes");
        assert_eq!(got, b"0123456789\nnext\n");
    }

    #[tokio::test]
    async fn closing_interrupts_a_write_that_waits() {
        let (stdin, feeder, mut reader) = begun(4);
        tokio::spawn(feeder.run());
        let (sent, ()) = tokio::join!(stdin.send(b"0123456789\n"), stdin.close());
        assert_eq!(sent, Err(Closed));
        let mut got = Vec::new();
        reader.read_to_end(&mut got).await.expect("an end");
        assert!(got.len() <= 4);
        assert_eq!(stdin.send(b"x").await, Err(Closed));
    }

    #[tokio::test]
    async fn the_input_ends_after_what_was_accepted() {
        let (stdin, feeder, mut reader) = begun(4);
        tokio::spawn(feeder.run());
        assert_eq!(stdin.accept(b"0123456789").await, Ok(10));
        stdin.finish();
        assert_eq!(stdin.accept(b"late").await, Err(Closed));
        let mut got = Vec::new();
        reader.read_to_end(&mut got).await.expect("an end");
        assert_eq!(got, b"0123456789");
    }

    #[tokio::test]
    async fn a_sender_waits_when_too_much_is_ahead() {
        let (stdin, feeder, mut reader) = begun(64 * 1024);
        let most = usize::try_from(AHEAD_BYTES).expect("small");
        assert!(stdin.accept(&vec![b'x'; most]).await.is_ok());
        {
            let accept = std::pin::pin!(stdin.accept(b"more"));
            assert!(futures_util::poll!(accept).is_pending());
        }
        assert_eq!(stdin.accepted(), AHEAD_BYTES, "nothing of it was accepted");
        tokio::spawn(feeder.run());
        let mut got = vec![0; most + 4];
        let (accepted, read) = tokio::join!(stdin.accept(b"more"), reader.read_exact(&mut got));
        assert_eq!(accepted, Ok(AHEAD_BYTES + 4));
        read.expect("all of it");
        assert!(got.ends_with(b"xmore"));
    }

    /// The daemon is killed while half a message is in the pipe, with the rest of a torn write behind.
    #[tokio::test]
    async fn the_next_daemon_hands_on_what_was_accepted_and_nothing_twice() {
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
        let mut got = vec![0; fed];
        pipe_reader
            .read_exact(&mut got)
            .await
            .expect("the first part");
        let (writer, mut reader) = tokio::io::duplex(1024);
        next.seal().expect("closed by its client");
        next = adopted(&next);
        let (again, feeder) = begin(Some(Box::new(Copied(writer))), next);
        assert!(!again.is_open());
        tokio::spawn(feeder.run());
        reader.read_to_end(&mut got).await.expect("the rest");
        assert!(got == message);
    }

    fn adopted(journal: &Journal) -> Journal {
        let [writer, reader] = journal
            .files()
            .map(|file| file.try_clone().expect("a duplicate"));
        Journal::from_files(writer, reader).expect("a journal")
    }
}
