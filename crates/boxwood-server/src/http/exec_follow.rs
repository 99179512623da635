//! A live command and its client, over a WebSocket.
//!
//! Comes in: a running command, then input, signals and sizes. Goes out: output as it is written and an
//! exit frame. Never here: how the command runs. Each direction waits on its own, so that a command
//! that does not read can still be interrupted.

use axum::extract::ws::{Message, WebSocket};
use boxwood_api::{ErrorCode, ExecExit, ExecInput, ExecOutput, STDERR_CHANNEL, STDOUT_CHANNEL};
use boxwood_session::{Acker, LiveControl, LiveEvent, LiveExec, TerminalSize};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::{mpsc, watch};

use super::error::{ApiError, ApiResult};
use super::input::{self, Door, Progress};
use super::socket::{self, Goodbye, Heard, Heartbeat};
use super::{App, json};

pub(super) struct Started {
    pub(super) live: LiveExec,
    /// The first frame.
    pub(super) hello: ExecOutput,
    /// Standard input that came with the request, and is all there will be.
    pub(super) given_stdin: Option<String>,
    /// Input is acknowledged.
    pub(super) resumable: bool,
}

/// Until the command ends or the client goes. What becomes of the command then is the session's to say.
pub(super) async fn follow(
    sink: &mut SplitSink<WebSocket, Message>,
    stream: &mut SplitStream<WebSocket>,
    started: Started,
    app: &App,
) -> Goodbye {
    let (control, events) = started.live.split();
    let (door, pump) = input::queue();
    if let Some(text) = started.given_stdin {
        door.give(text.into());
    }
    let stdin = control.input();
    let (progress, accepted) = watch::channel(None);
    let heartbeat = Heartbeat::new(app.ping_every());
    let heard = heartbeat.heard();
    let (reply, replies) = mpsc::channel(1);
    let listening = Listening {
        acker: control.acker(),
        control: &control,
        door: &door,
        heard: &heard,
        reply: &reply,
    };
    let telling = Telling {
        events,
        heartbeat,
        accepted: started.resumable.then_some(accepted),
        replies,
    };
    // Dropping `events` with the last of these tells the session that nobody listens.
    tokio::select! {
        goodbye = telling.run(sink, &started.hello) => goodbye.unwrap_or(Goodbye::Done),
        () = listening.run(stream) => Goodbye::Done,
        () = heard.silence() => {
            tracing::debug!("a client stopped answering, and its command was let go");
            Goodbye::Done
        }
        () = pump.run(stdin.as_ref(), &progress) => Goodbye::Done,
        () = socket::left(&app.leaving) => Goodbye::Leaving,
    }
}

struct Telling {
    events: mpsc::Receiver<LiveEvent>,
    heartbeat: Heartbeat,
    /// Where input is acknowledged.
    accepted: Option<watch::Receiver<Option<Progress>>>,
    replies: mpsc::Receiver<ApiError>,
}

impl Telling {
    /// `None` when the client has gone.
    async fn run(
        mut self,
        sink: &mut SplitSink<WebSocket, Message>,
        hello: &ExecOutput,
    ) -> Option<Goodbye> {
        sink.send(text_frame(hello)).await.ok()?;
        loop {
            let message = tokio::select! {
                biased;
                Some(error) = self.replies.recv() => error_frame(error),
                progress = next_progress(&mut self.accepted) => match progress {
                    Progress::Accepted(stdin) => text_frame(&ExecOutput::Accepted { stdin }),
                    Progress::Closed => text_frame(&ExecOutput::StdinClosed),
                },
                event = self.events.recv() => match event {
                    Some(LiveEvent::Stdout(bytes)) => output_frame(STDOUT_CHANNEL, &bytes),
                    Some(LiveEvent::Stderr(bytes)) => output_frame(STDERR_CHANNEL, &bytes),
                    Some(LiveEvent::Exited { exit_code, status, reason, duration_ms, notices }) => {
                        let exit = ExecExit { exit_code, status, reason, duration_ms, notices };
                        sink.send(text_frame(&ExecOutput::Exit(exit))).await.ok()?;
                        return Some(Goodbye::Done);
                    }
                    None => {
                        sink.send(error_frame(succeeded())).await.ok()?;
                        return Some(Goodbye::Succeeded);
                    }
                },
                () = self.heartbeat.tick() => Message::Ping(Bytes::new()),
            };
            sink.send(message).await.ok()?;
        }
    }
}

/// The end of the events without the command's.
fn succeeded() -> ApiError {
    ApiError::new(
        ErrorCode::SessionConflict,
        "another client follows the command now",
    )
}

/// Only the latest is told.
async fn next_progress(accepted: &mut Option<watch::Receiver<Option<Progress>>>) -> Progress {
    if let Some(accepted) = accepted {
        while accepted.changed().await.is_ok() {
            if let Some(progress) = *accepted.borrow_and_update() {
                return progress;
            }
        }
    }
    std::future::pending().await
}

struct Listening<'a> {
    control: &'a LiveControl,
    acker: Acker,
    door: &'a Door,
    heard: &'a Heard,
    reply: &'a mpsc::Sender<ApiError>,
}

impl Listening<'_> {
    /// Reads frames until the client goes.
    async fn run(self, stream: &mut SplitStream<WebSocket>) {
        while let Some(Ok(message)) = stream.next().await {
            self.heard.now();
            let outcome = match message {
                Message::Binary(bytes) => {
                    self.door.put(bytes, self.heard).await;
                    Ok(())
                }
                Message::Text(text) => match json::parse(text.as_str().as_bytes()) {
                    Ok(frame) => self.obey(frame).await,
                    Err(error) => Err(error),
                },
                Message::Close(_) => return,
                Message::Ping(_) | Message::Pong(_) => Ok(()),
            };
            if let Err(error) = outcome {
                // Fails only when the outward half has ended, and then so does this one.
                let _ = self.heard.while_deaf(self.reply.send(error)).await;
            }
        }
    }

    async fn obey(&self, frame: ExecInput) -> ApiResult<()> {
        match frame {
            ExecInput::Start { .. } => {
                return Err(ApiError::validation("the command has been started already"));
            }
            ExecInput::Stdin { data } => self.door.put(data.into(), self.heard).await,
            ExecInput::CloseStdin => self.door.close(),
            ExecInput::Ack { stdout, stderr } => self.acker.acknowledge(stdout, stderr),
            ExecInput::Signal { signal } => self.control.signal(signal.number()).await?,
            ExecInput::Resize { rows, cols } => self.control.resize(terminal(rows, cols)?)?,
        }
        Ok(())
    }
}

pub(super) fn terminal(rows: u16, cols: u16) -> ApiResult<TerminalSize> {
    if rows == 0 || cols == 0 {
        return Err(ApiError::validation(
            "a terminal has at least one row and one column",
        ));
    }
    Ok(TerminalSize { rows, cols })
}

fn output_frame(channel: u8, bytes: &[u8]) -> Message {
    let mut frame = BytesMut::with_capacity(bytes.len() + 1);
    frame.put_u8(channel);
    frame.extend_from_slice(bytes);
    Message::Binary(frame.freeze())
}

fn text_frame(frame: &ExecOutput) -> Message {
    // These types always serialise; an empty object is what a client would ignore.
    Message::text(serde_json::to_string(frame).unwrap_or_else(|_| "{}".to_owned()))
}

pub(super) fn error_frame(error: ApiError) -> Message {
    text_frame(&ExecOutput::Error {
        error: error.detail(),
    })
}
