//! Forwards stdin from a WebSocket client to a program.
//!
//! Input is queued up to a limit, so that the task that reads frames does not wait for the program: a
//! command that does not read its stdin can still be signalled, and output can still be acknowledged.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, watch};

use super::LastSeen;
use super::relay::AttachedProgram;

/// Queued input per program. Beyond it the client is no longer read from.
const QUEUE_BYTES: usize = 1024 * 1024;

/// Progress that is reported to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Accepted(u64),
    /// The program accepts no more input.
    Closed,
}

enum Input {
    /// Counts against the queue's capacity until it is accepted.
    Data(Bytes),
    /// Stdin of the request, already limited by the body size.
    All(Bytes),
    Close,
}

pub(crate) struct StdinSender {
    inputs: mpsc::UnboundedSender<Input>,
    capacity: Arc<Semaphore>,
}

pub(crate) struct StdinForwarder {
    inputs: mpsc::UnboundedReceiver<Input>,
    capacity: Arc<Semaphore>,
}

pub(crate) fn queue() -> (StdinSender, StdinForwarder) {
    // Unbounded, because `capacity` limits the queued bytes.
    let (sender, inputs) = mpsc::unbounded_channel();
    let capacity = Arc::new(Semaphore::new(QUEUE_BYTES));
    let stdin = StdinSender {
        inputs: sender,
        capacity: Arc::clone(&capacity),
    };
    (stdin, StdinForwarder { inputs, capacity })
}

impl StdinSender {
    /// Waits while the queue is full, which stops reading from the client.
    pub(crate) async fn send_data(&self, bytes: Bytes, last_seen: &LastSeen) {
        let capacity = self.capacity.acquire_many(permits(bytes.len()));
        if let Ok(permit) = last_seen.while_blocked(capacity).await {
            permit.forget();
            self.push(Input::Data(bytes));
        }
    }

    /// Sends the complete input of a request and closes stdin.
    pub(crate) fn send_all(&self, bytes: Bytes) {
        self.push(Input::All(bytes));
        self.close();
    }

    pub(crate) fn close(&self) {
        self.push(Input::Close);
    }

    fn push(&self, input: Input) {
        // The receiver lives as long as the connection.
        let _ = self.inputs.send(input);
    }
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes.min(QUEUE_BYTES)).unwrap_or(u32::MAX)
}

impl StdinForwarder {
    /// Never returns; dropped with the connection.
    pub(crate) async fn run(
        mut self,
        program: &impl AttachedProgram,
        progress: &watch::Sender<Option<Progress>>,
    ) {
        let mut writer = Some(program);
        while let Some(input) = self.inputs.recv().await {
            let (bytes, counted) = match input {
                Input::Data(bytes) => {
                    let counted = permits(bytes.len());
                    (bytes, counted)
                }
                Input::All(bytes) => (bytes, 0),
                Input::Close => {
                    if let Some(writer) = writer.take() {
                        writer.close_stdin();
                    }
                    continue;
                }
            };
            if let Some(open) = writer {
                match open.accept_stdin(&bytes).await {
                    Ok(accepted) => {
                        progress.send_replace(Some(Progress::Accepted(accepted)));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "discarding input: stdin of the program is closed");
                        writer = None;
                    }
                }
            }
            if writer.is_none() {
                progress.send_replace(Some(Progress::Closed));
            }
            self.capacity.add_permits(counted as usize);
        }
        std::future::pending::<()>().await;
    }
}
