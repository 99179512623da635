//! Sends requests and decodes responses.
//!
//! Connections are reused. One that was closed while idle is replaced transparently, if nothing of
//! the request was sent on it.

pub(crate) mod backoff;
mod connect;
pub(crate) mod sse;
pub(crate) mod target;
pub(crate) mod websocket;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{ClientError, Endpoint, Result};
use connect::Connector;
use target::Target;

pub(crate) type BodyError = Box<dyn Error + Send + Sync>;
pub(crate) type OutBody = UnsyncBoxBody<Bytes, BodyError>;

pub(crate) const JSON: &str = "application/json";
pub(crate) const BINARY: &str = "application/octet-stream";
pub(crate) const EVENTS: &str = "text/event-stream";

/// Limit for responses that are read as a whole. Two captured streams of 1 MiB, escaped as JSON,
/// are far below it.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("boxwood/", env!("CARGO_PKG_VERSION")));
const OPERATOR: HeaderName = HeaderName::from_static("boxwood-operator");

/// A bearer token. `Debug` prints nothing.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    pub fn new(text: &str) -> Result<Self> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", text.trim()))
            .map_err(|_| ClientError::BadToken)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A client of one daemon. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Arc<Endpoint>,
    token: Option<Token>,
    incarnation: Option<u64>,
    is_operator: bool,
    http: Http<Connector, OutBody>,
}

impl Client {
    /// Does not connect until the first request.
    pub fn new(endpoint: Endpoint, token: Option<Token>) -> Self {
        let endpoint = Arc::new(endpoint);
        let http = Http::builder(TokioExecutor::new()).build(Connector(Arc::clone(&endpoint)));
        Self {
            endpoint,
            token,
            incarnation: None,
            is_operator: false,
            http,
        }
    }

    /// Restricts requests to sessions of this incarnation. If the session was replaced or deleted,
    /// they fail with `session_gone`.
    pub(crate) fn of_incarnation(&self, incarnation: u64) -> Self {
        Self {
            incarnation: Some(incarnation),
            ..self.clone()
        }
    }

    /// Requests operator access, including sessions of hosted MCP servers. The daemon grants it
    /// only to root and its own user, without a token.
    #[must_use]
    pub fn as_operator(&self) -> Self {
        Self {
            is_operator: true,
            ..self.clone()
        }
    }

    /// The URL of a target, with the incarnation if it is a session.
    fn url(&self, scheme: &str, target: &Target) -> String {
        let mut target = target.clone();
        if let Some(incarnation) = self.incarnation
            && target.as_str().starts_with("/v1/sessions/")
        {
            target = target.query("incarnation", &incarnation.to_string());
        }
        let (authority, prefix) = (self.endpoint.authority(), self.endpoint.prefix());
        format!("{scheme}://{authority}{prefix}{}", target.as_str())
    }

    /// Headers of every request.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([(USER_AGENT, AGENT)]);
        if self.is_operator {
            headers.insert(OPERATOR, HeaderValue::from_static("1"));
        }
        if let Some(Token(token)) = &self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        headers
    }

    pub(crate) fn call(&self, method: Method, target: &Target) -> Call<'_> {
        let operation = target.operation(&method);
        let mut request = Request::builder()
            .method(method)
            .uri(self.url("http", target));
        if let Some(headers) = request.headers_mut() {
            *headers = self.headers();
        }
        Call {
            client: self,
            operation,
            request,
            accept: JSON,
            body: Ok(full_body(Bytes::new())),
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, target: &Target) -> Result<T> {
        self.call(Method::GET, target).json().await
    }

    pub(crate) async fn delete<T: DeserializeOwned>(&self, target: &Target) -> Result<T> {
        self.call(Method::DELETE, target).json().await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        target: &Target,
        body: &impl Serialize,
    ) -> Result<T> {
        self.call(Method::POST, target).serialize(body).json().await
    }
}

/// A request under construction.
pub(crate) struct Call<'a> {
    client: &'a Client,
    operation: String,
    request: Builder,
    accept: &'static str,
    body: serde_json::Result<OutBody>,
}

impl Call<'_> {
    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    /// An invalid header is an error when the request is sent.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value.as_bytes());
        self
    }

    pub(crate) fn body(mut self, content_type: &'static str, body: OutBody) -> Self {
        self.request = self.request.header(CONTENT_TYPE, content_type);
        self.body = Ok(body);
        self
    }

    pub(crate) fn serialize(mut self, body: &impl Serialize) -> Self {
        self.request = self.request.header(CONTENT_TYPE, JSON);
        self.body = serde_json::to_vec(body).map(full_body);
        self
    }

    /// Returns any response, including errors.
    pub(crate) async fn respond(self) -> Result<HttpResponse> {
        let operation = self.operation;
        let body = self
            .body
            .map_err(|error| ClientError::unexpected(&operation, error))?;
        let request = self
            .request
            .header(ACCEPT, self.accept)
            .body(body)
            .map_err(|error| ClientError::unexpected(&operation, error))?;
        match self.client.http.request(request).await {
            Ok(response) => Ok(HttpResponse {
                operation,
                response,
            }),
            Err(error) if error.is_connect() => Err(ClientError::Unreachable {
                endpoint: self.client.endpoint.to_string(),
                source: plain_cause(error),
            }),
            Err(error) => Err(ClientError::lost(&operation, error)),
        }
    }

    /// Returns once the status is known. A status of 400 or more is an error.
    pub(crate) async fn send(self) -> Result<HttpResponse> {
        let response = self.respond().await?;
        let status = response.status();
        if status < 400 {
            return Ok(response);
        }
        let operation = response.operation.clone();
        let bytes = response.whole().await?;
        Err(ClientError::from_response(&operation, status, &bytes))
    }

    pub(crate) async fn json<T: DeserializeOwned>(self) -> Result<T> {
        self.send().await?.json().await
    }
}

/// A response whose body is read as a whole or in chunks.
pub(crate) struct HttpResponse {
    pub(crate) operation: String,
    response: Response<Incoming>,
}

impl HttpResponse {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    pub(crate) async fn whole(self) -> Result<Bytes> {
        Limited::new(self.response.into_body(), MAX_RESPONSE_BYTES)
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .map_err(|error| not_read(&self.operation, error))
    }

    pub(crate) async fn json<T: DeserializeOwned>(self) -> Result<T> {
        let operation = self.operation.clone();
        let bytes = self.whole().await?;
        serde_json::from_slice(&bytes).map_err(|error| ClientError::unexpected(&operation, error))
    }

    /// The next chunk of the body; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.response.body_mut().frame().await {
            let frame = frame.map_err(|error| ClientError::lost(&self.operation, error))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

/// The error for a body that was not read as a whole: it is too long, or the connection was lost.
fn not_read(operation: &str, error: BodyError) -> ClientError {
    if error.is::<LengthLimitError>() {
        let reason = format!("it is longer than {MAX_RESPONSE_BYTES} bytes");
        return ClientError::unexpected(operation, reason);
    }
    ClientError::lost(operation, error)
}

/// Splits bytes into lines.
#[derive(Default)]
pub(crate) struct Lines {
    pending: Vec<u8>,
    /// The part of `pending` that contains no newline. A long line arrives in many chunks, and its
    /// beginning is not searched again for each of them.
    searched: usize,
}

impl Lines {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The bytes of the incomplete line.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// The next complete line, with its newline.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let unsearched = &self.pending[self.searched..];
        let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.pending.len();
            return None;
        };
        let end = self.searched + end;
        self.searched = 0;
        Some(self.pending.drain(..=end).collect())
    }
}

pub(crate) fn full_body(bytes: impl Into<Bytes>) -> OutBody {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// The cause of hyper's "client error (Connect)", which is not helpful by itself.
fn plain_cause(error: hyper_util::client::legacy::Error) -> BodyError {
    let mut current: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(cause) = current {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return Box::new(std::io::Error::new(io.kind(), io.to_string()));
        }
        current = cause.source();
    }
    Box::new(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_response_that_is_too_long_is_not_a_lost_connection() {
        let body = Limited::new(Full::new(Bytes::from_static(b"ab")), 1);
        let error = body.collect().await.expect_err("too long");
        assert!(!not_read("GET /x", error).is_connection_error());
        let error = not_read("GET /x", "connection reset".into());
        assert!(error.is_connection_error());
    }
}
