//! The Streamable HTTP transport of legacy protocol versions: `POST`, `GET` and `DELETE`.
//!
//! A response that comes soon is sent as JSON. If other messages come first or the call takes long, the
//! response is an SSE stream that can be resumed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use tokio::time::timeout;

use crate::OnDrop;
use crate::agent_server::Answer;
use crate::gateway::client_session::requests::{CloseOnDrop, dispatch};
use crate::gateway::client_session::{ClientSession, STANDALONE_STREAM, Transport};
use crate::gateway::error::RpcError;
use crate::gateway::event_stream::{EventStream, FirstOutput, Mode};
use crate::gateway::http::request::{self, Accepts, HttpRequest};
use crate::gateway::http::response;
use crate::gateway::http::sse::{self, EventId};
use crate::gateway::{Inner, Target, modern};
use crate::protocol_versions;
use crate::session_activity::Kind as Use;
use crate::wire::{BodyPermit, Kind, Message};

/// Without a response after this time, the SSE stream starts: proxies and clients time out otherwise.
const STREAM_AFTER: Duration = Duration::from_secs(5);
/// The modern protocol version has neither standalone streams nor sessions.
const ONLY_POST: &str = "this protocol version only supports POST";

/// A message of a client and its response.
pub(crate) async fn post(inner: &Arc<Inner>, request: HttpRequest, body: Bytes) -> Answer {
    if body.len() > inner.settings.max_body {
        return response::too_large(inner.settings.max_body);
    }
    let permit = request.head.extensions.get::<BodyPermit>();
    let message = Message::parse(&body).map(|message| message.counted(permit));
    drop(body);
    if modern::is_modern(&request.head.headers, message.as_ref().ok()) {
        return modern::answer(inner, request, message).await;
    }
    let accepts = Accepts::of(&request.head.headers);
    if !accepts.json && !accepts.events {
        let text = "header `Accept` must include application/json and text/event-stream";
        return response::refuse(StatusCode::NOT_ACCEPTABLE, text);
    }
    if !request::is_json(&request.head.headers) {
        let text = "send the body as `Content-Type: application/json`";
        return response::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    }
    match message.and_then(Message::of_client) {
        Ok(message) if begins_session(&message, &request) => {
            begin_session(inner, request, message, accepts).await
        }
        Ok(message) => continue_session(inner, &request, message, accepts).await,
        Err(bad) => response::refused(&RpcError::unreadable(&bad), None),
    }
}

fn begins_session(message: &Message, request: &HttpRequest) -> bool {
    message.kind() == Kind::Request
        && message.method() == Some("initialize")
        && !request.head.headers.contains_key(request::SESSION_ID)
}

async fn begin_session(
    inner: &Arc<Inner>,
    request: HttpRequest,
    message: Message,
    accepts: Accepts,
) -> Answer {
    if let Err(error) = check(inner, &request.target).await {
        return response::refused(&error, message.id());
    }
    let transport = Transport::StreamableHttp;
    let session = inner
        .sessions
        .open(request.target, request.principal, transport);
    let Some(session) = session else {
        return response::full();
    };
    // A client that disconnects before it has the session id cannot use the session.
    let unused = OnDrop::new(|| inner.sessions.end(&session.id));
    let mut answer = exchange(inner, &session, message, accepts).await;
    unused.disarm();
    let has_session = session.initialized().is_some() || is_events(&answer);
    if let (true, Ok(id)) = (has_session, HeaderValue::from_str(&session.id)) {
        answer.headers_mut().insert(request::SESSION_ID, id);
    }
    answer
}

/// Refuses sessions of missing and disabled servers.
pub(crate) async fn check(inner: &Inner, target: &Target) -> Result<(), RpcError> {
    match target {
        Target::One(name) if !inner.registry.names().contains(name) => {
            inner.registry.server(name).await?;
        }
        Target::One(_) | Target::All => {}
    }
    Ok(())
}

fn is_events(answer: &Answer) -> bool {
    let kind = answer.headers().get(::http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes() == sse::EVENT_STREAM.as_bytes())
}

async fn continue_session(
    inner: &Arc<Inner>,
    request: &HttpRequest,
    message: Message,
    accepts: Accepts,
) -> Answer {
    let session = match find(inner, request) {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    if message.kind() == Kind::Request {
        return exchange(inner, &session, message, accepts).await;
    }
    dispatch(inner, &session, message, &session.standalone_stream, None).await;
    response::bodiless(StatusCode::ACCEPTED)
}

/// Finds the session of a request, if it belongs to the client.
pub(crate) fn find(
    inner: &Inner,
    request: &HttpRequest,
) -> Result<Arc<ClientSession>, Box<Answer>> {
    let Some(id) = request.header(&request::SESSION_ID) else {
        let text = "header `Mcp-Session-Id` is missing; send `initialize` first and use the session id of its response";
        return Err(Box::new(response::refuse(StatusCode::BAD_REQUEST, text)));
    };
    let principal = request.principal.as_deref();
    let found = inner.sessions.find(id, &request.target, principal);
    let found = found.filter(|session| session.transport == Transport::StreamableHttp);
    let session = found.ok_or_else(|| Box::new(response::no_session()))?;
    let version = request.head.headers.get(&request::PROTOCOL_VERSION);
    let is_allowed = version.is_none_or(|version| {
        version.to_str().is_ok_and(|version| {
            protocol_versions::is_known(version) || session.version() == Some(version)
        })
    });
    if !is_allowed {
        let known = protocol_versions::known();
        let text = format!("`MCP-Protocol-Version` must be one of {known}");
        return Err(Box::new(response::refuse(StatusCode::BAD_REQUEST, &text)));
    }
    Ok(session)
}

async fn exchange(
    inner: &Arc<Inner>,
    session: &Arc<ClientSession>,
    message: Message,
    accepts: Accepts,
) -> Answer {
    let client_budget = inner.budget.of(session.principal());
    let mode = if accepts.events {
        Mode::Resumable
    } else {
        Mode::ResponseOnly
    };
    let event_stream = EventStream::new(client_budget, mode);
    let closing = CloseOnDrop(event_stream.clone());
    dispatch(inner, session, message, &event_stream, Some(closing)).await;
    // If the client disconnects before the stream starts.
    let waiting = OnDrop::new(|| event_stream.abandon());
    let first = match accepts {
        Accepts { events: false, .. } => event_stream.first_output().await,
        Accepts { json: false, .. } => FirstOutput::Stream,
        Accepts { .. } => timeout(STREAM_AFTER, event_stream.first_output())
            .await
            .unwrap_or(FirstOutput::Stream),
    };
    waiting.disarm();
    if let FirstOutput::Response(answer) = first {
        return response::json(StatusCode::OK, answer.into_bytes());
    }
    if !accepts.events {
        // The request was cancelled.
        return response::bodiless(StatusCode::ACCEPTED);
    }
    let number = session.add_stream(&event_stream);
    let guard = inner.sessions.hold(session, Use::Stream);
    let (reader, keep_alive) = (event_stream.reader(Some(0)), inner.settings.keep_alive);
    sse::resumable(session, number, reader, keep_alive, guard)
}

/// `GET` opens or resumes a stream.
pub(crate) fn get(inner: &Inner, request: &HttpRequest) -> Answer {
    if modern::is_modern(&request.head.headers, None) {
        return response::refuse(StatusCode::METHOD_NOT_ALLOWED, ONLY_POST);
    }
    if !Accepts::of(&request.head.headers).events {
        let text = "header `Accept` must include text/event-stream";
        return response::refuse(StatusCode::NOT_ACCEPTABLE, text);
    }
    let session = match find(inner, request) {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    let (number, reader) = match request.header(&request::LAST_EVENT_ID) {
        None => (STANDALONE_STREAM, session.standalone_stream.reader(None)),
        Some(last) => {
            let found = EventId::parse(last).and_then(|last| {
                let event_stream = session.find_stream(last.stream)?;
                Some((last.stream, event_stream.reader_after(last.event)?))
            });
            let Some(found) = found else {
                let text =
                    "events after this `Last-Event-ID` are no longer available; omit the header";
                return response::refuse(StatusCode::BAD_REQUEST, text);
            };
            found
        }
    };
    let guard = (
        inner.sessions.hold(&session, Use::Stream),
        session.open_stream(),
    );
    let keep_alive = inner.settings.keep_alive;
    sse::resumable(&session, number, reader, keep_alive, guard)
}

/// `DELETE` ends the session.
pub(crate) fn delete(inner: &Inner, request: &HttpRequest) -> Answer {
    if modern::is_modern(&request.head.headers, None) {
        return response::refuse(StatusCode::METHOD_NOT_ALLOWED, ONLY_POST);
    }
    match find(inner, request) {
        Ok(session) => {
            inner.sessions.end(&session.id);
            // The official Python client treats 202 as an error.
            response::bodiless(StatusCode::NO_CONTENT)
        }
        Err(refused) => *refused,
    }
}
