//! What HTTP adds to the messages: headers, and answers that are no stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use serde_json::value::RawValue;

use super::Target;
use super::budget::Kept;
use super::refusal::{INVALID_REQUEST, Refusal};
use super::sse::{EVENT_STREAM, PIECE};
use crate::http_server::Answer;

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

const JSON: &str = "application/json";

/// As clients know it from the SDKs.
const SESSION_NOT_FOUND: i64 = -32001;
const TOO_MUCH: i64 = -32000;

/// One request, but for its body.
pub(crate) struct Asked {
    pub(crate) target: Target,
    pub(crate) principal: Option<String>,
    pub(crate) head: Parts,
}

impl Asked {
    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }
}

/// What a client takes for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepts {
    pub(crate) json: bool,
    pub(crate) events: bool,
}

impl Accepts {
    /// Who says nothing takes anything.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        if !headers.contains_key(header::ACCEPT) {
            return Self {
                json: true,
                events: true,
            };
        }
        let values = headers.get_all(header::ACCEPT).iter();
        let ranges: Vec<&str> = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter(|range| !is_unwanted(range))
            .map(media_type)
            .collect();
        let takes = |kind: &str, any: &str| {
            let matches = |range: &&str| {
                range.eq_ignore_ascii_case(kind)
                    || range.eq_ignore_ascii_case(any)
                    || **range == *"*/*"
            };
            ranges.iter().any(matches)
        };
        Self {
            json: takes(JSON, "application/*"),
            events: takes(EVENT_STREAM, "text/*"),
        }
    }
}

fn media_type(range: &str) -> &str {
    range.split(';').next().unwrap_or_default().trim()
}

fn is_unwanted(range: &str) -> bool {
    let mut parameters = range.split(';').skip(1);
    parameters.any(|parameter| {
        let zero = parameter.trim().strip_prefix("q=");
        zero.is_some_and(|zero| zero.trim().parse::<f32>().is_ok_and(|zero| zero <= 0.0))
    })
}

pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).map(media_type);
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case(JSON))
}

pub(crate) fn bodiless(status: StatusCode) -> Answer {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = status;
    response
}

/// `kept` counts as unread until its last piece is sent.
pub(crate) fn json(status: StatusCode, kept: Vec<Kept>, bytes: Bytes) -> Answer {
    let mut response = Response::new(Sliced { rest: bytes, kept }.boxed_unsync());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(JSON);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

pub(crate) fn refused(refusal: &Refusal, id: Option<&RawValue>) -> Answer {
    json(refusal.status, Vec::new(), refusal.message(id).json())
}

/// Handed out piece by piece, so that what a slow reader has not taken yet is still held here.
struct Sliced {
    rest: Bytes,
    kept: Vec<Kept>,
}

impl Body for Sliced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        if self.rest.is_empty() {
            self.kept.clear();
        }
        Poll::Ready((length > 0).then(|| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

pub(crate) fn refuse(status: StatusCode, text: &str) -> Answer {
    let refusal = Refusal {
        status,
        ..Refusal::new(INVALID_REQUEST, text)
    };
    refused(&refusal, None)
}

pub(crate) fn not_allowed(methods: &'static str) -> Answer {
    let mut answer = refuse(
        StatusCode::METHOD_NOT_ALLOWED,
        "this method is not for an MCP endpoint",
    );
    let allow = HeaderValue::from_static(methods);
    answer.headers_mut().insert(header::ALLOW, allow);
    answer
}

/// The same for one that never was and for one of somebody else's.
pub(crate) fn no_session() -> Answer {
    let refusal = Refusal {
        status: StatusCode::NOT_FOUND,
        ..Refusal::new(
            SESSION_NOT_FOUND,
            "there is no such session; begin a new one with `initialize`",
        )
    };
    refused(&refusal, None)
}

pub(crate) fn full() -> Answer {
    let refusal = Refusal {
        status: StatusCode::SERVICE_UNAVAILABLE,
        ..Refusal::new(
            TOO_MUCH,
            "too many MCP sessions have calls going on; try again later",
        )
    };
    let mut answer = refused(&refusal, None);
    let later = HeaderValue::from_static("5");
    answer.headers_mut().insert(header::RETRY_AFTER, later);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(value: &'static str) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(value));
        let accepts = Accepts::of(&headers);
        (accepts.json, accepts.events)
    }

    #[test]
    fn accept_is_read_as_http_means_it() {
        assert_eq!(accepts("application/json, text/event-stream"), (true, true));
        assert_eq!(accepts("Text/Event-Stream"), (false, true));
        assert_eq!(accepts("*/*"), (true, true));
        assert_eq!(accepts("application/json;q=0.9"), (true, false));
        assert_eq!(
            accepts("application/json, text/event-stream;q=0"),
            (true, false)
        );
        assert_eq!(accepts("text/html, image/png"), (false, false));
        let Accepts { json, events } = Accepts::of(&HeaderMap::new());
        assert!(json && events);
    }
}
