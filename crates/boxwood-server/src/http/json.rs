//! JSON request bodies and responses.

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
use crate::load::RequestMemory;

/// A JSON object in the body. An empty body counts as `{}`.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> ApiResult<Self> {
        is_json(request.headers())?;
        let memory = RequestMemory::of(&request, app.sessions.budget());
        let limit = app.http.max_body_bytes;
        let bytes = read(request, limit, app.body_timeout(), &memory).await?;
        parse(&bytes).map(Self)
    }
}

/// Browsers send forms and plain text across origins without a preflight request, but not JSON.
fn is_json(headers: &HeaderMap) -> ApiResult<()> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(first), None) = (types.next(), types.next()) else {
        return if headers.contains_key(header::CONTENT_TYPE) {
            Err(ApiError::validation("more than one Content-Type header"))
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

/// Charges what it reads to `memory`, which must live as long as the parsed request.
pub(super) async fn read(
    request: Request,
    limit: usize,
    timeout: Duration,
    memory: &RequestMemory,
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
        // A client that waits for `100 Continue` has sent nothing yet.
        if !waits {
            discard(body).await;
        }
        return Err(too_large());
    }
    let mut stream = body.into_data_stream();
    let reading = async {
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk
                .map_err(|_| ApiError::validation("the body ended before its announced length"))?;
            if first.len() + rest.len() + chunk.len() > limit {
                return Ok(Err(too_large()));
            }
            if let Err(busy) = memory.take(chunk.len()) {
                return Ok(Err(busy.into()));
            }
            // Most bodies are a single chunk, which is not copied.
            if first.is_empty() {
                first = chunk;
            } else {
                rest.extend_from_slice(&chunk);
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
        // The client can read the response only after its body has been read.
        Ok(Ok(Err(refusal))) => {
            memory.give_back();
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

/// Reads and drops the rest of the body before a refusal. Otherwise the connection would be reset while
/// the client still writes, and the response would be lost.
pub(crate) async fn discard(body: Body) {
    discard_up_to(body, 64 * 1024 * 1024, Duration::from_secs(5)).await;
}

/// Like [`discard`] with tighter limits, for unauthenticated requests.
pub(crate) async fn discard_briefly(request: Request) {
    if !request.headers().contains_key(header::EXPECT) {
        discard_up_to(request.into_body(), 1024 * 1024, Duration::from_secs(1)).await;
    }
}

async fn discard_up_to(body: Body, most: usize, longest: Duration) {
    let mut stream = body.into_data_stream();
    let reading = async {
        let mut seen = 0;
        while let Some(Ok(chunk)) = stream.next().await {
            seen += chunk.len();
            if seen > most {
                break;
            }
        }
    };
    // The response is sent in either case.
    let _ = tokio::time::timeout(longest, reading).await;
}

/// Parses a JSON object. An error names the field in which it occurred.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    let text = bytes.trim_ascii();
    let text = if text.is_empty() { b"{}" } else { text };
    // Derived types would also accept arrays.
    if text.first() != Some(&b'{') {
        return Err(ApiError::validation("the body must be a JSON object"));
    }
    serde_json::from_slice(text).map_err(|error| parse_error(text, &error))
}

fn parse_error(text: &[u8], error: &serde_json::Error) -> ApiError {
    if !error.is_data() {
        return ApiError::validation(format!("the body is not valid JSON: {error}"));
    }
    let field = field_at(text, error.line(), error.column());
    let separator = if field.is_empty() { "" } else { ": " };
    let message = error.to_string();
    ApiError::validation(format!("{field}{separator}{}", without_position(&message)))
}

/// The path of the value that ends or begins at a position, such as `env.A` or `mounts[2].mode`.
///
/// Derived from the position rather than with `serde_path_to_error`, which compiles every request
/// type a second time. The text before the position is known to be valid JSON.
fn field_at(text: &[u8], line: usize, column: usize) -> String {
    enum Level {
        Object { key: Option<String> },
        Array { index: usize },
    }
    let line_start: usize = text
        .split_inclusive(|byte| *byte == b'\n')
        .take(line.saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let end = (line_start + column).min(text.len());
    let mut levels = Vec::new();
    let mut last_string = None;
    let mut at = 0;
    while at < end {
        let start = at;
        at += 1;
        match text[start] {
            b'"' => {
                while at < end && text[at] != b'"' {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
                at = (at + 1).min(end);
                last_string = serde_json::from_slice(&text[start..at]).ok();
            }
            b'{' => levels.push(Level::Object { key: None }),
            b'[' => levels.push(Level::Array { index: 0 }),
            b'}' | b']' => drop(levels.pop()),
            b':' => {
                if let Some(Level::Object { key }) = levels.last_mut() {
                    *key = last_string.take();
                }
            }
            b',' => match levels.last_mut() {
                Some(Level::Object { key }) => *key = None,
                Some(Level::Array { index }) => *index += 1,
                None => {}
            },
            _ => {}
        }
    }
    let mut path = String::new();
    for level in levels {
        match level {
            Level::Object { key: Some(key) } => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&key);
            }
            Level::Object { key: None } => {}
            Level::Array { index } => {
                path.push('[');
                path.push_str(&index.to_string());
                path.push(']');
            }
        }
    }
    path
}

/// The position helps to repair broken JSON, but is noise where the field is named.
fn without_position(text: &str) -> &str {
    text.rsplit_once(" at line ")
        .map_or(text, |(words, _)| words)
}

/// A response with a JSON body.
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
            tracing::error!(%error, "failed to serialise a response");
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
    fn an_error_names_the_field() {
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
    fn an_error_in_a_nested_value_names_its_path() {
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "only parsed")]
        struct Outer {
            env: std::collections::BTreeMap<String, String>,
            mounts: Vec<Mount>,
        }
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "only parsed")]
        struct Mount {
            path: String,
        }
        let check = |body: &str, expected: &str| {
            let error = parse::<Outer>(body.as_bytes()).expect_err("refused");
            let message = error.detail().message;
            assert!(message.starts_with(expected), "{message}");
        };
        check(r#"{"env": {"A": 1}}"#, "env.A: invalid type");
        check(
            "{\"env\": {\"A\": \"\\\"}{,\"},\n \"mounts\": 1}",
            "mounts: invalid type",
        );
        check(
            r#"{"mounts": [{"path": "/a"}, {"path": 1}]}"#,
            "mounts[1].path: invalid type",
        );
        check(r#"{"mounts": [{}]}"#, "mounts[0]: missing field `path`");
        check(r#"{"env": {}}"#, "missing field `mounts`");
    }

    #[test]
    fn an_empty_body_is_an_empty_object() {
        let request: SpecRequest = parse(b" \n").expect("valid");
        assert_eq!(request, SpecRequest::default());
    }

    #[test]
    fn only_json_content_types_are_accepted() {
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
