//! The HTTP+SSE transport of protocol version 2024-11-05: one stream to the client, and `POST` requests
//! from it.
//!
//! The session ends with its stream, which cannot be resumed.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};

use crate::OnDrop;
use crate::agent_server::Answer;
use crate::gateway::Inner;
use crate::gateway::client_session::{Transport, requests};
use crate::gateway::error::RpcError;
use crate::gateway::http::request::{self, Accepts, HttpRequest};
use crate::gateway::http::{response, sse, streamable};
use crate::session_activity::Kind as Use;
use crate::wire::{BodyPermit, Kind, Message};

const STREAM_PATH: &str = "sse";
const MESSAGES_PATH: &str = "messages";
const SESSION_PARAMETER: &str = "sessionId";

pub(crate) async fn open(inner: &Arc<Inner>, request: HttpRequest) -> Answer {
    if request.head.method != Method::GET {
        return response::method_not_allowed("GET");
    }
    if !Accepts::of(&request.head.headers).events {
        let text = "header `Accept` must include text/event-stream";
        return response::refuse(StatusCode::NOT_ACCEPTABLE, text);
    }
    if let Err(error) = streamable::check(inner, &request.target).await {
        return response::refused(&error, None);
    }
    let path = request.head.uri.path();
    let base_path = path.strip_suffix(STREAM_PATH).unwrap_or(path).to_owned();
    let transport = Transport::LegacySse;
    let session = inner
        .sessions
        .open(request.target, request.principal, transport);
    let Some(session) = session else {
        return response::full();
    };
    let opening = format!(
        "event: endpoint\ndata: {base_path}{MESSAGES_PATH}?{SESSION_PARAMETER}={}\n\n",
        session.id
    );
    let reader = session.standalone_stream.reader(None);
    let guards = (
        inner.sessions.hold(&session, Use::Stream),
        session.open_stream(),
    );
    // Holds only the id, because the body may outlive the session.
    let (inner, id) = (Arc::clone(inner), Arc::clone(&session.id));
    let keep_alive = inner.settings.keep_alive;
    let ends = OnDrop::new(move || inner.sessions.end(&id));
    sse::respond(reader, None, opening.into(), keep_alive, (guards, ends))
}

pub(crate) async fn message(inner: &Arc<Inner>, request: HttpRequest, body: &Bytes) -> Answer {
    if request.head.method != Method::POST {
        return response::method_not_allowed("POST");
    }
    if body.len() > inner.settings.max_body {
        return response::too_large(inner.settings.max_body);
    }
    let pairs = request.head.uri.query().unwrap_or_default().split('&');
    let mut ids = pairs
        .filter_map(|pair| pair.split_once('='))
        .filter(|(key, _)| *key == SESSION_PARAMETER);
    let Some((_, id)) = ids.next() else {
        let text = format!(
            "query parameter `{SESSION_PARAMETER}` is missing; use the URL of the `endpoint` event"
        );
        return response::refuse(StatusCode::BAD_REQUEST, &text);
    };
    let principal = request.principal.as_deref();
    let found = inner.sessions.find(id, &request.target, principal);
    let found = found.filter(|session| session.transport == Transport::LegacySse);
    let Some(session) = found else {
        return response::no_session();
    };
    if !request::is_json(&request.head.headers) {
        let text = "send the body as `Content-Type: application/json`";
        return response::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    }
    let permit = request.head.extensions.get::<BodyPermit>();
    let message = match Message::parse(body).and_then(Message::of_client) {
        Ok(message) => message.counted(permit),
        Err(bad) => return response::refused(&RpcError::unreadable(&bad), None),
    };
    let stream = &session.standalone_stream;
    if message.kind() == Kind::Request && stream.is_backlogged() {
        let text = "too many unread responses on the SSE stream; read the stream first";
        return response::refuse(StatusCode::TOO_MANY_REQUESTS, text);
    }
    requests::dispatch(inner, &session, message, stream, None).await;
    response::bodiless(StatusCode::ACCEPTED)
}
