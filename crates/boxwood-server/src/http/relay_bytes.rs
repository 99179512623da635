//! The stdio relay of a managed process as bytes, for clients that come back.
//!
//! Comes in: an upgraded socket and a process that can be attached to. Goes out: the process's output
//! from an offset on, acknowledgements of its input, and its end. Never here: which process, and whether
//! the caller may.

use std::collections::VecDeque;

use axum::extract::ws::{Message, WebSocket};
use boxwood_api::{RelayControl, RelayNews};
use boxwood_session::{Attachable, Attachment, Since};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::{mpsc, watch};

use super::error::{ApiError, ApiResult};
use super::input::{self, Door, Progress};
use super::relay::wait_for_turn;
use super::socket::{self, Goodbye, Heard, Heartbeat};
use super::{App, json};

/// One frame of output.
const PIECE_BYTES: usize = 64 * 1024;

pub(super) async fn relay(socket: WebSocket, attachable: Attachable, since: Since, app: &App) {
    let (mut sink, mut stream) = socket.split();
    let mut heartbeat = Heartbeat::new(app.ping_every());
    let mut ahead = VecDeque::new();
    let turn = Box::pin(attachable.attach_at(since));
    let waiting = wait_for_turn(&mut sink, &mut stream, &mut heartbeat, &mut ahead, turn);
    let turn = tokio::select! {
        turn = waiting => turn,
        () = socket::left(&app.leaving) => {
            socket::close_with(sink, stream, Goodbye::Leaving).await;
            return;
        }
    };
    let goodbye = match turn {
        Some(Ok(attachment)) => {
            let talk = Talk {
                sink: &mut sink,
                stream: &mut stream,
                heartbeat,
                ahead,
            };
            tokio::select! {
                () = talk.hold(&attachment) => Goodbye::Done,
                () = socket::left(&app.leaving) => Goodbye::Leaving,
            }
        }
        Some(Err(error)) => {
            // The client may be gone, which the goodbye will notice too.
            let _ = sink.send(error_frame(error.into())).await;
            Goodbye::Done
        }
        None => Goodbye::Done,
    };
    socket::close_with(sink, stream, goodbye).await;
}

struct Talk<'a> {
    sink: &'a mut SplitSink<WebSocket, Message>,
    stream: &'a mut SplitStream<WebSocket>,
    heartbeat: Heartbeat,
    /// Sent by the client before its turn came.
    ahead: VecDeque<Message>,
}

impl Talk<'_> {
    async fn hold(self, attachment: &Attachment) {
        let heard = self.heartbeat.heard();
        let (door, pump) = input::queue();
        let (progress, accepted) = watch::channel(None);
        let (reply, replies) = mpsc::channel(1);
        let inward = listen(self.stream, self.ahead, attachment, &door, &heard, &reply);
        let outward = tell(self.sink, self.heartbeat, attachment, accepted, replies);
        tokio::select! {
            _ = outward => {}
            () = inward => {}
            () = heard.silence() => {
                tracing::debug!("an attached client stopped answering and was let go");
            }
            () = pump.run(Some(attachment), &progress) => {}
        }
    }
}

/// `None` when the client has gone.
async fn tell(
    sink: &mut SplitSink<WebSocket, Message>,
    mut heartbeat: Heartbeat,
    attachment: &Attachment,
    mut accepted: watch::Receiver<Option<Progress>>,
    mut replies: mpsc::Receiver<ApiError>,
) -> Option<()> {
    let joined = RelayNews::Joined {
        stdout: attachment.stdout_offset(),
        stdin: attachment.stdin_accepted(),
        started_at: attachment.started_at(),
    };
    sink.send(text_frame(&joined)).await.ok()?;
    loop {
        let message = tokio::select! {
            biased;
            Some(error) = replies.recv() => error_frame(error),
            // Only the latest is told.
            Ok(()) = accepted.changed() => match *accepted.borrow_and_update() {
                Some(Progress::Accepted(stdin)) => text_frame(&RelayNews::Accepted { stdin }),
                Some(Progress::Closed) => {
                    text_frame(&RelayNews::StdinClosed { stdin_closed: true })
                }
                None => continue,
            },
            piece = attachment.next_bytes(PIECE_BYTES) => match piece {
                Some((_, bytes)) => Message::Binary(bytes),
                None => break,
            },
            () = heartbeat.tick() => Message::Ping(Bytes::new()),
        };
        sink.send(message).await.ok()?;
    }
    let exited = attachment.exited().await;
    sink.send(text_frame(&RelayNews::Exited { exited }))
        .await
        .ok()
}

/// Reads frames until the client goes.
async fn listen(
    stream: &mut SplitStream<WebSocket>,
    ahead: VecDeque<Message>,
    attachment: &Attachment,
    door: &Door,
    heard: &Heard,
    reply: &mpsc::Sender<ApiError>,
) {
    let mut ahead = ahead;
    loop {
        let message = match ahead.pop_front() {
            Some(message) => message,
            None => match stream.next().await {
                Some(Ok(message)) => message,
                Some(Err(_)) | None => return,
            },
        };
        heard.now();
        let outcome = match message {
            Message::Binary(bytes) => {
                door.put(bytes, heard).await;
                Ok(())
            }
            Message::Text(text) => obey(&text, attachment, door),
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        if let Err(error) = outcome {
            // Fails only when the outward half has ended, and then so does this one.
            let _ = heard.while_deaf(reply.send(error)).await;
        }
    }
}

fn obey(text: &str, attachment: &Attachment, door: &Door) -> ApiResult<()> {
    match json::parse(text.as_bytes())? {
        RelayControl::CloseStdin => door.close(),
        RelayControl::Ack { stdout } => attachment.acknowledge(stdout),
    }
    Ok(())
}

fn text_frame(news: &RelayNews) -> Message {
    // These types always serialise; an empty object is what a client would ignore.
    Message::text(serde_json::to_string(news).unwrap_or_else(|_| "{}".to_owned()))
}

fn error_frame(error: ApiError) -> Message {
    text_frame(&RelayNews::Error {
        error: error.detail(),
    })
}
