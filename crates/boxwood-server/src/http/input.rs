//! Input on its way from a client to a program.
//!
//! Comes in: frames of bytes. Goes out: the same bytes to the program, and how many of them it has been
//! given. Whoever reads the frames does not wait for the program, up to a bound: a command that does not
//! read can still be signalled, and output can still be acknowledged.

use std::sync::Arc;

use boxwood_session::{Attachment, LiveInput, SessionError};
use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, watch};

use super::socket::Heard;

/// Input under way to a program that is slow to read; beyond it the client waits.
const ROOM_BYTES: usize = 1024 * 1024;

/// A program's stdin.
pub(super) trait Takes: Sync {
    /// Returns when the bytes are safe, with how many have been by then.
    fn accept(&self, bytes: &[u8]) -> impl Future<Output = Result<u64, SessionError>> + Send;
    /// The end of the input, after all that was accepted.
    fn close(&self);
}

impl Takes for Attachment {
    fn accept(&self, bytes: &[u8]) -> impl Future<Output = Result<u64, SessionError>> + Send {
        Attachment::accept(self, bytes)
    }

    fn close(&self) {
        self.close_stdin();
    }
}

impl Takes for LiveInput {
    fn accept(&self, bytes: &[u8]) -> impl Future<Output = Result<u64, SessionError>> + Send {
        LiveInput::accept(self, bytes)
    }

    fn close(&self) {
        LiveInput::close(self);
    }
}

/// How far the input has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Accepted(u64),
    /// The program takes no more.
    Closed,
}

enum Input {
    /// Counted against the room until it is accepted.
    Data(Bytes),
    /// Was bounded when it came.
    Given(Bytes),
    Close,
}

/// Where frames go in.
pub(super) struct Door {
    inputs: mpsc::UnboundedSender<Input>,
    room: Arc<Semaphore>,
}

/// Where they come out.
pub(super) struct Pump {
    inputs: mpsc::UnboundedReceiver<Input>,
    room: Arc<Semaphore>,
}

pub(super) fn queue() -> (Door, Pump) {
    // Bounded by the room.
    let (sender, inputs) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(ROOM_BYTES));
    let door = Door {
        inputs: sender,
        room: Arc::clone(&room),
    };
    (door, Pump { inputs, room })
}

impl Door {
    /// Waiting here is what makes the client wait.
    pub(super) async fn put(&self, bytes: Bytes, heard: &Heard) {
        let room = self.room.acquire_many(permits(bytes.len()));
        if let Ok(permit) = heard.while_deaf(room).await {
            permit.forget();
            self.send(Input::Data(bytes));
        }
    }

    /// All the input there will be, from a request that had it.
    pub(super) fn give(&self, bytes: Bytes) {
        self.send(Input::Given(bytes));
        self.close();
    }

    pub(super) fn close(&self) {
        self.send(Input::Close);
    }

    fn send(&self, input: Input) {
        // The other end lives as long as the conversation.
        let _ = self.inputs.send(input);
    }
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes.min(ROOM_BYTES)).unwrap_or(u32::MAX)
}

impl Pump {
    /// Never ends before the conversation does. Without a program that takes it, input is let go.
    pub(super) async fn run(
        mut self,
        program: Option<&impl Takes>,
        progress: &watch::Sender<Option<Progress>>,
    ) {
        let mut program = program;
        while let Some(input) = self.inputs.recv().await {
            let (bytes, counted) = match input {
                Input::Data(bytes) => {
                    let counted = permits(bytes.len());
                    (bytes, counted)
                }
                Input::Given(bytes) => (bytes, 0),
                Input::Close => {
                    if let Some(program) = program.take() {
                        program.close();
                    }
                    continue;
                }
            };
            if let Some(taker) = program {
                match taker.accept(&bytes).await {
                    Ok(accepted) => {
                        progress.send_replace(Some(Progress::Accepted(accepted)));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "input came for a program that takes no more");
                        program = None;
                    }
                }
            }
            if program.is_none() {
                progress.send_replace(Some(Progress::Closed));
            }
            self.room.add_permits(counted as usize);
        }
        std::future::pending::<()>().await;
    }
}
