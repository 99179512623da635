//! A process's stdin, written by whoever is attached.
//!
//! A message, once begun, is finished before the next one: an attachment that goes away half-way
//! must not leave half a line in front of the next one's first.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Mutex, watch};

type Writer = Box<dyn boxwood_backend::Input>;

/// The process takes no more input.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Closed;

struct State {
    writer: Option<Writer>,
    /// Accepted and not yet written, from `written` on.
    pending: Vec<u8>,
    written: usize,
}

pub(super) struct Stdin {
    /// Held while a write waits for the process, which may be long; `closing` interrupts it.
    state: Mutex<State>,
    closing: watch::Sender<bool>,
    unfinished: AtomicBool,
}

impl Stdin {
    pub(super) fn new(writer: Option<Writer>) -> Self {
        Self {
            state: Mutex::new(State {
                writer,
                pending: Vec::new(),
                written: 0,
            }),
            closing: watch::Sender::new(false),
            unfinished: AtomicBool::new(false),
        }
    }

    /// Waits while the process does not read. Dropped half-way, the rest is kept and written
    /// before anything else.
    pub(super) async fn send(&self, bytes: &[u8]) -> Result<(), Closed> {
        self.interruptible(async {
            let mut state = self.state.lock().await;
            self.write_pending(&mut state).await?;
            state.pending.extend_from_slice(bytes);
            self.unfinished.store(true, Ordering::Release);
            self.write_pending(&mut state).await
        })
        .await
    }

    /// Whether a message was left half written.
    pub(super) fn is_unfinished(&self) -> bool {
        self.unfinished.load(Ordering::Acquire)
    }

    pub(super) async fn finish_message(&self) -> Result<(), Closed> {
        self.interruptible(async {
            let mut state = self.state.lock().await;
            self.write_pending(&mut state).await
        })
        .await
    }

    pub(super) async fn close(&self) {
        self.closing.send_replace(true);
        self.state.lock().await.writer = None;
    }

    async fn interruptible(
        &self,
        work: impl Future<Output = Result<(), Closed>>,
    ) -> Result<(), Closed> {
        let mut closing = self.closing.subscribe();
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => Err(Closed),
            outcome = work => outcome,
        }
    }

    async fn write_pending(&self, state: &mut State) -> Result<(), Closed> {
        let Some(writer) = &mut state.writer else {
            return Err(Closed);
        };
        let outcome = async {
            while state.written < state.pending.len() {
                match writer.write(&state.pending[state.written..]).await {
                    Ok(count @ 1..) => state.written += count,
                    Ok(0) | Err(_) => return Err(Closed),
                }
            }
            writer.flush().await.map_err(|_| Closed)
        }
        .await;
        if outcome.is_err() {
            state.writer = None;
        }
        state.pending = Vec::new();
        state.written = 0;
        self.unfinished.store(false, Ordering::Release);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn a_message_left_half_written_is_finished_before_the_next() {
        let (writer, mut reader) = tokio::io::duplex(4);
        let stdin = Stdin::new(Some(Box::new(boxwood_backend::Copied(writer))));
        {
            let send = std::pin::pin!(stdin.send(b"0123456789\n"));
            assert!(futures_util::poll!(send).is_pending());
        }
        assert!(stdin.is_unfinished());
        let mut got = vec![0; 16];
        let (sent, read) = tokio::join!(stdin.send(b"next\n"), reader.read_exact(&mut got));
        assert_eq!(sent, Ok(()));
        read.expect("sixteen bytes");
        assert_eq!(got, b"0123456789\nnext\n");
        assert!(!stdin.is_unfinished());
    }

    #[tokio::test]
    async fn closing_interrupts_a_write_that_waits() {
        let (writer, mut reader) = tokio::io::duplex(4);
        let stdin = Stdin::new(Some(Box::new(boxwood_backend::Copied(writer))));
        let (sent, ()) = tokio::join!(stdin.send(b"0123456789\n"), stdin.close());
        assert_eq!(sent, Err(Closed));
        let mut got = Vec::new();
        reader.read_to_end(&mut got).await.expect("an end");
        assert!(got.len() <= 4);
        assert_eq!(stdin.send(b"x").await, Err(Closed));
    }
}
