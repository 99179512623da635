//! Relays stdin and stdout of a managed process over a WebSocket, as lines or as bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Uri};
use boxwood_api::{ErrorBody, RelayNews};
use boxwood_session::{Attachable, Attachment, SessionError, Since};
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use serde::Deserialize;
use tokio::time::Interval;
use utoipa::IntoParams;

use super::relay_bytes;
use super::relay_lines::LineAttachment;
use crate::http::error::ApiResult;
use crate::http::params::{self, InProcess};
use crate::http::websocket::relay::Relay;
use crate::http::websocket::{self, CloseReason, LastSeen, Upgrade};
use crate::http::{App, langbot};

#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/ws", tag = "processes",
    params(RelayParams),
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
) -> ApiResult {
    attach_named(app, ids, uri, headers, upgrade).await
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/{process_id}/ws", tag = "processes",
    params(RelayParams),
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
) -> ApiResult {
    let langbot_access = app.langbot.authorize_relay(&headers, &id, &process).await;
    let handover = || Box::pin(app.handover().map(|()| CloseReason::HandingOver)) as RelayEnd;
    let (attachable, frames, end) = match langbot_access {
        Some(Err(refusal)) => return Ok(langbot::relay_refusal(&refusal)),
        Some(Ok(access)) => {
            let stopped = app.stopped();
            let end: RelayEnd = Box::pin(async move {
                tokio::select! {
                    () = access.placement.superseded() => CloseReason::Normal,
                    () = stopped => CloseReason::ShuttingDown,
                }
            });
            (access.attachable, Frames::Lines { line_end: "\n" }, end)
        }
        None => match since_param(&uri)? {
            Some(since) => {
                let attachable = sessions.check_attachable_at(&id, &process, since)?;
                (attachable, Frames::Bytes(since), handover())
            }
            None => match sessions.check_attachable(&id, &process) {
                Ok(attachable) => (attachable, Frames::Lines { line_end: "" }, handover()),
                Err(error) if langbot::asks_for_mcp(&headers) => {
                    return Ok(langbot::error_response(&error.into()));
                }
                Err(error) => return Err(error.into()),
            },
        },
    };
    let mut accepted = upgrade.accept(&app)?;
    if let Frames::Lines { .. } = frames {
        accepted = accepted.protocol("mcp");
    }
    let every = app.ping_every();
    Ok(accepted.serve(move |socket| relay(socket, attachable, every, frames, end)))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct RelayParams {
    /// Where the output starts: an offset in the output of the process, or `now` for output that was not
    /// delivered yet. With it the relay carries bytes and can be resumed.
    #[param(value_type = Option<String>)]
    since: Option<String>,
}

/// Unknown query parameters are ignored here, for compatibility.
fn since_param(uri: &Uri) -> ApiResult<Option<Since>> {
    let Ok(Query(RelayParams { since: Some(text) })) = Query::try_from_uri(uri) else {
        return Ok(None);
    };
    params::offset("since", &text).map(Some)
}

/// The frames of a relay.
enum Frames {
    /// One text frame for each line, with `line_end` appended.
    Lines { line_end: &'static str },
    /// Bytes, acknowledged in both directions, from this offset on.
    Bytes(Since),
}

/// Resolves when the client must be disconnected while the process runs on.
type RelayEnd = BoxFuture<'static, CloseReason>;

/// Frames kept from a client that waits to be attached. Beyond it the client is no longer read from.
const EARLY_BYTES: usize = 1024 * 1024;

async fn relay(
    socket: WebSocket,
    attachable: Attachable,
    every: Duration,
    frames: Frames,
    end: RelayEnd,
) {
    let (mut sink, mut stream) = socket.split();
    let relaying = async {
        let mut heartbeat = websocket::heartbeat(every);
        let mut early = VecDeque::new();
        let attaching = Box::pin(async {
            match frames {
                Frames::Lines { .. } => attachable.attach().await,
                Frames::Bytes(since) => attachable.attach_at(since).await,
            }
        });
        let waiting = wait_for_attachment(
            &mut sink,
            &mut stream,
            &mut heartbeat,
            &mut early,
            attaching,
        );
        let attachment = match waiting.await {
            Some(Ok(attachment)) => attachment,
            Some(Err(error)) => {
                tracing::debug!(%error, "failed to attach a waiting client");
                if let Frames::Bytes(_) = frames {
                    // Fails if the client is gone, which closing detects as well.
                    let _ = sink.send(relay_bytes::error_frame(error.into())).await;
                }
                return CloseReason::Normal;
            }
            None => return CloseReason::Normal,
        };
        let mut relay = Relay {
            sink: &mut sink,
            stream: &mut stream,
            heartbeat,
            first_frame: None,
            request_stdin: None,
            early,
        };
        match frames {
            Frames::Lines { line_end } => {
                let lines = LineAttachment::new(attachment, line_end);
                relay.run(&lines).await
            }
            Frames::Bytes(_) => {
                relay.first_frame = Some(relay_bytes::joined(&attachment));
                relay.run(&attachment).await
            }
        }
    };
    let reason = tokio::select! {
        // `biased`: a process that exits because of the shutdown is not the reason.
        biased;
        reason = end => reason,
        reason = relaying => reason,
    };
    websocket::close_with(sink, stream, reason).await;
}

/// `None` if the client disconnected first. Frames it sends meanwhile are kept, up to a limit.
async fn wait_for_attachment(
    sink: &mut SplitSink<WebSocket, Message>,
    stream: &mut SplitStream<WebSocket>,
    (pings, last_seen): &mut (Interval, LastSeen),
    early: &mut VecDeque<Message>,
    mut attaching: impl Future<Output = Result<Attachment, SessionError>> + Unpin,
) -> Option<Result<Attachment, SessionError>> {
    let mut early_bytes = 0;
    loop {
        tokio::select! {
            biased;
            attachment = &mut attaching => return Some(attachment),
            message = stream.next(), if early_bytes < EARLY_BYTES => {
                last_seen.touch();
                let message = message?.ok()?;
                match &message {
                    Message::Text(text) => early_bytes += text.len() + 1,
                    Message::Binary(bytes) => early_bytes += bytes.len() + 1,
                    Message::Close(_) => return None,
                    Message::Ping(_) | Message::Pong(_) => continue,
                }
                early.push_back(message);
            }
            _ = pings.tick() => {
                sink.send(Message::Ping(bytes::Bytes::new())).await.ok()?;
            }
            // A client that is not read from cannot time out.
            () = last_seen.timeout(), if early_bytes < EARLY_BYTES => return None,
        }
    }
}
