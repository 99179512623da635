//! The stdio relay of a managed process: one line, one text frame.
//!
//! Comes in: an upgraded socket and a process that can be attached to. Goes out: lines both ways
//! until one of them ends. Never here: which process, and whether the caller may.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use boxwood_api::ErrorBody;
use boxwood_session::{Attachable, Attachment};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};

use super::App;
use super::error::ApiResult;
use super::ids::InProcess;
use super::socket::{self, Heartbeat};

#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/ws", tag = "processes",
    params(("session_id" = String, Path,)),
    responses(
        (status = 101, description = "The relay of the process called `default`"),
        (status = 400, body = ErrorBody, description = "Not an upgrade to WebSocket"),
        (status = 404, body = ErrorBody, description = "No such session or process"),
        (status = 409, body = ErrorBody, description = "The process has ended")))]
pub(super) async fn attach(
    app: State<Arc<App>>,
    ids: InProcess,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    attach_named(app, ids, upgrade).await
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/{process_id}/ws", tag = "processes",
    params(("session_id" = String, Path,), ("process_id" = String, Path,)),
    responses(
        (status = 101, description = "The relay"),
        (status = 400, body = ErrorBody, description = "Not an upgrade to WebSocket"),
        (status = 404, body = ErrorBody, description = "No such session or process"),
        (status = 409, body = ErrorBody, description = "The process has ended")))]
pub(super) async fn attach_named(
    State(app): State<Arc<App>>,
    InProcess(id, process): InProcess,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let attachable = app.sessions.check_attachable(&id, &process)?;
    let (upgrade, permit) = socket::accept(&app, upgrade)?;
    let every = app.ping_every();
    Ok(upgrade.protocols(["mcp"]).on_upgrade(async move |socket| {
        relay(socket, attachable, every).await;
        drop(permit);
    }))
}

/// What a waiting client may send ahead. Beyond it the client is read no further, and waits too.
const AHEAD_BYTES: usize = 1024 * 1024;

async fn relay(socket: WebSocket, attachable: Attachable, every: Duration) {
    let (mut sink, mut stream) = socket.split();
    let mut heartbeat = Heartbeat::new(every);
    let mut ahead = VecDeque::new();
    let Some(attachment) = wait_for_turn(
        &mut sink,
        &mut stream,
        &mut heartbeat,
        &mut ahead,
        attachable,
    )
    .await
    else {
        socket::close(sink, stream).await;
        return;
    };
    let heard = heartbeat.heard();
    let inward = async {
        for line in ahead {
            let sent = heard.while_deaf(attachment.send(line.as_bytes())).await;
            if sent.is_err() {
                // No more input; the rest of its output still goes out.
                break;
            }
        }
        while let Some(Ok(message)) = stream.next().await {
            heard.now();
            match message {
                Message::Text(text) => {
                    let line = as_line(text.as_str());
                    let sent = heard.while_deaf(attachment.send(line.as_bytes())).await;
                    if sent.is_err() {
                        tracing::debug!("a line came for a process that takes no more input");
                    }
                }
                Message::Close(_) => break,
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    };
    let outward = async {
        loop {
            tokio::select! {
                line = attachment.next_line() => {
                    let Some(line) = line else { return };
                    let message = Message::text(String::from_utf8_lossy(&line).into_owned());
                    // Kept until it was taken over by the socket, so that a line on the way to a
                    // client that is gone goes to the next one.
                    let mut undelivered = Undelivered { attachment: &attachment, line: Some(line) };
                    if sink.send(message).await.is_err() {
                        return;
                    }
                    undelivered.line = None;
                }
                () = heartbeat.tick() => {
                    if sink.send(Message::Ping(bytes::Bytes::new())).await.is_err() {
                        return;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = outward => {}
        () = inward => {}
        () = heard.silence() => tracing::debug!("an attached client stopped answering and was let go"),
    }
    drop(attachment);
    socket::close(sink, stream).await;
}

/// Gives a line back when its delivery is broken off.
struct Undelivered<'a> {
    attachment: &'a Attachment,
    line: Option<Vec<u8>>,
}

impl Drop for Undelivered<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            self.attachment.put_back(line);
        }
    }
}

/// `None` when the client went away first, or the process was stopped or replaced.
async fn wait_for_turn(
    sink: &mut SplitSink<WebSocket, Message>,
    stream: &mut SplitStream<WebSocket>,
    heartbeat: &mut Heartbeat,
    ahead: &mut VecDeque<String>,
    attachable: Attachable,
) -> Option<Attachment> {
    let mut turn = std::pin::pin!(attachable.attach());
    let heard = heartbeat.heard();
    let mut kept = 0;
    loop {
        tokio::select! {
            biased;
            attachment = &mut turn => {
                return attachment
                    .inspect_err(|error| tracing::debug!(%error, "a waiting client was sent away"))
                    .ok();
            }
            message = stream.next(), if kept < AHEAD_BYTES => {
                heard.now();
                match message?.ok()? {
                    Message::Text(text) => {
                        let line = as_line(text.as_str());
                        kept += line.len();
                        ahead.push_back(line);
                    }
                    Message::Close(_) => return None,
                    Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
                }
            }
            () = heartbeat.tick() => {
                sink.send(Message::Ping(bytes::Bytes::new())).await.ok()?;
            }
            // A client that sent too much is not read, so its silence means nothing.
            () = heard.silence(), if kept < AHEAD_BYTES => return None,
        }
    }
}

fn as_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len() + 1);
    line.push_str(text);
    line.push('\n');
    line
}
