//! `POST`: messages of a client and their responses.
//!
//! A single response that comes soon is sent as JSON. If other messages come first or the call takes long,
//! the response is an SSE stream that can be resumed.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderValue, StatusCode};
use tokio::time::timeout;

use crate::agent_server::Answer;
use crate::gateway::Inner;
use crate::gateway::Target;
use crate::gateway::client_session::dispatch;
use crate::gateway::client_session::{ClientSession, Transport};
use crate::gateway::error::{INVALID_REQUEST, RpcError};
use crate::gateway::event_stream::budget::BufferedMessage;
use crate::gateway::event_stream::{EventStream, FirstOutput};
use crate::gateway::http::request::{self, Accepts, HttpRequest};
use crate::gateway::http::response;
use crate::gateway::http::sse::{self, SseOptions};
use crate::gateway::modern;
use crate::gateway::protocol_versions;
use crate::session_activity::Kind as Use;
use crate::wire::{BadMessage, BodyPermit, Kind, Message, Payload};

/// Proxies and clients time out if the response does not start.
const SILENT_FOR: Duration = Duration::from_secs(5);

pub(crate) async fn answer(inner: &Arc<Inner>, asked: HttpRequest, body: Bytes) -> Answer {
    if body.len() > inner.settings.max_body {
        let most = inner.settings.max_body;
        let text = format!("request body exceeds {most} bytes");
        return response::refuse(StatusCode::PAYLOAD_TOO_LARGE, &text);
    }
    let permit = asked.head.extensions.get::<BodyPermit>();
    let payload = Payload::of_client(&body).map(|payload| payload.counted(permit));
    let message = match &payload {
        Ok(Payload::One(message)) => Some(message),
        _ => None,
    };
    if modern::is_modern(&asked.head.headers, message) {
        drop(payload);
        let principal = asked.principal.as_deref();
        let modern = &inner.modern;
        return modern
            .answer(&asked.target, principal, &asked.head, &body)
            .await;
    }
    drop(body);
    let accepts = Accepts::of(&asked.head.headers);
    if !accepts.json && !accepts.events {
        let text = "accept `application/json` and `text/event-stream`";
        return response::refuse(StatusCode::NOT_ACCEPTABLE, text);
    }
    if !request::is_json(&asked.head.headers) {
        let text = "send `content-type: application/json`";
        return response::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    }
    match payload {
        Ok(Payload::One(message)) if is_beginning(&message, &asked) => {
            begin(inner, asked, message, accepts).await
        }
        Ok(payload) => go_on(inner, &asked, payload, accepts).await,
        Err(bad) => response::refused(&RpcError::unreadable(&bad), None),
    }
}

fn is_beginning(message: &Message, asked: &HttpRequest) -> bool {
    message.kind() == Kind::Request
        && message.method() == Some("initialize")
        && !asked.head.headers.contains_key(request::SESSION_ID)
}

async fn begin(
    inner: &Arc<Inner>,
    asked: HttpRequest,
    message: Message,
    accepts: Accepts,
) -> Answer {
    if let Err(error) = check(inner, &asked.target).await {
        return response::refused(&error, message.id());
    }
    let session = inner.sessions.open(
        asked.target,
        asked.principal.map(Into::into),
        Transport::StreamableHttp,
    );
    let Some(session) = session else {
        return response::full();
    };
    // A client that disconnects before it has the session id cannot use the session.
    let unheard = UnusedSession {
        inner: Arc::clone(inner),
        session: Some(Arc::clone(&session)),
    };
    let mut answer = exchange(inner, &session, vec![message], accepts, Layout::Single).await;
    unheard.heard();
    let is_begun = session.initialized().is_some() || is_events(&answer);
    if let (true, Ok(id)) = (is_begun, HeaderValue::from_str(session.id())) {
        answer.headers_mut().insert(request::SESSION_ID, id);
    }
    answer
}

/// Refuses sessions of missing and disabled servers.
pub(crate) async fn check(inner: &Inner, target: &Target) -> Result<(), RpcError> {
    match target {
        Target::One(name) if !inner.registry.names().contains(name) => {
            let found = inner.registry.server(name).await;
            found.map(drop).map_err(|error| RpcError::from(&error))
        }
        Target::One(_) | Target::All => Ok(()),
    }
}

struct UnusedSession {
    inner: Arc<Inner>,
    session: Option<Arc<ClientSession>>,
}

impl UnusedSession {
    fn heard(mut self) {
        self.session = None;
    }
}

impl Drop for UnusedSession {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.inner.sessions.end(session.id());
        }
    }
}

fn is_events(answer: &Answer) -> bool {
    let kind = answer.headers().get(::http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes() == sse::EVENT_STREAM.as_bytes())
}

async fn go_on(
    inner: &Arc<Inner>,
    asked: &HttpRequest,
    payload: Payload,
    accepts: Accepts,
) -> Answer {
    let session = match find(inner, asked) {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    let layout = match payload {
        Payload::One(_) => Layout::Single,
        Payload::Batch(_) => Layout::Batch,
    };
    let messages = match messages(&session, Ok(payload)) {
        Ok(messages) => messages,
        Err(error) => return response::refused(&error, None),
    };
    if messages
        .iter()
        .any(|message| message.kind() == Kind::Request)
    {
        return exchange(inner, &session, messages, accepts, layout).await;
    }
    // Without requests there are no responses.
    dispatch::dispatch_body(inner, &session, messages, &EventStream::default(), false).await;
    response::bodiless(StatusCode::ACCEPTED)
}

/// The messages of a body, if the protocol version of the session allows it.
pub(crate) fn messages(
    session: &ClientSession,
    payload: Result<Payload, BadMessage>,
) -> Result<Vec<Message>, RpcError> {
    let text = match payload {
        Ok(Payload::One(message)) => return Ok(vec![message]),
        Ok(Payload::Batch(messages))
            if session
                .version()
                .is_some_and(protocol_versions::has_batches) =>
        {
            return Ok(messages);
        }
        Ok(Payload::Batch(_)) => {
            "this protocol version does not support batches; send one message per request"
        }
        Err(bad) => return Err(RpcError::unreadable(&bad)),
    };
    Err(RpcError::new(INVALID_REQUEST, text))
}

/// Finds the session of a request, if it belongs to the client.
pub(crate) fn find(inner: &Inner, asked: &HttpRequest) -> Result<Arc<ClientSession>, Box<Answer>> {
    let Some(id) = asked.header(&request::SESSION_ID) else {
        let text = "header `Mcp-Session-Id` is missing; send `initialize` first and use the session id of its response";
        return Err(Box::new(response::refuse(StatusCode::BAD_REQUEST, text)));
    };
    let principal = asked.principal.as_deref();
    let found = inner.sessions.find(id, &asked.target, principal);
    let found = found.filter(|session| session.transport() == Transport::StreamableHttp);
    let session = found.ok_or_else(|| Box::new(response::no_session()))?;
    match asked.head.headers.get(&request::PROTOCOL_VERSION) {
        None => Ok(session),
        Some(version) => match version.to_str() {
            Ok(version)
                if protocol_versions::is_known(version) || session.version() == Some(version) =>
            {
                Ok(session)
            }
            _ => {
                let known = protocol_versions::known();
                let text = format!("`MCP-Protocol-Version` must be one of {known}");
                Err(Box::new(response::refuse(StatusCode::BAD_REQUEST, &text)))
            }
        },
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Single,
    Batch,
}

async fn exchange(
    inner: &Arc<Inner>,
    session: &Arc<ClientSession>,
    messages: Vec<Message>,
    accepts: Accepts,
    layout: Layout,
) -> Answer {
    let event_stream = EventStream::of(inner.budget.of(session.principal()));
    dispatch::dispatch_body(inner, session, messages, &event_stream, accepts.events).await;
    let waiting = AbandonGuard(Some(event_stream.clone()));
    let settled = if !accepts.events {
        FirstOutput::Responses(event_stream.answers().await)
    } else if accepts.json {
        let settled = timeout(SILENT_FOR, event_stream.first_output()).await;
        settled.unwrap_or(FirstOutput::Stream)
    } else {
        FirstOutput::Stream
    };
    waiting.over();
    match settled {
        FirstOutput::Responses(answers) if !answers.is_empty() => {
            let json = laid_out(&answers, layout);
            response::json(StatusCode::OK, answers, json)
        }
        // The request was cancelled, so there is no response.
        FirstOutput::Responses(_) if !accepts.events => response::bodiless(StatusCode::ACCEPTED),
        FirstOutput::Responses(_) | FirstOutput::Stream => stream(inner, session, &event_stream),
    }
}

/// Marks the stream as abandoned if the client disconnects before it starts.
struct AbandonGuard(Option<EventStream>);

impl AbandonGuard {
    fn over(mut self) {
        self.0 = None;
    }
}

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        if let Some(event_stream) = self.0.take() {
            event_stream.abandon();
        }
    }
}

fn stream(inner: &Inner, session: &Arc<ClientSession>, event_stream: &EventStream) -> Answer {
    let number = session.add_stream(event_stream);
    let version = session.version();
    let options = SseOptions {
        stream: Some(number),
        is_primed: version.is_some_and(protocol_versions::is_primed),
        opening: None,
        keep_alive: inner.settings.keep_alive,
    };
    let held = inner.sessions.hold(session, Use::Stream);
    sse::answer(event_stream.reader(Some(0)), options, held)
}

fn laid_out(answers: &[BufferedMessage], layout: Layout) -> Bytes {
    if let (Layout::Single, [answer]) = (layout, answers) {
        return answer.json.clone();
    }
    let length: usize = answers.iter().map(|answer| answer.json.len() + 1).sum();
    let mut out = BytesMut::with_capacity(length + 1);
    for (index, answer) in answers.iter().enumerate() {
        out.put_u8(if index == 0 { b'[' } else { b',' });
        out.put_slice(&answer.json);
    }
    out.put_u8(b']');
    out.freeze()
}
