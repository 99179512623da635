//! JSON in and out.
//!
//! Comes in: a body that somebody sent. Goes out: a typed request, or a 400 or 413 that says what is
//! wrong. Never here: what the request means.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use boxwood_api::ErrorCode;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::App;
use super::error::{ApiError, ApiResult};
use crate::load::Weight;

/// A JSON object in the body. No body at all is an empty object.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> ApiResult<Self> {
        is_json(request.headers())?;
        let weight = Weight::of(&request, app.sessions.budget());
        let limit = app.http.max_body_bytes;
        let bytes = read(request, limit, app.body_timeout(), &weight).await?;
        parse(&bytes).map(Self)
    }
}

/// A page in a browser can send forms and plain text without asking anybody; JSON it cannot.
fn is_json(headers: &HeaderMap) -> ApiResult<()> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(first), None) = (types.next(), types.next()) else {
        return if headers.contains_key(header::CONTENT_TYPE) {
            Err(ApiError::validation("there are two Content-Type headers"))
        } else {
            Ok(())
        };
    };
    let essence = first
        .to_str()
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
    {
        return Ok(());
    }
    Err(
        ApiError::validation(format!("the body must be JSON, not `{essence}`"))
            .hint("send `Content-Type: application/json`"),
    )
}

/// `weight` has what was read, and has to live for as long as what comes of it.
pub(super) async fn read(
    request: Request,
    limit: usize,
    timeout: Duration,
    weight: &Weight,
) -> ApiResult<Bytes> {
    let too_large = || {
        ApiError::new(
            ErrorCode::PayloadTooLarge,
            format!("the body is larger than {limit} bytes"),
        )
    };
    let waits = request.headers().contains_key(header::EXPECT);
    let body = request.into_body();
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        // A caller that waits for our leave has sent nothing yet.
        if !waits {
            discard(body).await;
        }
        return Err(too_large());
    }
    let mut stream = body.into_data_stream();
    let reading = async {
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(|_| ApiError::validation("the body ended early"))?;
            if first.len() + rest.len() + piece.len() > limit {
                return Ok(Err(too_large()));
            }
            if let Err(busy) = weight.take(piece.len()) {
                return Ok(Err(busy.into()));
            }
            // Most bodies are one piece, which is then not copied.
            if first.is_empty() {
                first = piece;
            } else {
                rest.extend_from_slice(&piece);
            }
        }
        if rest.is_empty() {
            return Ok(Ok(first));
        }
        let mut whole = BytesMut::with_capacity(first.len() + rest.len());
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&rest);
        Ok(Ok(whole.freeze()))
    };
    match tokio::time::timeout(timeout, reading).await {
        Ok(Ok(Ok(bytes))) => Ok(bytes),
        // Answered all the same, so the rest has to be listened to.
        Ok(Ok(Err(refusal))) => {
            weight.give_back();
            discard(Body::from_stream(stream)).await;
            Err(refusal)
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(ApiError::new(
            ErrorCode::Timeout,
            format!("the body did not arrive within {} s", timeout.as_secs()),
        )
        .status(StatusCode::REQUEST_TIMEOUT)),
    }
}

/// Reads on for a while before refusing: an answer sent while the caller still writes is lost with
/// the connection, and the caller would learn nothing but "reset".
pub(crate) async fn discard(body: Body) {
    discard_up_to(body, 64 * 1024 * 1024, Duration::from_secs(5)).await;
}

/// The same for callers that are refused before anything of theirs is read.
pub(crate) async fn discard_briefly(request: Request) {
    if !request.headers().contains_key(header::EXPECT) {
        discard_up_to(request.into_body(), 1024 * 1024, Duration::from_secs(1)).await;
    }
}

async fn discard_up_to(body: Body, most: usize, longest: Duration) {
    let mut stream = body.into_data_stream();
    let reading = async {
        let mut seen = 0;
        while let Some(Ok(piece)) = stream.next().await {
            seen += piece.len();
            if seen > most {
                break;
            }
        }
    };
    // Running out of patience is as good an end as the body's.
    let _ = tokio::time::timeout(longest, reading).await;
}

/// Parses an object. Only a failed parse pays for finding out where it failed.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    let text = bytes.trim_ascii();
    let text = if text.is_empty() { b"{}" } else { text };
    // Derived types also read arrays, field by field; the API does not.
    if text.first() != Some(&b'{') {
        return Err(ApiError::validation("the body must be a JSON object"));
    }
    serde_json::from_slice(text).map_err(|error| {
        let mut again = serde_json::Deserializer::from_slice(text);
        let place = match serde_path_to_error::deserialize::<_, T>(&mut again) {
            Err(located) if located.path().iter().next().is_some() => {
                format!("{}: ", located.path())
            }
            _ => String::new(),
        };
        if error.is_data() {
            ApiError::validation(format!("{place}{}", without_position(&error.to_string())))
        } else {
            ApiError::validation(format!("the body is not valid JSON: {error}"))
        }
    })
}

/// Positions help in broken JSON and only distract where the field is named.
fn without_position(text: &str) -> &str {
    text.rsplit_once(" at line ")
        .map_or(text, |(words, _)| words)
}

/// An answer with a JSON body.
pub(crate) fn answer<T: Serialize>(status: StatusCode, body: &T) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            *response.status_mut() = status;
            response.headers_mut().insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
            response
        }
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

pub(crate) fn ok<T: Serialize>(body: &T) -> Response {
    answer(StatusCode::OK, body)
}

pub(crate) fn created<T: Serialize>(body: &T) -> Response {
    answer(StatusCode::CREATED, body)
}

#[cfg(test)]
mod tests {
    use boxwood_api::{ErrorCode, SpecRequest};

    use super::*;

    fn refusal(body: &str) -> String {
        let error = parse::<SpecRequest>(body.as_bytes()).expect_err("refused");
        let detail = error.detail();
        assert_eq!(detail.code, ErrorCode::ValidationError);
        detail.message
    }

    #[test]
    fn a_refusal_says_where() {
        let check = |body: &str, parts: &[&str]| {
            let message = refusal(body);
            for part in parts {
                assert!(message.contains(part), "`{message}` lacks `{part}`");
            }
        };
        check("[]", &["must be a JSON object"]);
        check("\"x\"", &["must be a JSON object"]);
        check("{", &["not valid JSON", "line 1"]);
        check("{\"cmd\": 1}", &["cmd", "string"]);
        check("{\"nope\": 1}", &["nope"]);
        check("{\"env\": {\"A\": 1}}", &["env", "A", "string"]);
        check("{\"cpus\": 1e999}", &["number out of range"]);
        check("{\"cmd\":\"a\",\"cmd\":\"b\"}", &["cmd", "twice"]);
        check(&format!("{{\"env\":{}", "{\"a\":".repeat(1000)), &[""]);
    }

    #[test]
    fn nothing_is_an_empty_object() {
        let request: SpecRequest = parse(b" \n").expect("valid");
        assert_eq!(request, SpecRequest::default());
    }

    #[test]
    fn only_json_is_json() {
        let check = |value: &str, expected: bool| {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_TYPE, value.parse().expect("header"))]);
            assert_eq!(is_json(&headers).is_ok(), expected, "{value}");
        };
        check("application/json", true);
        check("Application/JSON; charset=utf-8", true);
        check("application/vnd.boxwood+json", true);
        check("text/plain", false);
        check("text/plain; application/json", false);
        check("application/x-www-form-urlencoded", false);
        check("multipart/form-data; boundary=x", false);
        assert!(is_json(&HeaderMap::new()).is_ok());
    }
}
