//! `GET`: the stream of what a server says unasked, or one that a client comes back to. `DELETE`: the end.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::session::GENERAL;
use super::sse::{self, Manner, Place};
use super::web::{self as answers, Accepts, Asked};
use super::{Inner, modern, post, versions};
use crate::attendance::Kind as Use;
use crate::http_server::Answer;

pub(crate) async fn answer(inner: &Arc<Inner>, asked: Asked, body: Bytes) -> Answer {
    if modern::is_modern(&asked.head.headers, None) {
        return modern_answer(inner, &asked, &body).await;
    }
    if !Accepts::of(&asked.head.headers).events {
        let text = "accept `text/event-stream`";
        return answers::refuse(StatusCode::NOT_ACCEPTABLE, text);
    }
    let session = match post::find(inner, &asked) {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    let general = (GENERAL, session.general().clone());
    let (number, reader) = match asked.header(&answers::LAST_EVENT) {
        None => (general.0, general.1.reader(None)),
        Some(last) => {
            let place = Place::parse(last);
            let found = place.and_then(|place| match place.stream {
                GENERAL => general.1.reader_after(place.event),
                stream => {
                    let kept = inner.sessions.shelf().find(session.id(), stream);
                    kept.and_then(|outbox| outbox.reader_after(place.event))
                }
            });
            let (Some(place), Some(reader)) = (place, found) else {
                let text =
                    "what followed this `Last-Event-ID` is not kept any more; leave the header out";
                return answers::refuse(StatusCode::BAD_REQUEST, text);
            };
            (place.stream, reader)
        }
    };
    let version = session.greeted().map(|greeted| greeted.version.as_str());
    let manner = Manner {
        stream: Some(number),
        is_primed: version.is_some_and(versions::is_primed),
        opening: None,
        keep_alive: inner.settings.keep_alive,
    };
    let held = inner.sessions.hold(&session, Use::Stream);
    sse::answer(reader, manner, (held, session.listens()))
}

pub(crate) async fn delete(inner: &Arc<Inner>, asked: Asked, body: Bytes) -> Answer {
    if modern::is_modern(&asked.head.headers, None) {
        return modern_answer(inner, &asked, &body).await;
    }
    match post::find(inner, &asked) {
        Ok(session) => {
            inner.sessions.end(session.id());
            // The official Python client takes 202 for a failure.
            answers::bodiless(StatusCode::NO_CONTENT)
        }
        Err(refused) => *refused,
    }
}

async fn modern_answer(inner: &Inner, asked: &Asked, body: &Bytes) -> Answer {
    let principal = asked.principal.as_deref();
    let modern = &inner.modern;
    modern
        .answer(&asked.target, principal, &asked.head, body)
        .await
}
