//! Streams the output of a command as server-sent events.
//!
//! Events of a resumable command have ids, which contain the offsets in both output streams. A client
//! that reconnects with `Last-Event-ID` continues from there, as browsers do automatically.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use boxwood_api::{ErrorBody, ExecExit, ExecOutput, OutputChunk, SpecRequest};
use boxwood_session::{ExecEvent, Since, StreamedExec};
use futures_util::{Stream, StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::start::{StartOptions, Started};
use super::utf8::Utf8Decoder;
use super::ws::ResumeOffsets;
use crate::http::App;
use crate::http::error::{ApiError, ApiResult};
use crate::http::json::JsonBody;
use crate::http::params::{InExec, InSession, Params};

/// Keeps proxies from closing the connection of a command without output.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The id of the `exit` event, which is the last.
const END_ID: &str = "end";

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamParams {
    /// Keep the command running for a while after its client disconnects. Events then have ids.
    #[serde(default)]
    resumable: bool,
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/exec/stream", tag = "live",
    params(StreamParams),
    request_body = SpecRequest,
    responses(
        (status = 200, content_type = "text/event-stream", body = ExecExit,
            description = "Events `started`, `stdout`, `stderr`, `exit`"),
        (status = 409, body = ErrorBody, description = "The session exists with different settings")))]
pub(crate) async fn exec(
    State(app): State<Arc<App>>,
    session: InSession,
    Params(params): Params<StreamParams>,
    JsonBody(request): JsonBody<SpecRequest>,
) -> ApiResult {
    let options = StartOptions {
        resumable: params.resumable,
        ..StartOptions::default()
    };
    let mut started = Started::start(&app, session, request, options).await?;
    if let Some(text) = started.request_stdin.take() {
        // Does not wait, because no input is on its way.
        if let Err(error) = started.exec.accept_stdin(text.as_bytes()).await {
            tracing::debug!(%error, "the command did not read all of its input");
        }
        started.exec.close_stdin();
    }
    if let ExecOutput::Started { stdin, .. } = &mut started.first_frame {
        // There is no input to acknowledge.
        *stdin = None;
    }
    Ok(answer(&app, started))
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}/stream", tag = "execs", operation_id = "watch_exec",
    params(ResumeOffsets,
        ("Last-Event-ID" = Option<String>, Header, description = "Continue after this event")),
    responses(
        (status = 200, content_type = "text/event-stream", body = ExecExit,
            description = "Events `resumed`, `stdout`, `stderr`, `exit` of a command started with `resumable`"),
        (status = 204, description = "The last event was `exit`: no more events"),
        (status = 410, body = ErrorBody, description = "The output is no longer kept: `replay_gone`")))]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    InExec(sessions, id, exec_id): InExec,
    Params(from): Params<ResumeOffsets>,
    headers: HeaderMap,
) -> ApiResult {
    let since = match headers.get(LAST_EVENT_ID) {
        None => from.read()?,
        Some(last) if last == END_ID => return Ok(StatusCode::NO_CONTENT.into_response()),
        Some(last) => offsets(last.to_str().unwrap_or_default())?,
    };
    let started = Started::resume(&sessions, id, exec_id, since)?;
    Ok(answer(&app, started))
}

/// Parses an id created by [`EventSource::with_id`].
fn offsets(id: &str) -> ApiResult<(Since, Since)> {
    let read = |text: &str| text.parse().map(Since::Offset).ok();
    id.split_once('-')
        .and_then(|(stdout, stderr)| Some((read(stdout)?, read(stderr)?)))
        .ok_or_else(|| {
            ApiError::validation(
                "Last-Event-ID must have the form `STDOUT-STDERR`, such as `120-0`",
            )
        })
}

fn answer(app: &App, started: Started) -> Response {
    let name = match started.first_frame {
        ExecOutput::Resumed { .. } => "resumed",
        _ => "started",
    };
    let first = event(name, &started.first_frame);
    let source = EventSource {
        stdout: OutputText::new(started.exec.stdout_offset()),
        stderr: OutputText::new(started.exec.stderr_offset()),
        exec: started.exec,
        has_ids: started.resumable,
    };
    let first = source.with_id(first);
    let rest = stream::unfold(source, |mut source| async move {
        let events = source.next().await?;
        Some((stream::iter(events), source))
    });
    // The client reconnects to the next daemon.
    let rest = rest.flatten().take_until(app.handover());
    respond(stream::iter([first]).chain(rest))
}

/// A response of server-sent events.
pub(crate) fn respond(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let events = events.map(Ok::<_, Infallible>);
    Sse::new(events).keep_alive(keep_alive).into_response()
}

struct EventSource {
    /// Dropping it detaches from the command.
    exec: StreamedExec,
    stdout: OutputText,
    stderr: OutputText,
    has_ids: bool,
}

/// One output stream.
struct OutputText {
    decoder: Utf8Decoder,
    /// Offset in the command's output.
    received: u64,
}

impl OutputText {
    fn new(received: u64) -> Self {
        Self {
            decoder: Utf8Decoder::default(),
            received,
        }
    }

    /// Returns the text that can be sent. An incomplete character at the end is kept back.
    fn push(&mut self, bytes: &[u8]) -> Option<OutputChunk> {
        self.received += bytes.len() as u64;
        let data = self.decoder.push(bytes)?;
        Some(OutputChunk { data })
    }

    fn finish(&mut self) -> Option<OutputChunk> {
        let data = self.decoder.finish()?;
        Some(OutputChunk { data })
    }

    /// The offset behind the text that was returned.
    fn sent(&self) -> u64 {
        self.received - self.decoder.incomplete_len() as u64
    }
}

impl EventSource {
    /// The next events; `None` after the last ones.
    async fn next(&mut self) -> Option<Vec<Event>> {
        loop {
            let chunk = match self.exec.next().await? {
                ExecEvent::Stdout(bytes) => ("stdout", self.stdout.push(&bytes)),
                ExecEvent::Stderr(bytes) => ("stderr", self.stderr.push(&bytes)),
                ExecEvent::Exited(exit) => return Some(self.end(&exit)),
            };
            if let (name, Some(chunk)) = chunk {
                return Some(vec![self.with_id(event(name, &chunk))]);
            }
        }
    }

    /// The rest of the output and the exit event.
    fn end(&mut self, exit: &ExecExit) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(chunk) = self.stdout.finish() {
            events.push(self.with_id(event("stdout", &chunk)));
        }
        if let Some(chunk) = self.stderr.finish() {
            events.push(self.with_id(event("stderr", &chunk)));
        }
        events.push(self.tagged(event("exit", exit), END_ID));
        events
    }

    fn with_id(&self, event: Event) -> Event {
        let id = format!("{}-{}", self.stdout.sent(), self.stderr.sent());
        self.tagged(event, &id)
    }

    fn tagged(&self, event: Event, id: &str) -> Event {
        if self.has_ids { event.id(id) } else { event }
    }
}

pub(crate) fn event<T: Serialize>(name: &str, data: &T) -> Event {
    Event::default()
        .event(name)
        .json_data(data)
        .unwrap_or_else(|error| {
            tracing::error!(%error, name, "failed to serialise an event");
            Event::default().event("error").data("{}")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_point_to_character_boundaries() {
        let mut stream = OutputText::new(10);
        let text = "a字b".as_bytes();
        assert_eq!(stream.push(&text[..2]).map(|it| it.data), Some("a".into()));
        assert_eq!(stream.sent(), 11, "before the incomplete character");
        assert_eq!(stream.push(&text[2..3]), None);
        assert_eq!(stream.sent(), 11);
        assert_eq!(
            stream.push(&text[3..]).map(|it| it.data),
            Some("字b".into())
        );
        assert_eq!(stream.sent(), 15);
        assert_eq!(stream.push(b"\xe5"), None);
        assert!(stream.finish().is_some());
        assert_eq!(stream.sent(), 16);
    }

    #[test]
    fn ids_round_trip() {
        let read = offsets("12-3").expect("an id");
        assert_eq!(read, (Since::Offset(12), Since::Offset(3)));
        for wrong in ["", "1", "1-", "-1", "a-b", "1-2-3"] {
            assert!(offsets(wrong).is_err(), "{wrong}");
        }
    }
}
