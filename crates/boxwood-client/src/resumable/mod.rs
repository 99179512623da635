//! A WebSocket connection to a running program that is re-established when it is lost.
//!
//! Output is counted, and the next connection requests it from that position. Input is kept until it is acknowledged, and the
//! rest is sent again. No byte is lost or duplicated when the daemon is restarted.

mod unacknowledged;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

use crate::backoff::{Backoff, is_transient};
use crate::path::Target;
use crate::websocket::Socket;
use crate::{Client, ClientError};
use unacknowledged::Unacknowledged;

/// Pieces of output. A full queue stops reading from the socket, and thereby the program.
const OUTPUT_AHEAD: usize = 16;
/// Pieces of input. A full queue stops the caller.
const INPUT_AHEAD: usize = 4;
/// Input is sent in pieces of at most this size.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes of output between two acknowledgements, far below the size of the daemon's buffer.
const ACK_EVERY: u64 = 64 * 1024;
/// The daemon closes a connection after 40 s of silence, also if the caller does not read its output.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Close code if another client has attached. Reconnecting would disconnect that client in turn.
const SUCCEEDED: u16 = 4409;
/// For sending the stop message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The frames of one kind of connection.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// How the program ended.
    type End: Send + 'static;
    const OPERATION: &'static str;

    /// Where a connection goes on after so many bytes of each channel.
    fn resume_target(&self, read: [u64; 2]) -> Target;
    /// Reads a text frame.
    fn text(&self, text: &str) -> Result<Incoming<Self::End>, ClientError>;
    /// Reads a binary frame: a channel, 0 or 1, and output.
    fn binary(&self, frame: Bytes) -> Result<(usize, Bytes), ClientError>;
    fn close_input(&self) -> Message;
    fn acknowledge(&self, read: [u64; 2]) -> Message;
    /// Sent to end the program when its output is not needed any more.
    fn stop_message(&self) -> Option<Message>;
}

/// A parsed text frame.
pub(crate) enum Incoming<E> {
    /// The first one.
    Joined(Joined),
    Accepted {
        stdin: u64,
    },
    /// The program takes no more input.
    InputClosed,
    End(E),
    /// The daemon rejected a frame. Does not end the program, unless nothing follows.
    Complaint(ClientError),
}

/// Where a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Output before this was sent earlier.
    pub(crate) read: [u64; 2],
    /// So much input was accepted, where it is counted.
    pub(crate) stdin: Option<u64>,
}

pub(crate) enum Event<E> {
    Output {
        channel: usize,
        bytes: Bytes,
    },
    /// The last one.
    End(E),
}

/// What to do when the connection is lost.
#[derive(Clone, Copy)]
pub(crate) enum Renew {
    /// Fail.
    Never,
    /// Reconnect. This connection started at the given positions.
    WhenLost(Joined),
}

enum Input {
    Bytes(Bytes),
    Close,
}

enum Control {
    Frame(Message),
    Leave {
        with_stop: bool,
        done: oneshot::Sender<()>,
    },
}

/// Towards the program.
pub(crate) struct Sender {
    operation: &'static str,
    inputs: mpsc::Sender<Input>,
    /// Beside the input, because a program that does not read can still be signalled.
    controls: mpsc::Sender<Control>,
}

impl Sender {
    pub(crate) async fn input(&self, mut bytes: Bytes) -> Result<(), ClientError> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
            self.queue(&self.inputs, Input::Bytes(piece)).await?;
        }
        Ok(())
    }

    pub(crate) async fn close_input(&self) -> Result<(), ClientError> {
        self.queue(&self.inputs, Input::Close).await
    }

    pub(crate) async fn frame(&self, frame: Message) -> Result<(), ClientError> {
        self.queue(&self.controls, Control::Frame(frame)).await
    }

    /// Closes the connection, with or without the stop message, and waits until it is closed.
    pub(crate) async fn leave(&self, with_stop: bool) {
        let (done, closed) = oneshot::channel();
        let leave = Control::Leave { with_stop, done };
        if self.controls.send(leave).await.is_ok() {
            // Never sent to, only closed.
            let _ = closed.await;
        }
    }

    async fn queue<T>(&self, queue: &mpsc::Sender<T>, what: T) -> Result<(), ClientError> {
        queue
            .send(what)
            .await
            .map_err(|_| ClientError::lost(self.operation, "the connection is over"))
    }
}

/// From the program. Dropped before the end, it lets go of the program.
pub(crate) struct Receiver<E> {
    operation: &'static str,
    events: mpsc::Receiver<Result<Event<E>, ClientError>>,
}

impl<E> Receiver<E> {
    pub(crate) async fn next(&mut self) -> Result<Event<E>, ClientError> {
        match self.events.recv().await {
            Some(event) => event,
            None => Err(ClientError::lost(self.operation, "there is nothing more")),
        }
    }
}

/// Takes care of a socket on which the program's output may begin at once.
pub(crate) fn start<D: Protocol>(
    client: Client,
    dialect: D,
    socket: Socket,
    renew: Renew,
) -> (Sender, Receiver<D::End>) {
    let (inputs, input) = mpsc::channel(INPUT_AHEAD);
    let (controls, control) = mpsc::channel(INPUT_AHEAD);
    let (sender, events) = mpsc::channel(OUTPUT_AHEAD);
    let (renews, read, stdin) = match renew {
        Renew::Never => (false, [0; 2], None),
        Renew::WhenLost(Joined { read, stdin }) => (true, read, stdin),
    };
    let keeper = Connection {
        client,
        dialect,
        renews,
        events: sender,
        news: Notify::new(),
        state: Mutex::new(State {
            read,
            acknowledged: read,
            unsent: stdin.map(Unacknowledged::new),
            closed: false,
            complaint: None,
        }),
    };
    tokio::spawn(keeper.run(socket, Queues { input, control }));
    let operation = D::OPERATION;
    (
        Sender {
            operation,
            inputs,
            controls,
        },
        Receiver { operation, events },
    )
}

struct Queues {
    input: mpsc::Receiver<Input>,
    control: mpsc::Receiver<Control>,
}

struct State {
    read: [u64; 2],
    acknowledged: [u64; 2],
    /// `None` where input is not counted, and so never sent twice.
    unsent: Option<Unacknowledged>,
    /// The end of the input has been sent.
    closed: bool,
    complaint: Option<ClientError>,
}

/// Why one connection is over.
enum Over {
    /// The caller has done the end, or does not want to.
    Ended,
    Lost(ClientError),
    Left {
        with_stop: bool,
    },
}

struct Connection<D: Protocol> {
    client: Client,
    dialect: D,
    renews: bool,
    events: mpsc::Sender<Result<Event<D::End>, ClientError>>,
    state: Mutex<State>,
    /// For the writer: there is room for input, or output to acknowledge.
    news: Notify,
}

impl<D: Protocol> Connection<D> {
    async fn run(self, mut socket: Socket, mut queues: Queues) {
        loop {
            let Some(lost) = self.exchange(socket, &mut queues).await else {
                return;
            };
            let renewed = if self.renews {
                self.renew(lost).await
            } else {
                Err(lost)
            };
            match renewed {
                Ok(again) => socket = again,
                Err(error) => {
                    let error = self.state().complaint.take().unwrap_or(error);
                    // A caller that has gone needs no error.
                    let _ = self.events.send(Err(error)).await;
                    return;
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One connection from its beginning to its end. `Some` when it broke.
    async fn exchange(&self, socket: Socket, queues: &mut Queues) -> Option<ClientError> {
        let (mut sink, mut stream) = socket.split();
        let mut done = None;
        let over = tokio::select! {
            over = self.listen(&mut stream) => over,
            over = self.send(&mut sink, queues, &mut done) => over,
            () = self.events.closed() => Over::Left { with_stop: true },
        };
        let with_stop = match over {
            Over::Ended => return None,
            Over::Lost(error) => return Some(error),
            Over::Left { with_stop } => with_stop,
        };
        let goodbye = async {
            if let Some(protocol) = self.dialect.stop_message().filter(|_| with_stop) {
                sink.send(protocol).await.ok()?;
            }
            sink.close().await.ok()?;
            // Words are lost on a socket that is dropped while it still receives.
            while let Some(Ok(_)) = stream.next().await {}
            Some(())
        };
        // A daemon that does not listen to the end will notice on its own.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, goodbye).await;
        drop(done);
        None
    }

    async fn listen(&self, stream: &mut SplitStream<Socket>) -> Over {
        loop {
            // First the room, then the frame: nothing that was read is ever held back here.
            let Ok(room) = self.events.reserve().await else {
                return Over::Left { with_stop: true };
            };
            let incoming = match stream.next().await {
                Some(Ok(Message::Binary(frame))) => match self.dialect.binary(frame) {
                    Ok((channel, bytes)) => {
                        self.count(channel, bytes.len());
                        room.send(Ok(Event::Output { channel, bytes }));
                        continue;
                    }
                    Err(error) => Err(error),
                },
                Some(Ok(Message::Text(text))) => self.dialect.text(&text),
                Some(Ok(Message::Close(Some(frame)))) if u16::from(frame.code) == SUCCEEDED => {
                    let error = self.state().complaint.take();
                    let why = frame.reason.to_string();
                    let error = error.unwrap_or_else(|| ClientError::lost(D::OPERATION, why));
                    room.send(Err(error));
                    return Over::Ended;
                }
                Some(Ok(Message::Close(frame))) => {
                    let why = frame.map(|frame| frame.reason.to_string());
                    let why = why.filter(|why| !why.is_empty());
                    let why = why.unwrap_or_else(|| "the daemon closed the connection".to_owned());
                    return Over::Lost(ClientError::lost(D::OPERATION, why));
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Over::Lost(ClientError::lost(D::OPERATION, error)),
                None => {
                    let why = "the connection ended";
                    return Over::Lost(ClientError::lost(D::OPERATION, why));
                }
            };
            match incoming.and_then(|incoming| self.receive(incoming)) {
                Ok(None) => {}
                Ok(Some(end)) => {
                    room.send(Ok(Event::End(end)));
                    return Over::Ended;
                }
                Err(error) => {
                    room.send(Err(error));
                    return Over::Ended;
                }
            }
        }
    }

    /// `Some` at the program's end.
    fn receive(&self, incoming: Incoming<D::End>) -> Result<Option<D::End>, ClientError> {
        match incoming {
            Incoming::Joined(_) => {
                return Err(ClientError::unexpected(D::OPERATION, "it began twice"));
            }
            Incoming::Accepted { stdin } => self.accepted(stdin)?,
            Incoming::InputClosed => {
                if let Some(unsent) = &mut self.state().unsent {
                    unsent.refuse();
                }
                self.news.notify_one();
            }
            Incoming::End(end) => return Ok(Some(end)),
            Incoming::Complaint(error) => self.state().complaint = Some(error),
        }
        Ok(None)
    }

    fn accepted(&self, stdin: u64) -> Result<(), ClientError> {
        if let Some(unsent) = &mut self.state().unsent {
            unsent.accept(stdin).map_err(|_| {
                ClientError::unexpected(D::OPERATION, "input that was accepted is unknown")
            })?;
        }
        self.news.notify_one();
        Ok(())
    }

    fn count(&self, channel: usize, bytes: usize) {
        let mut state = self.state();
        if let Some(read) = state.read.get_mut(channel) {
            *read += bytes as u64;
        }
        if self.renews && state.unacknowledged() >= ACK_EVERY {
            self.news.notify_one();
        }
    }

    /// Ends only when the caller wants it to: a connection that broke is told by the other half, which
    /// may still find the program's end in it.
    async fn send(
        &self,
        sink: &mut SplitSink<Socket, Message>,
        queues: &mut Queues,
        done: &mut Option<oneshot::Sender<()>>,
    ) -> Over {
        match self.try_send(sink, queues).await {
            Ok((over, sender)) => {
                *done = Some(sender);
                over
            }
            Err(_) => std::future::pending().await,
        }
    }

    async fn try_send(
        &self,
        sink: &mut SplitSink<Socket, Message>,
        queues: &mut Queues,
    ) -> Result<(Over, oneshot::Sender<()>), WsError> {
        for message in self.resent() {
            sink.send(message).await?;
        }
        let mut alive = tokio::time::interval(PING_INTERVAL);
        loop {
            if let Some(acknowledgement) = self.due_acknowledgement() {
                sink.send(acknowledgement).await?;
            }
            tokio::select! {
                biased;
                Some(control) = queues.control.recv() => match control {
                    Control::Frame(frame) => sink.send(frame).await?,
                    Control::Leave { with_stop, done } => {
                        return Ok((Over::Left { with_stop }, done));
                    }
                },
                () = self.news.notified() => {}
                Some(input) = queues.input.recv(), if self.has_room() => {
                    let message = self.note(input);
                    sink.send(message).await?;
                }
                _ = alive.tick() => sink.send(Message::Pong(Bytes::new())).await?,
            }
        }
    }

    /// What the daemon before this one may have taken with it.
    fn resent(&self) -> Vec<Message> {
        let state = self.state();
        let pieces = state.unsent.as_ref().map(Unacknowledged::pieces);
        let mut messages: Vec<_> = pieces.into_iter().flatten().map(Message::Binary).collect();
        if state.closed {
            messages.push(self.dialect.close_input());
        }
        messages
    }

    fn has_room(&self) -> bool {
        self.state()
            .unsent
            .as_ref()
            .is_none_or(Unacknowledged::has_room)
    }

    /// Remembered before it is sent.
    fn note(&self, input: Input) -> Message {
        let mut state = self.state();
        match input {
            Input::Bytes(bytes) => {
                if let Some(unsent) = &mut state.unsent {
                    unsent.push(bytes.clone());
                }
                Message::Binary(bytes)
            }
            Input::Close => {
                state.closed = true;
                self.dialect.close_input()
            }
        }
    }

    fn due_acknowledgement(&self) -> Option<Message> {
        let mut state = self.state();
        if !self.renews || state.unacknowledged() < ACK_EVERY {
            return None;
        }
        state.acknowledged = state.read;
        Some(self.dialect.acknowledge(state.read))
    }

    /// Another connection to the same program.
    async fn renew(&self, mut lost: ClientError) -> Result<Socket, ClientError> {
        let mut backoff = Backoff::new();
        loop {
            let joined = tokio::select! {
                joined = self.join() => joined,
                () = self.events.closed() => return Err(lost),
            };
            match joined {
                Ok(socket) => return Ok(socket),
                Err(error) if is_transient(&error) => lost = error,
                Err(error) => return Err(error),
            }
            if !backoff.wait().await {
                return Err(lost);
            }
        }
    }

    async fn join(&self) -> Result<Socket, ClientError> {
        let read = self.state().read;
        let mut socket = self
            .client
            .websocket(&self.dialect.resume_target(read))
            .await?;
        let joined = join(&self.dialect, &mut socket).await?;
        if joined.read != read {
            let why = "it went on somewhere else";
            return Err(ClientError::unexpected(D::OPERATION, why));
        }
        let stdin = joined.stdin;
        let mut state = self.state();
        state.acknowledged = read;
        if stdin.is_none() {
            state.unsent = None;
        }
        drop(state);
        if let Some(stdin) = stdin {
            self.accepted(stdin)?;
        }
        Ok(socket)
    }
}

impl State {
    fn unacknowledged(&self) -> u64 {
        let pairs = self.read.iter().zip(&self.acknowledged);
        pairs.map(|(read, known)| read.saturating_sub(*known)).sum()
    }
}

/// Waits for the first frame, which comes when the program is ours to follow.
pub(crate) async fn join<D: Protocol>(
    dialect: &D,
    socket: &mut Socket,
) -> Result<Joined, ClientError> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                return match dialect.text(&text)? {
                    Incoming::Joined(joined) => Ok(joined),
                    Incoming::Complaint(error) => Err(error),
                    Incoming::Accepted { .. } | Incoming::InputClosed | Incoming::End(_) => {
                        Err(ClientError::unexpected(
                            D::OPERATION,
                            "it did not begin with its beginning",
                        ))
                    }
                };
            }
            Some(Ok(Message::Binary(_))) => {
                let why = "output came before the beginning";
                return Err(ClientError::unexpected(D::OPERATION, why));
            }
            Some(Ok(Message::Close(_))) | None => {
                let why = "the daemon closed the connection";
                return Err(ClientError::lost(D::OPERATION, why));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(ClientError::lost(D::OPERATION, error)),
        }
    }
}
