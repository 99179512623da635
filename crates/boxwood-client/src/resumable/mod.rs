//! A WebSocket connection to a running program that is re-established when it is lost.
//!
//! Output is counted, and the next connection requests it from that position. Input is kept until it is acknowledged, and the
//! rest is sent again. No byte is lost or duplicated when the daemon is restarted.

pub(crate) mod attach;
mod connection;
pub(crate) mod exec;
mod unacknowledged;

use std::fmt;
use std::marker::PhantomData;

use boxwood_api::{ErrorDetail, ExecExit};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use crate::http::target::Target;
use crate::http::websocket::Socket;
use crate::{ClientError, Result};

/// Input is sent in chunks of at most this size.
const CHUNK_BYTES: usize = 64 * 1024;

/// Where the output starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// At the next new output, including output that no client has received yet.
    Now,
    /// At this offset in the program's output.
    Offset(u64),
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now => f.write_str("now"),
            Self::Offset(offset) => offset.fmt(f),
        }
    }
}

/// The frames of one kind of connection.
trait Protocol: Send + Sync + 'static {
    /// How the program ended.
    type End: Send + 'static;
    const OPERATION: &'static str;

    /// Where to reconnect after this many bytes of each channel.
    fn resume_target(&self, read: [u64; 2]) -> Target;
    /// Reads a text frame.
    fn text(&self, text: &str) -> Result<Incoming<Self::End>>;
    /// Reads a binary frame: a channel, 0 or 1, and output.
    fn binary(&self, frame: Bytes) -> Result<(usize, Bytes)>;
    fn close_input(&self) -> Message;
    fn acknowledge(&self, read: [u64; 2]) -> Message;
    /// Sent to end the program when the receiver is dropped. `None` if the program keeps running then.
    fn stop_message(&self) -> Option<Message>;
}

/// A parsed text frame.
enum Incoming<E> {
    /// The first frame of a connection.
    Joined(Joined),
    Accepted {
        stdin: u64,
    },
    /// The program takes no more input.
    InputClosed,
    End(E),
    /// An error of the daemon, for example about a frame. The program continues unless the connection then ends.
    Error(ClientError),
}

/// Where a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Joined {
    /// Output before this was sent earlier.
    read: [u64; 2],
    /// The amount of input that was accepted. `None` where input is not counted.
    stdin: Option<u64>,
}

enum Input {
    Bytes(Bytes),
    Close,
}

enum Control {
    Frame(Message),
    /// Closes the connection.
    Leave {
        with_stop: bool,
    },
}

/// An event of a running program.
#[derive(Clone, Debug, PartialEq)]
pub enum LiveEvent<E = ExecExit> {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The last event.
    Exit(E),
}

/// Sends to a program. `E` is how the program ends.
pub struct LiveSender<E = ExecExit> {
    operation: &'static str,
    inputs: mpsc::Sender<Input>,
    /// Separate from the input, because a program that does not read can still be signalled.
    controls: mpsc::Sender<Control>,
    end: PhantomData<E>,
}

impl<E> LiveSender<E> {
    /// Waits while the program does not read. No newline is added.
    pub async fn stdin(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            let chunk = bytes.split_to(bytes.len().min(CHUNK_BYTES));
            self.queue(&self.inputs, Input::Bytes(chunk)).await?;
        }
        Ok(())
    }

    /// Disconnects and waits until the daemon has been notified. The program keeps running.
    pub async fn detach(&mut self) {
        self.leave(false).await;
    }

    /// Closes the connection, with or without the stop message, and waits until it is closed.
    async fn leave(&self, with_stop: bool) {
        let leave = Control::Leave { with_stop };
        if self.controls.send(leave).await.is_ok() {
            self.controls.closed().await;
        }
    }

    async fn queue<T>(&self, queue: &mpsc::Sender<T>, item: T) -> Result<()> {
        let closed = |_| ClientError::lost(self.operation, "the connection is closed");
        queue.send(item).await.map_err(closed)
    }
}

/// Receives from a program. Dropping it before the exit closes the connection with the stop message, if there is one.
pub struct LiveReceiver<E = ExecExit> {
    operation: &'static str,
    events: mpsc::Receiver<Result<LiveEvent<E>>>,
}

impl<E> LiveReceiver<E> {
    /// The next event. Returns an error after [`LiveEvent::Exit`].
    pub async fn next(&mut self) -> Result<LiveEvent<E>> {
        let lost = || ClientError::lost(self.operation, "there are no more events");
        self.events.recv().await.ok_or_else(lost)?
    }
}

/// Waits for the first frame of a resumed connection.
async fn join<P: Protocol>(protocol: &P, socket: &mut Socket) -> Result<Joined> {
    match protocol.text(&first_text(P::OPERATION, socket).await?)? {
        Incoming::Joined(joined) => Ok(joined),
        Incoming::Error(error) => Err(error),
        Incoming::Accepted { .. } | Incoming::InputClosed | Incoming::End(_) => {
            let reason = "the first frame does not say where the output starts";
            Err(ClientError::unexpected(P::OPERATION, reason))
        }
    }
}

async fn first_text(operation: &str, socket: &mut Socket) -> Result<String> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text.to_string()),
            Some(Ok(Message::Binary(_))) => {
                let reason = "output arrived before the first text frame";
                return Err(ClientError::unexpected(operation, reason));
            }
            Some(Ok(Message::Close(_))) | None => {
                let reason = "the daemon closed the connection";
                return Err(ClientError::lost(operation, reason));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(ClientError::lost(operation, error)),
        }
    }
}

fn text_frame(frame: &impl Serialize) -> Message {
    // Cannot fail for the types of the protocols; the daemon rejects an empty object.
    Message::text(serde_json::to_string(frame).unwrap_or_else(|_| "{}".to_owned()))
}

fn parse<T: DeserializeOwned>(operation: &str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| ClientError::unexpected(operation, error))
}

/// The upgrade had succeeded, so there is no HTTP error status.
fn refused(error: ErrorDetail) -> ClientError {
    ClientError::refused(200, error, None)
}
