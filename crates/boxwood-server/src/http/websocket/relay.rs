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
use tokio::time::Interval;

use super::stdin::{self, Progress, StdinSender};
use super::{CloseReason, LastSeen};
use crate::http::error::{ApiError, ApiResult};

/// A program with an attached client, and the frames that this client exchanges with it.
pub(crate) trait AttachedProgram: Sync {
    /// Returns the total number of accepted bytes once these are accepted.
    fn accept_stdin(&self, bytes: &[u8]) -> impl Future<Output = Result<u64, SessionError>> + Send;
    /// Closes stdin after all accepted bytes.
    fn close_stdin(&self);
    /// The next frame of output. Cancel-safe.
    fn next_output(&self) -> impl Future<Output = OutputFrame> + Send;
    /// The frame that `next_output` returned has been sent.
    fn output_sent(&self);
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
    /// The relay is closed after this frame, if there is one.
    Last(Option<Message>, CloseReason),
}

pub(crate) struct Relay<'a> {
    pub(crate) sink: &'a mut SplitSink<WebSocket, Message>,
    pub(crate) stream: &'a mut SplitStream<WebSocket>,
    /// Pings, and when the client was last seen.
    pub(crate) heartbeat: (Interval, LastSeen),
    pub(crate) first_frame: Option<Message>,
    /// The complete stdin, if it was part of the request.
    pub(crate) request_stdin: Option<String>,
    /// Frames that the client sent before it was attached.
    pub(crate) early: VecDeque<Message>,
}

impl Relay<'_> {
    /// Runs until the program exits or the client disconnects.
    pub(crate) async fn run(self, program: &impl AttachedProgram) -> CloseReason {
        let (pings, last_seen) = self.heartbeat;
        let (input, forwarder) = stdin::queue();
        if let Some(text) = self.request_stdin {
            input.send_all(text.into());
        }
        let (progress, accepted) = watch::channel(None);
        let (reply, replies) = mpsc::channel(1);
        let output = send_frames(
            self.sink,
            self.first_frame,
            pings,
            accepted,
            replies,
            program,
        );
        let frames = receive_frames(self.stream, self.early, &input, &last_seen, &reply, program);
        tokio::select! {
            reason = output => reason.unwrap_or(CloseReason::Normal),
            () = frames => CloseReason::Normal,
            () = last_seen.timeout() => {
                tracing::debug!("attached client timed out; detaching");
                CloseReason::Normal
            }
            () = forwarder.run(program, &progress) => CloseReason::Normal,
        }
    }
}

/// Sends frames until the program exits. `None` if the client has disconnected.
async fn send_frames(
    sink: &mut SplitSink<WebSocket, Message>,
    first_frame: Option<Message>,
    mut pings: Interval,
    mut accepted: watch::Receiver<Option<Progress>>,
    mut replies: mpsc::Receiver<ApiError>,
    program: &impl AttachedProgram,
) -> Option<CloseReason> {
    if let Some(frame) = first_frame {
        sink.send(frame).await.ok()?;
    }
    loop {
        let message = tokio::select! {
            biased;
            Some(error) = replies.recv() => program.error_frame(error),
            // Intermediate values are skipped.
            Ok(()) = accepted.changed() => {
                let progress = *accepted.borrow_and_update();
                match progress.and_then(|progress| program.progress_frame(progress)) {
                    Some(frame) => frame,
                    None => continue,
                }
            }
            // Before the output, which may always be ready: without pings a client that only reads would time out.
            _ = pings.tick() => Message::Ping(Bytes::new()),
            output = program.next_output() => match output {
                OutputFrame::Frame(frame) => {
                    sink.send(frame).await.ok()?;
                    program.output_sent();
                    continue;
                }
                OutputFrame::Last(frame, reason) => {
                    if let Some(frame) = frame {
                        sink.send(frame).await.ok()?;
                    }
                    return Some(reason);
                }
            },
        };
        sink.send(message).await.ok()?;
    }
}

/// Reads frames until the client disconnects.
async fn receive_frames(
    stream: &mut SplitStream<WebSocket>,
    mut early: VecDeque<Message>,
    input: &StdinSender,
    last_seen: &LastSeen,
    reply: &mpsc::Sender<ApiError>,
    program: &impl AttachedProgram,
) {
    loop {
        let message = match early.pop_front() {
            Some(message) => message,
            None => match stream.next().await {
                Some(Ok(message)) => message,
                Some(Err(_)) | None => return,
            },
        };
        last_seen.touch();
        let outcome = match message {
            Message::Binary(bytes) => {
                input.send_data(bytes, last_seen).await;
                Ok(())
            }
            Message::Text(text) => program.handle(&text, input, last_seen).await,
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        if let Err(error) = outcome {
            // Fails only after the sending half has ended, which ends this one too.
            let _ = last_seen.while_blocked(reply.send(error)).await;
        }
    }
}
