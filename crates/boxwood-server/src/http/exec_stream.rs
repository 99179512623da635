//! A live command as server-sent events, for clients that only want to watch.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use boxwood_api::{ErrorBody, ExecExit, ExecOutput, OutputChunk, SpecRequest};
use boxwood_session::{LiveEvent, Stdio};
use futures_util::stream;
use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use super::error::ApiResult;
use super::ids::InSession;
use super::json::JsonBody;
use super::utf8::Utf8Pieces;
use super::{App, sessions, within};

/// Keeps proxies from thinking that a quiet command is a dead connection.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[utoipa::path(post, path = "/v1/sessions/{session_id}/exec/stream", tag = "live",
    params(("session_id" = String, Path,)),
    request_body = SpecRequest,
    responses(
        (status = 200, content_type = "text/event-stream", body = ExecExit,
            description = "Events `started`, `stdout`, `stderr`, `exit`"),
        (status = 400, body = ErrorBody, description = "The spec makes no sense or is refused"),
        (status = 409, body = ErrorBody, description = "The session exists with other settings"),
        (status = 503, body = ErrorBody, description = "No box can be started")))]
pub(super) async fn exec(
    State(app): State<Arc<App>>,
    InSession(id): InSession,
    JsonBody(request): JsonBody<SpecRequest>,
) -> ApiResult<Response> {
    let admission = sessions::judge_command(&app, id.clone(), request).await?;
    let stdin = admission.exec.stdin().map(str::to_owned);
    let streams = match stdin {
        Some(_) => Stdio::Pipes,
        None => Stdio::Output,
    };
    let notices = admission.exec.notices().to_vec();
    let live = within(app.start_patience, app.sessions.stream(admission, streams)).await?;
    let hello = ExecOutput::Started {
        session_id: id,
        exec_id: live.exec_id(),
        notices,
    };
    let (mut control, events) = live.split();
    if let (Some(text), Some(mut writer)) = (stdin, control.take_stdin()) {
        // Ends with the text or with the command, whichever comes first.
        tokio::spawn(async move {
            if let Err(error) = writer.write_all(text.as_bytes()).await {
                tracing::debug!(%error, "a command did not read all of its input");
            } else if let Err(error) = writer.flush().await {
                tracing::debug!(%error, "a command did not read all of its input");
            }
        });
    }
    let start = Following {
        hello: Some(hello),
        events,
        stdout: Utf8Pieces::default(),
        stderr: Utf8Pieces::default(),
        held: Vec::new(),
    };
    let events = stream::unfold(start, |mut following| async move {
        let event = following.next().await?;
        Some((Ok::<_, Infallible>(event), following))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(events).keep_alive(keep_alive).into_response())
}

struct Following {
    hello: Option<ExecOutput>,
    events: mpsc::Receiver<LiveEvent>,
    stdout: Utf8Pieces,
    stderr: Utf8Pieces,
    /// Events that wait for their turn, last first.
    held: Vec<Event>,
}

impl Following {
    async fn next(&mut self) -> Option<Event> {
        if let Some(hello) = self.hello.take() {
            return Some(event("started", &hello));
        }
        if let Some(held) = self.held.pop() {
            return Some(held);
        }
        loop {
            match self.events.recv().await? {
                LiveEvent::Stdout(bytes) => {
                    if let Some(data) = self.stdout.push(&bytes) {
                        return Some(event("stdout", &OutputChunk { data }));
                    }
                }
                LiveEvent::Stderr(bytes) => {
                    if let Some(data) = self.stderr.push(&bytes) {
                        return Some(event("stderr", &OutputChunk { data }));
                    }
                }
                LiveEvent::Exited {
                    exit_code,
                    status,
                    reason,
                    duration_ms,
                } => {
                    let exit = ExecExit {
                        exit_code,
                        status,
                        reason,
                        duration_ms,
                    };
                    self.held.push(event("exit", &exit));
                    if let Some(data) = self.stderr.finish() {
                        self.held.push(event("stderr", &OutputChunk { data }));
                    }
                    if let Some(data) = self.stdout.finish() {
                        self.held.push(event("stdout", &OutputChunk { data }));
                    }
                    return self.held.pop();
                }
            }
        }
    }
}

pub(super) fn event<T: Serialize>(name: &str, data: &T) -> Event {
    Event::default()
        .event(name)
        .json_data(data)
        .unwrap_or_else(|error| {
            tracing::error!(%error, name, "an event could not be written as JSON");
            Event::default().event("error").data("{}")
        })
}
