//! The stdio relay of a managed process: one line, one text frame.
//!
//! Comes in: an upgraded socket and a process that can be attached to. Goes out: lines both ways
//! until one of them ends. Never here: which process, and whether the caller may.
#![expect(
    unused_qualifications,
    reason = "the expansion of `utoipa::path` qualifies the parameter types"
)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use boxwood_api::{ErrorBody, RelayNews};
use boxwood_session::{Attachable, Attachment, SessionError, Since};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use super::App;
use super::error::ApiResult;
use super::ids::InProcess;
use super::socket::{self, Goodbye, Heartbeat};
use super::{relay_bytes, since};
use crate::langbot::{self, Standing, today_relay};

#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/ws", tag = "processes",
    params(("session_id" = String, Path,), From),
    responses(
        (status = 101, description = "The relay of the process called `default`"),
        (status = 400, body = ErrorBody, description = "Not an upgrade to WebSocket, or `since` makes no sense"),
        (status = 404, body = ErrorBody, description = "No such session or process"),
        (status = 409, body = ErrorBody, description = "The process has ended"),
        (status = 410, body = ErrorBody, description = "The output is no longer kept: `replay_gone`")))]
pub(super) async fn attach(
    app: State<Arc<App>>,
    ids: InProcess,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    attach_named(app, ids, uri, headers, upgrade).await
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/{process_id}/ws", tag = "processes",
    params(("session_id" = String, Path,), ("process_id" = String, Path,), From),
    responses(
        (status = 101, description = "The relay: text frames of one line each; with `since` frames are \
            `RelayNews`, `RelayControl` and bytes", body = RelayNews),
        (status = 400, body = ErrorBody, description = "Not an upgrade to WebSocket, or `since` makes no sense"),
        (status = 404, body = ErrorBody, description = "No such session or process"),
        (status = 409, body = ErrorBody, description = "The process has ended"),
        (status = 410, body = ErrorBody, description = "The output is no longer kept: `replay_gone`")))]
pub(super) async fn attach_named(
    State(app): State<Arc<App>>,
    InProcess {
        id,
        process,
        sessions,
    }: InProcess,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let langbots = today_relay::judge(&app, &headers, &id, &process).await;
    if langbots.is_none()
        && let Some(since) = asked(&uri)?
    {
        let attachable = sessions.check_attachable_at(&id, &process, since)?;
        let (upgrade, permit) = socket::accept(&app, upgrade)?;
        return Ok(upgrade.on_upgrade(async move |socket| {
            relay_bytes::relay(socket, attachable, since, &app).await;
            drop(permit);
        }));
    }
    let (attachable, terms) = match langbots {
        None => match sessions.check_attachable(&id, &process) {
            Ok(attachable) => (attachable, Terms::Plain(app.leaving.clone())),
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

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct From {
    /// Where the output shall begin: an offset into all that the process ever wrote, or `now` for what
    /// nobody has taken yet. With it the relay carries bytes and can be resumed.
    #[param(value_type = Option<String>)]
    since: Option<String>,
}

/// Anything else in the query has never been looked at.
fn asked(uri: &Uri) -> ApiResult<Option<Since>> {
    let Ok(Query(From { since: Some(text) })) = Query::try_from_uri(uri) else {
        return Ok(None);
    };
    since::read("since", &text).map(Some)
}

/// On what terms a client is attached.
enum Terms {
    /// Until the boxes are left to another daemon.
    Plain(watch::Receiver<bool>),
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
            Self::Plain(leaving) => {
                socket::left(leaving).await;
                Goodbye::Leaving
            }
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
    let turn = Box::pin(attachable.attach());
    let waiting = wait_for_turn(&mut sink, &mut stream, &mut heartbeat, &mut ahead, turn);
    let turn = tokio::select! {
        // First: a process that ends with the daemon is no reason of its own.
        biased;
        goodbye = terms.over() => Err(goodbye),
        attachment = waiting => match attachment {
            Some(Ok(attachment)) => Ok(attachment),
            Some(Err(error)) => {
                tracing::debug!(%error, "a waiting client was sent away");
                Err(Goodbye::Done)
            }
            None => Err(Goodbye::Done),
        },
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
        for line in ahead.into_iter().filter_map(line) {
            let sent = heard.while_deaf(attachment.send(line.as_bytes())).await;
            if sent.is_err() {
                // No more input; the rest of its output still goes out.
                break;
            }
        }
        while let Some(Ok(message)) = stream.next().await {
            heard.now();
            if matches!(message, Message::Close(_)) {
                break;
            }
            if let Some(line) = line(message) {
                let sent = heard.while_deaf(attachment.send(line.as_bytes())).await;
                if sent.is_err() {
                    tracing::debug!("a line came for a process that takes no more input");
                }
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
        // As above.
        biased;
        goodbye = terms.over() => goodbye,
        () = outward => Goodbye::Done,
        () = inward => Goodbye::Done,
        () = heard.silence() => {
            tracing::debug!("an attached client stopped answering and was let go");
            Goodbye::Done
        }
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

/// `None` when the client went away first. What it sends meanwhile is kept, up to a bound.
pub(super) async fn wait_for_turn(
    sink: &mut SplitSink<WebSocket, Message>,
    stream: &mut SplitStream<WebSocket>,
    heartbeat: &mut Heartbeat,
    ahead: &mut VecDeque<Message>,
    mut turn: impl Future<Output = Result<Attachment, SessionError>> + Unpin,
) -> Option<Result<Attachment, SessionError>> {
    let heard = heartbeat.heard();
    let mut kept = 0;
    loop {
        tokio::select! {
            biased;
            attachment = &mut turn => return Some(attachment),
            message = stream.next(), if kept < AHEAD_BYTES => {
                heard.now();
                let message = message?.ok()?;
                match &message {
                    Message::Text(text) => kept += text.len() + 1,
                    Message::Binary(bytes) => kept += bytes.len() + 1,
                    Message::Close(_) => return None,
                    Message::Ping(_) | Message::Pong(_) => continue,
                }
                ahead.push_back(message);
            }
            () = heartbeat.tick() => {
                sink.send(Message::Ping(bytes::Bytes::new())).await.ok()?;
            }
            // A client that sent too much is not read, so its silence means nothing.
            () = heard.silence(), if kept < AHEAD_BYTES => return None,
        }
    }
}

/// The line in a frame, with its end. Frames of bytes are none.
fn line(message: Message) -> Option<String> {
    let Message::Text(text) = message else {
        return None;
    };
    let mut line = String::with_capacity(text.len() + 1);
    line.push_str(&text);
    line.push('\n');
    Some(line)
}
