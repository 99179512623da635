//! `POST`: messages of a client's, and what is answered.
//!
//! An answer that comes alone and soon is plain JSON. When something else comes before it, or it takes
//! long, the response is a stream of events that the client can come back to.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderValue, StatusCode};
use tokio::time::timeout;

use super::budget::Kept;
use super::outbox::{Outbox, Settled};
use super::refusal::Refusal;
use super::session::{Session, Way};
use super::sse::{self, Manner};
use super::web::{self as answers, Accepts, Asked};
use super::{Inner, Target, incoming, modern, versions};
use crate::attendance::Kind as Use;
use crate::http_server::Answer;
use crate::wire::{Burden, Kind, Message, Payload};

/// Proxies and clients give up on a response that does not begin.
const SILENT_FOR: Duration = Duration::from_secs(5);

pub(crate) async fn answer(inner: &Arc<Inner>, asked: Asked, body: Bytes) -> Answer {
    if body.len() > inner.settings.max_body {
        let most = inner.settings.max_body;
        let text = format!("the body has more than {most} bytes");
        return answers::refuse(StatusCode::PAYLOAD_TOO_LARGE, &text);
    }
    let burden = asked.head.extensions.get::<Burden>();
    let payload = Payload::of_client(&body).map(|payload| payload.counted(burden));
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
        return answers::refuse(StatusCode::NOT_ACCEPTABLE, text);
    }
    if !answers::is_json(&asked.head.headers) {
        let text = "send `content-type: application/json`";
        return answers::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    }
    match payload {
        Ok(Payload::One(message)) if is_beginning(&message, &asked) => {
            begin(inner, asked, message, accepts).await
        }
        Ok(payload) => go_on(inner, &asked, payload, accepts).await,
        Err(bad) => {
            let refusal = Refusal {
                status: StatusCode::BAD_REQUEST,
                ..Refusal::new(bad.code(), bad.to_string())
            };
            answers::refused(&refusal, None)
        }
    }
}

fn is_beginning(message: &Message, asked: &Asked) -> bool {
    message.kind() == Kind::Request
        && message.method() == Some("initialize")
        && !asked.head.headers.contains_key(answers::SESSION)
}

async fn begin(inner: &Arc<Inner>, asked: Asked, message: Message, accepts: Accepts) -> Answer {
    if let Err(refusal) = check(inner, &asked.target).await {
        return answers::refused(&refusal, message.id());
    }
    let session = inner.sessions.open(
        asked.target,
        asked.principal.map(Into::into),
        Way::Streamable,
    );
    let Some(session) = session else {
        return answers::full();
    };
    // A client that is gone before it hears the session's id can never use it.
    let unheard = Unheard {
        inner: Arc::clone(inner),
        session: Some(Arc::clone(&session)),
    };
    let mut answer = exchange(inner, &session, vec![message], accepts, Layout::Single).await;
    unheard.heard();
    let is_begun = session.greeted().is_some() || is_events(&answer);
    if let (true, Ok(id)) = (is_begun, HeaderValue::from_str(session.id())) {
        answer.headers_mut().insert(answers::SESSION, id);
    }
    answer
}

/// A server that is not there, or not to be started, gets no sessions.
pub(crate) async fn check(inner: &Inner, target: &Target) -> Result<(), Refusal> {
    match target {
        Target::One(name) if !inner.house.names().contains(name) => {
            let found = inner.house.server(name).await;
            found.map(drop).map_err(|error| Refusal::from(&error))
        }
        Target::One(_) | Target::All => Ok(()),
    }
}

struct Unheard {
    inner: Arc<Inner>,
    session: Option<Arc<Session>>,
}

impl Unheard {
    fn heard(mut self) {
        self.session = None;
    }
}

impl Drop for Unheard {
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

async fn go_on(inner: &Arc<Inner>, asked: &Asked, payload: Payload, accepts: Accepts) -> Answer {
    let session = match find(inner, asked) {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    let version = session.greeted().map(|greeted| greeted.version.as_str());
    let (messages, layout) = match payload {
        Payload::One(message) => (vec![message], Layout::Single),
        Payload::Batch(messages) if version.is_some_and(versions::has_batches) => {
            (messages, Layout::Batch)
        }
        Payload::Batch(_) => {
            let text = "this revision of the protocol has no batches; send one message at a time";
            return answers::refuse(StatusCode::BAD_REQUEST, text);
        }
    };
    if messages
        .iter()
        .any(|message| message.kind() == Kind::Request)
    {
        return exchange(inner, &session, messages, accepts, layout).await;
    }
    // Nobody waits for a stream.
    incoming::take(inner, &session, messages, &Outbox::default(), false).await;
    answers::bodiless(StatusCode::ACCEPTED)
}

/// The session that a request names, when it is this client's.
pub(crate) fn find(inner: &Inner, asked: &Asked) -> Result<Arc<Session>, Box<Answer>> {
    let Some(id) = asked.header(&answers::SESSION) else {
        let text = "`Mcp-Session-Id` is missing; begin with `initialize` and send back what its answer has there";
        return Err(Box::new(answers::refuse(StatusCode::BAD_REQUEST, text)));
    };
    let principal = asked.principal.as_deref();
    let found = inner.sessions.find(id, &asked.target, principal);
    let found = found.filter(|session| session.way() == Way::Streamable);
    let session = found.ok_or_else(|| Box::new(answers::no_session()))?;
    let spoken = session.greeted().map(|greeted| greeted.version.as_str());
    match asked.head.headers.get(&answers::VERSION) {
        None => Ok(session),
        Some(version) => match version.to_str() {
            Ok(version) if versions::is_known(version) || spoken == Some(version) => Ok(session),
            _ => {
                let known = versions::known();
                let text = format!("`MCP-Protocol-Version` must be one of {known}");
                Err(Box::new(answers::refuse(StatusCode::BAD_REQUEST, &text)))
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
    session: &Arc<Session>,
    messages: Vec<Message>,
    accepts: Accepts,
    layout: Layout,
) -> Answer {
    let outbox = Outbox::of(inner.budget.of(session.principal()));
    incoming::take(inner, session, messages, &outbox, accepts.events).await;
    let waiting = Waiting(Some(outbox.clone()));
    let settled = if !accepts.events {
        Settled::Answers(outbox.answers().await)
    } else if accepts.json {
        let settled = timeout(SILENT_FOR, outbox.settled()).await;
        settled.unwrap_or(Settled::Events)
    } else {
        Settled::Events
    };
    waiting.over();
    match settled {
        Settled::Answers(answers) if !answers.is_empty() => {
            let json = laid_out(&answers, layout);
            answers::json(StatusCode::OK, answers, json)
        }
        // Cancelled: there is no answer, and nobody looks for one.
        Settled::Answers(_) if !accepts.events => answers::bodiless(StatusCode::ACCEPTED),
        Settled::Answers(_) | Settled::Events => stream(inner, session, &outbox),
    }
}

/// Marks a stream whose client left before it began.
struct Waiting(Option<Outbox>);

impl Waiting {
    fn over(mut self) {
        self.0 = None;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(outbox) = self.0.take() {
            outbox.abandon();
        }
    }
}

fn stream(inner: &Inner, session: &Arc<Session>, outbox: &Outbox) -> Answer {
    let number = session.next_stream();
    inner.sessions.shelf().put(session.id(), number, outbox);
    let version = session.greeted().map(|greeted| greeted.version.as_str());
    let manner = Manner {
        stream: Some(number),
        is_primed: version.is_some_and(versions::is_primed),
        opening: None,
        keep_alive: inner.settings.keep_alive,
    };
    let held = inner.sessions.hold(session, Use::Stream);
    sse::answer(outbox.reader(Some(0)), manner, held)
}

fn laid_out(answers: &[Kept], layout: Layout) -> Bytes {
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
