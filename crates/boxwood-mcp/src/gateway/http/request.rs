//! Reads what the gateway needs from the head of an HTTP request.

use bytes::Bytes;
use http::Request;
use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;

use crate::gateway::Target;
use crate::gateway::http::response::JSON;
use crate::gateway::http::sse::EVENT_STREAM;
use crate::wire::Principal;

pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The head of a request.
pub(crate) struct HttpRequest {
    pub(crate) target: Target,
    pub(crate) principal: Principal,
    pub(crate) head: Parts,
}

impl HttpRequest {
    pub(crate) fn new(
        target: Target,
        principal: Option<String>,
        request: Request<Bytes>,
    ) -> (Self, Bytes) {
        let (head, body) = request.into_parts();
        let request = Self {
            target,
            principal: principal.map(Into::into),
            head,
        };
        (request, body)
    }

    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }
}

/// Media types that the client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepts {
    pub(crate) json: bool,
    pub(crate) events: bool,
}

impl Accepts {
    /// A missing header accepts everything.
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

/// A range with the weight `q=0`.
fn is_unwanted(range: &str) -> bool {
    let mut parameters = range.split(';').skip(1);
    parameters.any(|parameter| {
        let weight = parameter.trim().strip_prefix("q=");
        let weight = weight.and_then(|weight| weight.trim().parse::<f32>().ok());
        weight.is_some_and(|weight| weight <= 0.0)
    })
}

pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).map(media_type);
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case(JSON))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn accepts(value: &'static str) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(value));
        let accepts = Accepts::of(&headers);
        (accepts.json, accepts.events)
    }

    #[test]
    fn the_accept_header_is_parsed() {
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
