//! Forwards stdin from a WebSocket client to a program.
//!
//! Input is queued up to a limit, so that the task that reads frames does not wait for the program: a
//! command that does not read its stdin can still be signalled, and output can still be acknowledged.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

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
    Data {
        bytes: Bytes,
        /// Held until the input is accepted. `None` for the stdin of the request, which the body size limits.
        _permit: Option<OwnedSemaphorePermit>,
    },
    Close,
}

pub(crate) struct StdinSender {
    inputs: mpsc::UnboundedSender<Input>,
    capacity: Arc<Semaphore>,
}

pub(crate) struct StdinForwarder(mpsc::UnboundedReceiver<Input>);

pub(crate) fn queue() -> (StdinSender, StdinForwarder) {
    // Unbounded, because `capacity` limits the queued bytes.
    let (inputs, queued) = mpsc::unbounded_channel();
    let capacity = Arc::new(Semaphore::new(QUEUE_BYTES));
    (StdinSender { inputs, capacity }, StdinForwarder(queued))
}

impl StdinSender {
    /// Waits while the queue is full, which stops reading from the client.
    pub(crate) async fn send_data(&self, bytes: Bytes, last_seen: &LastSeen) {
        let permits = u32::try_from(bytes.len().min(QUEUE_BYTES)).unwrap_or(u32::MAX);
        let capacity = Arc::clone(&self.capacity).acquire_many_owned(permits);
        let permit = last_seen.while_blocked(capacity).await.ok();
        self.push(Input::Data {
            bytes,
            _permit: permit,
        });
    }

    /// Sends the complete input of a request and closes stdin.
    pub(crate) fn send_all(&self, bytes: Bytes) {
        self.push(Input::Data {
            bytes,
            _permit: None,
        });
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

impl StdinForwarder {
    /// Never returns; dropped with the connection.
    pub(crate) async fn run(
        mut self,
        program: &impl AttachedProgram,
        progress: &watch::Sender<Option<Progress>>,
    ) {
        let mut is_open = true;
        while let Some(input) = self.0.recv().await {
            let Input::Data { bytes, _permit } = input else {
                if std::mem::take(&mut is_open) {
                    program.close_stdin();
                }
                continue;
            };
            if is_open {
                match program.accept_stdin(&bytes).await {
                    Ok(accepted) => {
                        progress.send_replace(Some(Progress::Accepted(accepted)));
                        continue;
                    }
                    Err(error) => {
                        tracing::debug!(%error, "discarding input: stdin of the program is closed");
                        is_open = false;
                    }
                }
            }
            progress.send_replace(Some(Progress::Closed));
        }
        std::future::pending::<()>().await;
    }
}
