//! Relays stdin and stdout of a managed process over a WebSocket, one line per text frame.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use boxwood_api::{ErrorBody, RelayNews};
use boxwood_langbot::CurrentPlacement;
use boxwood_session::{Attachable, Attachment, SessionError, Since};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use super::relay_bytes;
use crate::http::error::ApiResult;
use crate::http::params::{self, InProcess};
use crate::http::websocket::{self, CloseReason, Heartbeat, Upgrade};
use crate::http::{App, langbot};

#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/ws", tag = "processes",
    params(From),
    responses(
        (status = 101, description = "The relay of the process `default`"),
        (status = 409, body = ErrorBody, description = "The process has exited"),
        (status = 410, body = ErrorBody, description = "The output is no longer kept: `replay_gone`")))]
pub(crate) async fn attach(
    app: State<Arc<App>>,
    ids: InProcess,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> ApiResult<Response> {
    attach_named(app, ids, uri, headers, upgrade).await
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/{process_id}/ws", tag = "processes",
    params(From),
    responses(
        (status = 101, description = "The relay: text frames of one line each. With `since`, frames are \
            `RelayNews`, `RelayControl` and bytes", body = RelayNews),
        (status = 409, body = ErrorBody, description = "The process has exited"),
        (status = 410, body = ErrorBody, description = "The output is no longer kept: `replay_gone`")))]
pub(crate) async fn attach_named(
    State(app): State<Arc<App>>,
    InProcess(sessions, id, process): InProcess,
    uri: Uri,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> ApiResult<Response> {
    let langbots = app.langbot.authorize_relay(&headers, &id, &process).await;
    if langbots.is_none()
        && let Some(since) = since_param(&uri)?
    {
        let attachable = sessions.check_attachable_at(&id, &process, since)?;
        let accepted = upgrade.accept(&app)?;
        return Ok(accepted.serve(async move |socket| {
            relay_bytes::relay(socket, attachable, since, &app).await;
        }));
    }
    let (attachable, mode) = match langbots {
        None => match sessions.check_attachable(&id, &process) {
            Ok(attachable) => (attachable, RelayMode::Lines(app.handing_over.clone())),
            Err(error) if langbot::asks_for_mcp(&headers) => {
                return Ok(langbot::error_response(&error.into()));
            }
            Err(error) => return Err(error.into()),
        },
        Some(Ok(access)) => {
            let mode = RelayMode::LangBot(access.placement, app.stopping.clone());
            (access.attachable, mode)
        }
        Some(Err(refusal)) => return Ok(langbot::relay_refusal(&refusal)),
    };
    let accepted = upgrade.accept(&app)?.protocol("mcp");
    let every = app.ping_every();
    Ok(accepted.serve(move |socket| relay(socket, attachable, every, mode)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct From {
    /// Where the output starts: an offset in the output of the process, or `now` for output that was not
    /// delivered yet. With it the relay carries bytes and can be resumed.
    #[param(value_type = Option<String>)]
    since: Option<String>,
}

/// Unknown query parameters are ignored here, for compatibility.
fn since_param(uri: &Uri) -> ApiResult<Option<Since>> {
    let Ok(Query(From { since: Some(text) })) = Query::try_from_uri(uri) else {
        return Ok(None);
    };
    params::offset("since", &text).map(Some)
}

enum RelayMode {
    /// Ends when boxes are detached for the next daemon.
    Lines(watch::Receiver<bool>),
    /// Frames keep the newline. Ends when the placement is superseded or the daemon stops.
    LangBot(CurrentPlacement, watch::Receiver<bool>),
}

impl RelayMode {
    fn frame(&self, line: &[u8]) -> Message {
        let mut text = String::from_utf8_lossy(line).into_owned();
        if let Self::LangBot(..) = self {
            text.push('\n');
        }
        Message::text(text)
    }

    /// Resolves when the client must be disconnected.
    async fn ended(&self) -> CloseReason {
        match self {
            Self::Lines(handing_over) => {
                websocket::handover_started(handing_over).await;
                CloseReason::HandingOver
            }
            Self::LangBot(placement, stopping) => {
                let mut stopping = stopping.clone();
                tokio::select! {
                    () = placement.superseded() => CloseReason::Normal,
                    _ = stopping.wait_for(|stopping| *stopping) => CloseReason::ShuttingDown,
                }
            }
        }
    }
}

/// Frames kept from a client that waits to be attached. Beyond it the client is no longer read from.
const EARLY_BYTES: usize = 1024 * 1024;

async fn relay(socket: WebSocket, attachable: Attachable, every: Duration, mode: RelayMode) {
    let (mut sink, mut stream) = socket.split();
    let mut heartbeat = Heartbeat::new(every);
    let mut early = VecDeque::new();
    let turn = Box::pin(attachable.attach());
    let waiting = wait_for_turn(&mut sink, &mut stream, &mut heartbeat, &mut early, turn);
    let turn = tokio::select! {
        // `biased`: a process that exits because of the shutdown is not the reason.
        biased;
        reason = mode.ended() => Err(reason),
        attachment = waiting => match attachment {
            Some(Ok(attachment)) => Ok(attachment),
            Some(Err(error)) => {
                tracing::debug!(%error, "attaching a waiting client failed");
                Err(CloseReason::Normal)
            }
            None => Err(CloseReason::Normal),
        },
    };
    let attachment = match turn {
        Ok(attachment) => attachment,
        Err(reason) => {
            websocket::close_with(sink, stream, reason).await;
            return;
        }
    };
    let last_seen = heartbeat.last_seen();
    let receive = async {
        for line in early.into_iter().filter_map(line) {
            let sent = last_seen
                .while_blocked(attachment.send(line.as_bytes()))
                .await;
            if sent.is_err() {
                // Stdin is closed; output is still sent.
                break;
            }
        }
        while let Some(Ok(message)) = stream.next().await {
            last_seen.touch();
            if matches!(message, Message::Close(_)) {
                break;
            }
            if let Some(line) = line(message) {
                let sent = last_seen
                    .while_blocked(attachment.send(line.as_bytes()))
                    .await;
                if sent.is_err() {
                    tracing::debug!("discarding a line: stdin of the process is closed");
                }
            }
        }
    };
    let send = async {
        loop {
            tokio::select! {
                line = attachment.next_line() => {
                    let Some(line) = line else { return };
                    let message = mode.frame(&line);
                    // Put back unless the socket has taken it, so that the next client gets it.
                    let mut unsent = UnsentLine { attachment: &attachment, line: Some(line) };
                    if sink.send(message).await.is_err() {
                        return;
                    }
                    unsent.line = None;
                }
                () = heartbeat.tick() => {
                    if sink.send(Message::Ping(bytes::Bytes::new())).await.is_err() {
                        return;
                    }
                }
            }
        }
    };
    let reason = tokio::select! {
        biased;
        reason = mode.ended() => reason,
        () = send => CloseReason::Normal,
        () = receive => CloseReason::Normal,
        () = last_seen.timeout() => {
            tracing::debug!("attached client timed out; detaching");
            CloseReason::Normal
        }
    };
    drop(attachment);
    websocket::close_with(sink, stream, reason).await;
}

/// Puts the line back if sending is cancelled.
struct UnsentLine<'a> {
    attachment: &'a Attachment,
    line: Option<Vec<u8>>,
}

impl Drop for UnsentLine<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            self.attachment.put_back(line);
        }
    }
}

/// `None` if the client disconnected first. Frames it sends meanwhile are kept, up to a limit.
pub(crate) async fn wait_for_turn(
    sink: &mut SplitSink<WebSocket, Message>,
    stream: &mut SplitStream<WebSocket>,
    heartbeat: &mut Heartbeat,
    early: &mut VecDeque<Message>,
    mut turn: impl Future<Output = Result<Attachment, SessionError>> + Unpin,
) -> Option<Result<Attachment, SessionError>> {
    let last_seen = heartbeat.last_seen();
    let mut kept = 0;
    loop {
        tokio::select! {
            biased;
            attachment = &mut turn => return Some(attachment),
            message = stream.next(), if kept < EARLY_BYTES => {
                last_seen.touch();
                let message = message?.ok()?;
                match &message {
                    Message::Text(text) => kept += text.len() + 1,
                    Message::Binary(bytes) => kept += bytes.len() + 1,
                    Message::Close(_) => return None,
                    Message::Ping(_) | Message::Pong(_) => continue,
                }
                early.push_back(message);
            }
            () = heartbeat.tick() => {
                sink.send(Message::Ping(bytes::Bytes::new())).await.ok()?;
            }
            // A client that is not read from cannot time out.
            () = last_seen.timeout(), if kept < EARLY_BYTES => return None,
        }
    }
}

/// The line of a text frame, with newline. Binary frames are ignored.
fn line(message: Message) -> Option<String> {
    let Message::Text(text) = message else {
        return None;
    };
    let mut line = String::with_capacity(text.len() + 1);
    line.push_str(&text);
    line.push('\n');
    Some(line)
}
