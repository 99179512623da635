//! `GET` opens or resumes a stream. `DELETE` ends the session.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use crate::agent_server::Answer;
use crate::gateway::Inner;
use crate::gateway::client_session::STANDALONE_STREAM;
use crate::gateway::http::post;
use crate::gateway::http::request::{self, Accepts, HttpRequest};
use crate::gateway::http::response;
use crate::gateway::http::sse::{self, EventId};
use crate::gateway::modern;
use crate::session_activity::Kind as Use;

pub(crate) async fn answer(inner: &Arc<Inner>, asked: HttpRequest, body: Bytes) -> Answer {
    if modern::is_modern(&asked.head.headers, None) {
        return modern::answer(inner, asked, &body).await;
    }
    if !Accepts::of(&asked.head.headers).events {
        let text = "accept `text/event-stream`";
        return response::refuse(StatusCode::NOT_ACCEPTABLE, text);
    }
    let session = match post::find(inner, &asked) {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    let (number, reader) = match asked.header(&request::LAST_EVENT_ID) {
        None => (STANDALONE_STREAM, session.standalone_stream().reader(None)),
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
    let held = (
        inner.sessions.hold(&session, Use::Stream),
        session.open_stream(),
    );
    let keep_alive = inner.settings.keep_alive;
    sse::resumable(&session, number, reader, keep_alive, held)
}

pub(crate) async fn delete(inner: &Arc<Inner>, asked: HttpRequest, body: Bytes) -> Answer {
    if modern::is_modern(&asked.head.headers, None) {
        return modern::answer(inner, asked, &body).await;
    }
    match post::find(inner, &asked) {
        Ok(session) => {
            inner.sessions.end(session.id());
            // The official Python client treats 202 as an error.
            response::bodiless(StatusCode::NO_CONTENT)
        }
        Err(refused) => *refused,
    }
}
