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
use axum::http::HeaderMap;
use axum::response::Response;
use boxwood_api::ErrorBody;
use boxwood_session::{Attachable, Attachment};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::watch;

use super::App;
use super::error::ApiResult;
use super::ids::InProcess;
use super::socket::{self, Goodbye, Heartbeat};
use crate::langbot::{self, Standing, today_relay};

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
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    attach_named(app, ids, headers, upgrade).await
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
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let (attachable, terms) = match today_relay::judge(&app, &headers, &id, &process).await {
        None => match app.sessions.check_attachable(&id, &process) {
            Ok(attachable) => (attachable, Terms::Plain),
            Err(error) if langbot::asks_for_mcp(&headers) => return Ok(langbot::refused(error)),
            Err(error) => return Err(error.into()),
        },
        Some(Ok(leave)) => {
            let stopping = app.stopping.clone();
            (leave.attachable, Terms::Today(leave.standing, stopping))
        }
        Some(Err(refusal)) => return Ok(refusal),
    };
    let (upgrade, permit) = socket::accept(&app, upgrade)?;
    let every = app.ping_every();
    Ok(upgrade.protocols(["mcp"]).on_upgrade(async move |socket| {
        relay(socket, attachable, every, terms).await;
        drop(permit);
    }))
}

/// On what terms a client is attached.
enum Terms {
    Plain,
    /// Lines keep their ends, and the relay is over with the placement it was for, or when the daemon
    /// is told to stop.
    Today(Standing, watch::Receiver<bool>),
}

impl Terms {
    /// What goes into a frame.
    fn frame(&self, line: &[u8]) -> Message {
        let mut text = String::from_utf8_lossy(line).into_owned();
        if let Self::Today(..) = self {
            text.push('\n');
        }
        Message::text(text)
    }

    /// Resolves when the client has to go, with what it is told.
    async fn over(&self) -> Goodbye {
        match self {
            Self::Plain => std::future::pending().await,
            Self::Today(standing, stopping) => {
                let mut stopping = stopping.clone();
                tokio::select! {
                    () = standing.superseded() => Goodbye::Done,
                    // Gone when the daemon itself is.
                    _ = stopping.wait_for(|stopping| *stopping) => Goodbye::ShuttingDown,
                }
            }
        }
    }
}

/// What a waiting client may send ahead. Beyond it the client is read no further, and waits too.
const AHEAD_BYTES: usize = 1024 * 1024;

async fn relay(socket: WebSocket, attachable: Attachable, every: Duration, terms: Terms) {
    let (mut sink, mut stream) = socket.split();
    let mut heartbeat = Heartbeat::new(every);
    let mut ahead = VecDeque::new();
    let waiting = wait_for_turn(
        &mut sink,
        &mut stream,
        &mut heartbeat,
        &mut ahead,
        attachable,
    );
    let turn = tokio::select! {
        attachment = waiting => attachment.ok_or(Goodbye::Done),
        goodbye = terms.over() => Err(goodbye),
    };
    let attachment = match turn {
        Ok(attachment) => attachment,
        Err(goodbye) => {
            socket::close_with(sink, stream, goodbye).await;
            return;
        }
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
                    let message = terms.frame(&line);
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
    let goodbye = tokio::select! {
        () = outward => Goodbye::Done,
        () = inward => Goodbye::Done,
        () = heard.silence() => {
            tracing::debug!("an attached client stopped answering and was let go");
            Goodbye::Done
        }
        goodbye = terms.over() => goodbye,
    };
    drop(attachment);
    socket::close_with(sink, stream, goodbye).await;
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
