//! The transport of the first revision: one stream for everything to the client, and posts from it.
//!
//! The session ends with its stream; there is nothing to come back to.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};

use super::refusal::Refusal;
use super::session::{Listens, Way};
use super::sse::{self, Manner};
use super::web::{self as answers, Accepts, Asked};
use super::{Inner, incoming, post, versions};
use crate::attendance::{Held, Kind as Use};
use crate::http_server::Answer;
use crate::wire::{Burden, Kind, Payload};

const OPENED_AT: &str = "sse";
const MESSAGES_AT: &str = "messages";
const ID: &str = "sessionId";

pub(crate) async fn open(inner: &Arc<Inner>, asked: Asked) -> Answer {
    if asked.head.method != Method::GET {
        return answers::not_allowed("GET");
    }
    if !Accepts::of(&asked.head.headers).events {
        let text = "accept `text/event-stream`";
        return answers::refuse(StatusCode::NOT_ACCEPTABLE, text);
    }
    if let Err(refusal) = post::check(inner, &asked.target).await {
        return answers::refused(&refusal, None);
    }
    let path = asked.head.uri.path();
    let place = path.strip_suffix(OPENED_AT).unwrap_or(path).to_owned();
    let session = inner
        .sessions
        .open(asked.target, asked.principal.map(Into::into), Way::OldSse);
    let Some(session) = session else {
        return answers::full();
    };
    let opening = format!(
        "event: endpoint\ndata: {place}{MESSAGES_AT}?{ID}={}\n\n",
        session.id()
    );
    let manner = Manner {
        stream: None,
        is_primed: false,
        opening: Some(opening.into()),
        keep_alive: inner.settings.keep_alive,
    };
    let reader = session.general().reader(None);
    let ends = Ends {
        _held: inner.sessions.hold(&session, Use::Stream),
        _listens: session.listens(),
        inner: Arc::clone(inner),
        id: Arc::clone(session.id()),
    };
    sse::answer(reader, manner, ends)
}

/// Ends the session with its stream, and does not hold on to it: a body that nobody reads any more may stay
/// for long after the session.
struct Ends {
    _held: Held,
    _listens: Listens,
    inner: Arc<Inner>,
    id: Arc<str>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.inner.sessions.end(&self.id);
    }
}

pub(crate) async fn message(inner: &Arc<Inner>, asked: Asked, body: &Bytes) -> Answer {
    if asked.head.method != Method::POST {
        return answers::not_allowed("POST");
    }
    if body.len() > inner.settings.max_body {
        let most = inner.settings.max_body;
        let text = format!("the body has more than {most} bytes");
        return answers::refuse(StatusCode::PAYLOAD_TOO_LARGE, &text);
    }
    let pairs = asked.head.uri.query().unwrap_or_default().split('&');
    let mut ids = pairs
        .filter_map(|pair| pair.split_once('='))
        .filter(|(key, _)| *key == ID);
    let Some((_, id)) = ids.next() else {
        let text = format!("`{ID}` is missing; post to the address that the stream begins with");
        return answers::refuse(StatusCode::BAD_REQUEST, &text);
    };
    let principal = asked.principal.as_deref();
    let found = inner.sessions.find(id, &asked.target, principal);
    let found = found.filter(|session| session.way() == Way::OldSse);
    let Some(session) = found else {
        return answers::no_session();
    };
    if !answers::is_json(&asked.head.headers) {
        let text = "send `content-type: application/json`";
        return answers::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    }
    let version = session.greeted().map(|greeted| greeted.version.as_str());
    let burden = asked.head.extensions.get::<Burden>();
    let payload = Payload::of_client(body).map(|payload| payload.counted(burden));
    let messages = match payload {
        Ok(Payload::One(message)) => vec![message],
        Ok(Payload::Batch(messages)) if version.is_some_and(versions::has_batches) => messages,
        Ok(Payload::Batch(_)) => {
            let text = "this revision of the protocol has no batches; send one message at a time";
            return answers::refuse(StatusCode::BAD_REQUEST, text);
        }
        Err(bad) => {
            let refusal = Refusal {
                status: StatusCode::BAD_REQUEST,
                ..Refusal::new(bad.code(), bad.to_string())
            };
            return answers::refused(&refusal, None);
        }
    };
    for message in messages {
        if message.kind() == Kind::Request && session.general().is_overfull() {
            let text = "the stream has too many answers that nobody has read; read it first";
            return answers::refuse(StatusCode::TOO_MANY_REQUESTS, text);
        }
        incoming::take_for_general(inner, &session, message).await;
    }
    answers::bodiless(StatusCode::ACCEPTED)
}
