//! The task behind a resumable connection.

use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::{Notify, mpsc};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

use super::unacknowledged::Unacknowledged;
use super::{
    Control, Incoming, Input, Joined, LiveEvent, LiveReceiver, LiveSender, Protocol, join,
};
use crate::http::backoff::{Backoff, is_transient};
use crate::http::websocket::Socket;
use crate::{Client, ClientError, Result};

/// Chunks of output. A full queue stops reading from the socket, and thereby the program.
const OUTPUT_QUEUE: usize = 16;
/// Chunks of input. A full queue stops the caller.
const INPUT_QUEUE: usize = 4;
/// Bytes of output between two acknowledgements, far below the size of the daemon's buffer.
const ACK_EVERY: u64 = 64 * 1024;
/// The daemon closes a connection after 40 s of silence, also if the caller does not read its output.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Close code if another client has attached. Reconnecting would disconnect that client in turn.
const SUPERSEDED: u16 = 4409;
/// For sending the stop message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

struct Queues {
    input: mpsc::Receiver<Input>,
    control: mpsc::Receiver<Control>,
}

struct State {
    read: [u64; 2],
    acknowledged: [u64; 2],
    /// Input that is kept until it is acknowledged. `None` where input is not counted, and so never sent twice.
    input: Option<Unacknowledged>,
    /// The end of the input has been sent.
    closed: bool,
    /// The latest error frame of the daemon. Reported if the connection then ends.
    last_error: Option<ClientError>,
}

struct Connection<P: Protocol> {
    client: Client,
    protocol: P,
    events: mpsc::Sender<Result<LiveEvent<P::End>>>,
    state: Mutex<State>,
    /// Wakes the writer: there is room for input, or output to acknowledge.
    changed: Notify,
}

/// Starts the task for a connection on which output may follow at once.
pub(super) fn start<P: Protocol>(
    client: Client,
    protocol: P,
    socket: Socket,
    Joined { read, stdin }: Joined,
) -> (LiveSender<P::End>, LiveReceiver<P::End>) {
    let (inputs, input) = mpsc::channel(INPUT_QUEUE);
    let (controls, control) = mpsc::channel(INPUT_QUEUE);
    let (sender, events) = mpsc::channel(OUTPUT_QUEUE);
    let connection = Connection {
        client,
        protocol,
        events: sender,
        state: Mutex::new(State {
            read,
            acknowledged: read,
            input: stdin.map(Unacknowledged::new),
            closed: false,
            last_error: None,
        }),
        changed: Notify::new(),
    };
    tokio::spawn(connection.run(socket, Queues { input, control }));
    let operation = P::OPERATION;
    let sender = LiveSender {
        operation,
        inputs,
        controls,
        end: PhantomData,
    };
    (sender, LiveReceiver { operation, events })
}

impl<P: Protocol> Connection<P> {
    async fn run(self, mut socket: Socket, mut queues: Queues) {
        while let Some(lost) = self.exchange(socket, &mut queues).await {
            match self.reconnect(lost).await {
                Ok(reconnected) => socket = reconnected,
                Err(error) => {
                    let error = self.state().last_error.take().unwrap_or(error);
                    // Fails if the caller has dropped the receiver.
                    let _ = self.events.send(Err(error)).await;
                    return;
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses one connection until it ends. Returns an error if it was lost.
    async fn exchange(&self, socket: Socket, queues: &mut Queues) -> Option<ClientError> {
        let (mut sink, mut stream) = socket.split();
        let with_stop = tokio::select! {
            lost = self.listen(&mut stream) => return lost,
            with_stop = self.send(&mut sink, queues) => with_stop,
            () = self.events.closed() => true,
        };
        let close = async {
            if let Some(stop) = self.protocol.stop_message().filter(|_| with_stop) {
                sink.send(stop).await.ok()?;
            }
            sink.close().await.ok()?;
            // Sent messages are lost if the socket is dropped while it still receives.
            while let Some(Ok(_)) = stream.next().await {}
            Some(())
        };
        // The daemon notices a connection that is not closed properly.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, close).await;
        None
    }

    /// Passes on events until the last one, or until the connection is lost.
    async fn listen(&self, stream: &mut SplitStream<Socket>) -> Option<ClientError> {
        loop {
            // Reserved before the frame is read, so that no frame that was read is held back here.
            let Ok(room) = self.events.reserve().await else {
                // The caller has dropped the receiver, which `exchange` detects.
                return std::future::pending().await;
            };
            let lost = |why: &str| Some(ClientError::lost(P::OPERATION, why));
            let event = match stream.next().await {
                Some(Ok(Message::Binary(frame))) => {
                    self.protocol.binary(frame).map(|(channel, bytes)| {
                        self.count(channel, bytes.len());
                        Some(match channel {
                            0 => LiveEvent::Stdout(bytes),
                            _ => LiveEvent::Stderr(bytes),
                        })
                    })
                }
                Some(Ok(Message::Text(text))) => {
                    let incoming = self.protocol.text(&text);
                    let end = incoming.and_then(|incoming| self.receive(incoming));
                    end.map(|end| end.map(LiveEvent::Exit))
                }
                Some(Ok(Message::Close(Some(frame)))) if u16::from(frame.code) == SUPERSEDED => {
                    let lost = || ClientError::lost(P::OPERATION, frame.reason.to_string());
                    Err(self.state().last_error.take().unwrap_or_else(lost))
                }
                Some(Ok(Message::Close(Some(frame)))) if !frame.reason.is_empty() => {
                    return lost(&frame.reason);
                }
                Some(Ok(Message::Close(_))) => return lost("the daemon closed the connection"),
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Some(ClientError::lost(P::OPERATION, error)),
                None => return lost("the connection ended"),
            };
            let is_last = matches!(event, Err(_) | Ok(Some(LiveEvent::Exit(_))));
            if let Some(event) = event.transpose() {
                room.send(event);
            }
            if is_last {
                return None;
            }
        }
    }

    /// Returns how the program ended, if it has.
    fn receive(&self, incoming: Incoming<P::End>) -> Result<Option<P::End>> {
        match incoming {
            Incoming::Joined(_) => {
                let reason = "a second frame says where the output starts";
                return Err(ClientError::unexpected(P::OPERATION, reason));
            }
            Incoming::Accepted { stdin } => self.accepted(stdin)?,
            Incoming::InputClosed => {
                if let Some(input) = &mut self.state().input {
                    input.refuse();
                }
                self.changed.notify_one();
            }
            Incoming::End(end) => return Ok(Some(end)),
            Incoming::Error(error) => self.state().last_error = Some(error),
        }
        Ok(None)
    }

    fn accepted(&self, stdin: u64) -> Result<()> {
        if let Some(input) = &mut self.state().input {
            input.accept(stdin).map_err(|_| {
                let reason = "the daemon has lost input that was accepted";
                ClientError::unexpected(P::OPERATION, reason)
            })?;
        }
        self.changed.notify_one();
        Ok(())
    }

    fn count(&self, channel: usize, bytes: usize) {
        let mut state = self.state();
        if let Some(read) = state.read.get_mut(channel) {
            *read += bytes as u64;
        }
        if state.unacknowledged() >= ACK_EVERY {
            self.changed.notify_one();
        }
    }

    /// Returns, with `with_stop`, when the caller closes the connection. A lost connection is reported by `listen`, which
    /// may still find the program's end in it.
    async fn send(&self, sink: &mut SplitSink<Socket, Message>, queues: &mut Queues) -> bool {
        match self.try_send(sink, queues).await {
            Ok(with_stop) => with_stop,
            Err(_) => std::future::pending().await,
        }
    }

    async fn try_send(
        &self,
        sink: &mut SplitSink<Socket, Message>,
        queues: &mut Queues,
    ) -> Result<bool, WsError> {
        for message in self.resent() {
            sink.send(message).await?;
        }
        let mut ping_timer = tokio::time::interval(PING_INTERVAL);
        loop {
            if let Some(acknowledgement) = self.due_acknowledgement() {
                sink.send(acknowledgement).await?;
            }
            tokio::select! {
                biased;
                Some(control) = queues.control.recv() => match control {
                    Control::Frame(frame) => sink.send(frame).await?,
                    Control::Leave { with_stop } => return Ok(with_stop),
                },
                () = self.changed.notified() => {}
                Some(input) = queues.input.recv(), if self.has_room() => {
                    let message = self.record(input);
                    sink.send(message).await?;
                }
                _ = ping_timer.tick() => sink.send(Message::Pong(Bytes::new())).await?,
            }
        }
    }

    /// Input that the previous daemon may not have processed.
    fn resent(&self) -> Vec<Message> {
        let state = self.state();
        let chunks = state.input.as_ref().map(Unacknowledged::chunks);
        let mut messages: Vec<_> = chunks.into_iter().flatten().map(Message::Binary).collect();
        if state.closed {
            messages.push(self.protocol.close_input());
        }
        messages
    }

    fn has_room(&self) -> bool {
        let state = self.state();
        state.input.as_ref().is_none_or(Unacknowledged::has_room)
    }

    /// Records input before it is sent.
    fn record(&self, input: Input) -> Message {
        let mut state = self.state();
        match input {
            Input::Bytes(bytes) => {
                if let Some(unacknowledged) = &mut state.input {
                    unacknowledged.push(bytes.clone());
                }
                Message::Binary(bytes)
            }
            Input::Close => {
                state.closed = true;
                self.protocol.close_input()
            }
        }
    }

    fn due_acknowledgement(&self) -> Option<Message> {
        let mut state = self.state();
        if state.unacknowledged() < ACK_EVERY {
            return None;
        }
        state.acknowledged = state.read;
        Some(self.protocol.acknowledge(state.read))
    }

    /// Connects to the same program again.
    async fn reconnect(&self, mut lost: ClientError) -> Result<Socket> {
        let mut backoff = Backoff::new();
        loop {
            let joined = tokio::select! {
                joined = self.join() => joined,
                () = self.events.closed() => return Err(lost),
            };
            match joined {
                Err(error) if is_transient(&error) => lost = error,
                outcome => return outcome,
            }
            if !backoff.wait().await {
                return Err(lost);
            }
        }
    }

    async fn join(&self) -> Result<Socket> {
        let read = self.state().read;
        let target = self.protocol.resume_target(read);
        let mut socket = self.client.websocket(&target).await?;
        let joined = join(&self.protocol, &mut socket).await?;
        if joined.read != read {
            let reason = "the output continues at another position than requested";
            return Err(ClientError::unexpected(P::OPERATION, reason));
        }
        self.state().acknowledged = read;
        match joined.stdin {
            Some(stdin) => self.accepted(stdin)?,
            None => self.state().input = None,
        }
        Ok(socket)
    }
}

impl State {
    fn unacknowledged(&self) -> u64 {
        let pairs = self.read.iter().zip(&self.acknowledged);
        pairs
            .map(|(read, acknowledged)| read.saturating_sub(*acknowledged))
            .sum()
    }
}
