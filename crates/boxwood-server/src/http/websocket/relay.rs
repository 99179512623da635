//! Relays stdin and output of a program over a WebSocket, with acknowledgements and resumable offsets.
//!
//! Each direction is independent, so that a program that does not read its stdin can still be signalled.

use std::collections::VecDeque;

use axum::extract::ws::{Message, WebSocket};
use boxwood_session::SessionError;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::{mpsc, watch};

use super::stdin::{self, Progress, StdinSender};
use super::{CloseReason, Heartbeat, LastSeen};
use crate::http::error::{ApiError, ApiResult};

/// A program with an attached client, and the frames that this client exchanges with it.
pub(crate) trait AttachedProgram: Sync {
    /// Returns the total number of accepted bytes once these are accepted.
    fn accept_stdin(&self, bytes: &[u8]) -> impl Future<Output = Result<u64, SessionError>> + Send;
    /// Closes stdin after all accepted bytes.
    fn close_stdin(&self);
    /// The next frame of output. Cancel-safe.
    fn next_output(&self) -> impl Future<Output = OutputFrame> + Send;
    /// Handles a text frame of the client.
    fn handle(
        &self,
        text: &str,
        input: &StdinSender,
        last_seen: &LastSeen,
    ) -> impl Future<Output = ApiResult<()>> + Send;
    fn error_frame(&self, error: ApiError) -> Message;
    /// `None` if input is not acknowledged.
    fn progress_frame(&self, progress: Progress) -> Option<Message>;
}

pub(crate) enum OutputFrame {
    Frame(Message),
    /// The relay is closed after this frame.
    Last(Message, CloseReason),
}

pub(crate) struct Relay<'a> {
    pub(crate) sink: &'a mut SplitSink<WebSocket, Message>,
    pub(crate) stream: &'a mut SplitStream<WebSocket>,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) first_frame: Message,
    /// The complete stdin, if it was part of the request.
    pub(crate) given_stdin: Option<String>,
    /// Frames that the client sent before it was attached.
    pub(crate) early: VecDeque<Message>,
}

impl Relay<'_> {
    /// Runs until the program exits or the client disconnects.
    pub(crate) async fn run(self, program: &impl AttachedProgram) -> CloseReason {
        let last_seen = self.heartbeat.last_seen();
        let (input, forwarder) = stdin::queue();
        if let Some(text) = self.given_stdin {
            input.send_all(text.into());
        }
        let (progress, accepted) = watch::channel(None);
        let (reply, replies) = mpsc::channel(1);
        let sender = FrameSender {
            sink: self.sink,
            heartbeat: self.heartbeat,
            accepted,
            replies,
        };
        let receiver = FrameReceiver {
            stream: self.stream,
            early: self.early,
            input: &input,
            last_seen: &last_seen,
            reply: &reply,
        };
        tokio::select! {
            reason = sender.run(self.first_frame, program) => reason.unwrap_or(CloseReason::Normal),
            () = receiver.run(program) => CloseReason::Normal,
            () = last_seen.timeout() => {
                tracing::debug!("attached client timed out; detaching");
                CloseReason::Normal
            }
            () = forwarder.run(program, &progress) => CloseReason::Normal,
        }
    }
}

struct FrameSender<'a> {
    sink: &'a mut SplitSink<WebSocket, Message>,
    heartbeat: Heartbeat,
    accepted: watch::Receiver<Option<Progress>>,
    replies: mpsc::Receiver<ApiError>,
}

impl FrameSender<'_> {
    /// `None` if the client has disconnected.
    async fn run(
        mut self,
        first_frame: Message,
        program: &impl AttachedProgram,
    ) -> Option<CloseReason> {
        self.sink.send(first_frame).await.ok()?;
        loop {
            let message = tokio::select! {
                biased;
                Some(error) = self.replies.recv() => program.error_frame(error),
                // Intermediate values are skipped.
                Ok(()) = self.accepted.changed() => {
                    let progress = *self.accepted.borrow_and_update();
                    match progress.and_then(|progress| program.progress_frame(progress)) {
                        Some(frame) => frame,
                        None => continue,
                    }
                }
                output = program.next_output() => match output {
                    OutputFrame::Frame(frame) => frame,
                    OutputFrame::Last(frame, reason) => {
                        self.sink.send(frame).await.ok()?;
                        return Some(reason);
                    }
                },
                () = self.heartbeat.tick() => Message::Ping(Bytes::new()),
            };
            self.sink.send(message).await.ok()?;
        }
    }
}

struct FrameReceiver<'a> {
    stream: &'a mut SplitStream<WebSocket>,
    early: VecDeque<Message>,
    input: &'a StdinSender,
    last_seen: &'a LastSeen,
    reply: &'a mpsc::Sender<ApiError>,
}

impl FrameReceiver<'_> {
    /// Reads frames until the client disconnects.
    async fn run(mut self, program: &impl AttachedProgram) {
        loop {
            let message = match self.early.pop_front() {
                Some(message) => message,
                None => match self.stream.next().await {
                    Some(Ok(message)) => message,
                    Some(Err(_)) | None => return,
                },
            };
            self.last_seen.touch();
            let outcome = match message {
                Message::Binary(bytes) => {
                    self.input.send_data(bytes, self.last_seen).await;
                    Ok(())
                }
                Message::Text(text) => program.handle(&text, self.input, self.last_seen).await,
                Message::Close(_) => return,
                Message::Ping(_) | Message::Pong(_) => Ok(()),
            };
            if let Err(error) = outcome {
                // Fails only after the sending half has ended, which ends this one too.
                let _ = self.last_seen.while_blocked(self.reply.send(error)).await;
            }
        }
    }
}
