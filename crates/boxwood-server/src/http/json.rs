//! JSON request bodies and responses.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{ApiError, ApiResult};
use super::{App, body};

/// A JSON object in the body. An empty body counts as `{}`.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> ApiResult<Self> {
        is_json(request.headers())?;
        let (request, _memory) = body::read_whole(app, request).await?;
        parse(request.body()).map(Self)
    }
}

/// Refuses forms and plain text, which browsers send across origins without a preflight request. No body needs no type.
fn is_json(headers: &HeaderMap) -> ApiResult<()> {
    let Some(essence) = content_type(headers)? else {
        return Ok(());
    };
    let suffix = essence.strip_prefix("application/");
    if suffix.is_some_and(|suffix| suffix == "json" || suffix.ends_with("+json")) {
        return Ok(());
    }
    Err(
        ApiError::validation(format!("the body must be JSON, not `{essence}`"))
            .hint("send `Content-Type: application/json`"),
    )
}

/// The media type of the body, in lower case and without parameters.
pub(crate) fn content_type(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let value = types.next();
    if types.next().is_some() {
        return Err(ApiError::validation("more than one Content-Type header"));
    }
    Ok(value.map(|value| {
        let essence = value.to_str().unwrap_or_default().split(';').next();
        essence.unwrap_or_default().trim().to_ascii_lowercase()
    }))
}

/// Parses a JSON object. An error names the field in which it occurred.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    let text = bytes.trim_ascii();
    let text = if text.is_empty() { b"{}" } else { text };
    // Derived types would also accept arrays.
    if text.first() != Some(&b'{') {
        return Err(ApiError::validation("the body must be a JSON object"));
    }
    let mut input = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut input).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if !error.is_data() {
            return not_json(&error);
        }
        // The position helps to repair broken JSON, but is noise where the field is named.
        let text = error.to_string();
        let message = text
            .rsplit_once(" at line ")
            .map_or(&*text, |(text, _)| text);
        ApiError::validation(match path.as_str() {
            "." => message.to_owned(),
            path => format!("{path}: {message}"),
        })
    })?;
    input.end().map_err(|error| not_json(&error))?;
    Ok(value)
}

fn not_json(error: &serde_json::Error) -> ApiError {
    ApiError::validation(format!("the body is not valid JSON: {error}"))
}

/// A response with a JSON body.
pub(crate) fn answer(status: StatusCode, body: impl Serialize) -> Response {
    match serde_json::to_vec(&body) {
        Ok(bytes) => {
            let json = HeaderValue::from_static("application/json");
            (status, [(header::CONTENT_TYPE, json)], Body::from(bytes)).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "failed to serialise a response");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

pub(crate) fn ok(body: impl Serialize) -> Response {
    answer(StatusCode::OK, body)
}

pub(crate) fn created(body: impl Serialize) -> Response {
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
