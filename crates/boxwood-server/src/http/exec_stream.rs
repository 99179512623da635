//! A live command as server-sent events, for clients that only want to watch.
//!
//! Events of a resumable command have ids, which say how much of each stream had been sent by then. A
//! client that comes back with the last one it saw goes on from there, as browsers do by themselves.
#![expect(
    unused_qualifications,
    reason = "the expansion of `utoipa::path` qualifies the parameter types"
)]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use boxwood_api::{ErrorBody, ExecExit, ExecOutput, OutputChunk, SpecRequest};
use boxwood_session::{LiveControl, LiveEvent, LiveExec, Resume, Since, Stdio};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use utoipa::IntoParams;

use super::error::{ApiError, ApiResult};
use super::exec_ws::From;
use super::ids::{InExec, InSession, Params};
use super::json::JsonBody;
use super::utf8::Utf8Pieces;
use super::{App, sessions, socket, within};

/// Keeps proxies from thinking that a quiet command is a dead connection.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The id of the `exit` event: there is nothing after it.
const THE_END: &str = "end";

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Choice {
    /// Whether the command outlives the loss of its client for a while, and events have ids.
    #[serde(default)]
    resumable: bool,
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/exec/stream", tag = "live",
    params(("session_id" = String, Path,), Choice),
    request_body = SpecRequest,
    responses(
        (status = 200, content_type = "text/event-stream", body = ExecExit,
            description = "Events `started`, `stdout`, `stderr`, `exit`"),
        (status = 400, body = ErrorBody, description = "The spec makes no sense or is refused"),
        (status = 409, body = ErrorBody, description = "The session exists with other settings"),
        (status = 503, body = ErrorBody, description = "No box can be started")))]
pub(super) async fn exec(
    State(app): State<Arc<App>>,
    InSession { id, sessions }: InSession,
    Params(choice): Params<Choice>,
    JsonBody(request): JsonBody<SpecRequest>,
) -> ApiResult<Response> {
    let admission = sessions::judge_command(&app, id.clone(), request).await?;
    let stdin = admission.exec.stdin().map(str::to_owned);
    let streams = match stdin {
        Some(_) => Stdio::Pipes,
        None => Stdio::Output,
    };
    let resume = if choice.resumable {
        Resume::Allowed
    } else {
        Resume::Never
    };
    let notices = admission.exec.notices().to_vec();
    let timeout = admission.exec.timeout();
    let starting = sessions.stream(admission, streams, resume);
    let live = within(app.start_patience, starting).await?;
    let hello = ExecOutput::Started {
        session_id: id,
        exec_id: live.exec_id(),
        notices,
        stdin: None,
        timeout_sec: Some(timeout.as_secs()),
    };
    let following = Following::new(&app, live, choice.resumable, hello);
    if let (Some(text), Some(input)) = (stdin, following.control.input()) {
        // Ends with the text or with the command, whichever comes first.
        tokio::spawn(async move {
            if let Err(error) = input.accept(text.as_bytes()).await {
                tracing::debug!(%error, "a command did not read all of its input");
            }
            input.close();
        });
    }
    Ok(answer(following))
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}/stream", tag = "execs", operation_id = "watch_exec",
    params(("session_id" = String, Path,), ("exec_id" = u64, Path,), From,
        ("Last-Event-ID" = Option<String>, Header, description = "Goes on after that event")),
    responses(
        (status = 200, content_type = "text/event-stream", body = ExecExit,
            description = "Events `resumed`, `stdout`, `stderr`, `exit` of a command that was started with `resumable`"),
        (status = 204, description = "The last event was the end: there is nothing to come back for"),
        (status = 400, body = ErrorBody, description = "An offset or the id makes no sense"),
        (status = 404, body = ErrorBody, description = "No such session, or no such command any more"),
        (status = 410, body = ErrorBody, description = "The output is no longer kept: `replay_gone`")))]
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    InExec {
        id,
        exec_id,
        sessions,
    }: InExec,
    Params(from): Params<From>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let (stdout, stderr) = match headers.get(LAST_EVENT_ID) {
        None => from.read()?,
        Some(last) if last == THE_END => return Ok(StatusCode::NO_CONTENT.into_response()),
        Some(last) => offsets(last.to_str().unwrap_or_default())?,
    };
    let live = sessions.resume_exec(&id, exec_id, stdout, stderr)?;
    let hello = ExecOutput::Resumed {
        session_id: id,
        exec_id,
        stdout: live.stdout_offset(),
        stderr: live.stderr_offset(),
        stdin: live.stdin_accepted(),
    };
    Ok(answer(Following::new(&app, live, true, hello)))
}

/// The other way round: [`Following::id`].
fn offsets(id: &str) -> ApiResult<(Since, Since)> {
    let read = |text: &str| text.parse().map(Since::Offset).ok();
    id.split_once('-')
        .and_then(|(stdout, stderr)| Some((read(stdout)?, read(stderr)?)))
        .ok_or_else(|| ApiError::validation("Last-Event-ID is not an id of these events"))
}

fn answer(following: Following) -> Response {
    let events = stream::unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((Ok::<_, Infallible>(event), following))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(events).keep_alive(keep_alive).into_response()
}

struct Following {
    hello: Option<ExecOutput>,
    /// Held for as long as somebody watches.
    control: LiveControl,
    events: mpsc::Receiver<LiveEvent>,
    stdout: Stream,
    stderr: Stream,
    has_ids: bool,
    /// Events that wait for their turn, last first.
    held: Vec<Event>,
    leaving: watch::Receiver<bool>,
}

/// One of the two.
struct Stream {
    pieces: Utf8Pieces,
    /// What of it has been sent, as bytes of the command's.
    sent: u64,
}

impl Stream {
    fn new(sent: u64) -> Self {
        Self {
            pieces: Utf8Pieces::default(),
            sent,
        }
    }

    /// The text that can be sent now. A character that has only begun is not, and does not count.
    fn push(&mut self, bytes: &[u8]) -> Option<OutputChunk> {
        let before = self.pieces.begun();
        let data = self.pieces.push(bytes)?;
        self.sent += (before + bytes.len() - self.pieces.begun()) as u64;
        Some(OutputChunk { data })
    }

    fn finish(&mut self) -> Option<OutputChunk> {
        self.sent += self.pieces.begun() as u64;
        let data = self.pieces.finish()?;
        Some(OutputChunk { data })
    }
}

impl Following {
    fn new(app: &App, live: LiveExec, has_ids: bool, hello: ExecOutput) -> Self {
        let (stdout, stderr) = (live.stdout_offset(), live.stderr_offset());
        let (control, events) = live.split();
        Self {
            hello: Some(hello),
            control,
            events,
            stdout: Stream::new(stdout),
            stderr: Stream::new(stderr),
            has_ids,
            held: Vec::new(),
            leaving: app.leaving.clone(),
        }
    }

    async fn next(&mut self) -> Option<Event> {
        if let Some(hello) = self.hello.take() {
            let name = match hello {
                ExecOutput::Resumed { .. } => "resumed",
                _ => "started",
            };
            return Some(self.with_id(event(name, &hello)));
        }
        if let Some(held) = self.held.pop() {
            return Some(held);
        }
        loop {
            let happened = tokio::select! {
                happened = self.events.recv() => happened?,
                // The client comes back, and finds the next daemon.
                () = socket::left(&self.leaving) => return None,
            };
            match happened {
                LiveEvent::Stdout(bytes) => {
                    if let Some(chunk) = self.stdout.push(&bytes) {
                        return Some(self.with_id(event("stdout", &chunk)));
                    }
                }
                LiveEvent::Stderr(bytes) => {
                    if let Some(chunk) = self.stderr.push(&bytes) {
                        return Some(self.with_id(event("stderr", &chunk)));
                    }
                }
                LiveEvent::Exited {
                    exit_code,
                    status,
                    reason,
                    duration_ms,
                    notices,
                } => {
                    let exit = ExecExit {
                        exit_code,
                        status,
                        reason,
                        duration_ms,
                        notices,
                    };
                    self.end(&exit);
                    return self.held.pop();
                }
            }
        }
    }

    /// Holds the end and what has to come before it.
    fn end(&mut self, exit: &ExecExit) {
        let stdout = self.stdout.finish();
        let after_stdout = self.id();
        let stderr = self.stderr.finish();
        let after_both = self.id();
        let exit = event("exit", exit);
        self.held.push(self.marked(exit, THE_END));
        if let Some(chunk) = stderr {
            let chunk = event("stderr", &chunk);
            self.held.push(self.marked(chunk, &after_both));
        }
        if let Some(chunk) = stdout {
            let chunk = event("stdout", &chunk);
            self.held.push(self.marked(chunk, &after_stdout));
        }
    }

    fn with_id(&self, event: Event) -> Event {
        self.marked(event, &self.id())
    }

    fn marked(&self, event: Event, id: &str) -> Event {
        if self.has_ids { event.id(id) } else { event }
    }

    fn id(&self) -> String {
        format!("{}-{}", self.stdout.sent, self.stderr.sent)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_never_stands_inside_a_character() {
        let mut stream = Stream::new(10);
        let text = "a字b".as_bytes();
        assert_eq!(stream.push(&text[..2]).map(|it| it.data), Some("a".into()));
        assert_eq!(stream.sent, 11, "after the letter, before the sign");
        assert_eq!(stream.push(&text[2..3]), None);
        assert_eq!(stream.sent, 11);
        assert_eq!(
            stream.push(&text[3..]).map(|it| it.data),
            Some("字b".into())
        );
        assert_eq!(stream.sent, 15);
        assert_eq!(stream.push(b"\xe5"), None);
        assert!(stream.finish().is_some());
        assert_eq!(stream.sent, 16);
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        let read = offsets("12-3").expect("an id");
        assert_eq!(read, (Since::Offset(12), Since::Offset(3)));
        for wrong in ["", "1", "1-", "-1", "a-b", "1-2-3"] {
            assert!(offsets(wrong).is_err(), "{wrong}");
        }
    }
}
