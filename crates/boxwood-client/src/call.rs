//! Sends requests and decodes responses.
//!
//! Connections are reused. One that was closed while idle is replaced transparently, if nothing of
//! the request was sent on it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connect::Connector;
use crate::path::Target;
use crate::{ClientError, Endpoint};

pub(crate) type BodyError = Box<dyn Error + Send + Sync>;
pub(crate) type OutBody = UnsyncBoxBody<Bytes, BodyError>;

/// Limit for responses that are read as a whole. Two captured streams of 1 MiB, escaped as JSON,
/// are far below it.
const MAX_ANSWER_BYTES: usize = 64 << 20;

const AGENT: &str = concat!("boxwood/", env!("CARGO_PKG_VERSION"));

/// A bearer token. `Debug` prints nothing.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    pub fn new(text: &str) -> Result<Self, ClientError> {
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
    #[must_use]
    pub fn of_incarnation(&self, incarnation: u64) -> Self {
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

    pub(crate) fn operator(&self) -> Option<(HeaderName, HeaderValue)> {
        let header = HeaderName::from_static("boxwood-operator");
        self.is_operator
            .then(|| (header, HeaderValue::from_static("1")))
    }

    /// Adds the incarnation if the target is a session.
    pub(crate) fn pinned(&self, target: &Target) -> Target {
        let target = target.clone();
        match self.incarnation {
            Some(incarnation) if target.as_str().starts_with("/v1/sessions/") => {
                target.query("incarnation", &incarnation.to_string())
            }
            _ => target,
        }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.token.as_ref().map(|token| &token.0)
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, target: &Target) -> Result<T, ClientError> {
        self.json(Method::GET, target, empty(), None).await
    }

    pub(crate) async fn delete<T: DeserializeOwned>(
        &self,
        target: &Target,
    ) -> Result<T, ClientError> {
        self.json(Method::DELETE, target, empty(), None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        target: &Target,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = to_json(&Method::POST, target, body)?;
        self.json(Method::POST, target, body, Some("application/json"))
            .await
    }

    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &Target,
        body: OutBody,
        content_type: Option<&'static str>,
    ) -> Result<T, ClientError> {
        self.json_with(method, target, body, content_type, None)
            .await
    }

    /// With one additional header.
    pub(crate) async fn json_with<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &Target,
        body: OutBody,
        content_type: Option<&'static str>,
        header: Option<(HeaderName, HeaderValue)>,
    ) -> Result<T, ClientError> {
        let operation = operation(&method, target);
        let response = self
            .send_with(
                method,
                target,
                body,
                content_type,
                "application/json",
                header,
            )
            .await?;
        let bytes = whole(&operation, response).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| ClientError::unexpected(&operation, error.to_string()))
    }

    /// Sends a request and returns once the status is known. A status of 400 or more is an error;
    /// otherwise the body can be read.
    pub(crate) async fn send(
        &self,
        method: Method,
        target: &Target,
        body: OutBody,
        content_type: Option<&'static str>,
        accept: &'static str,
    ) -> Result<Response<Incoming>, ClientError> {
        self.send_with(method, target, body, content_type, accept, None)
            .await
    }

    /// With one additional header.
    pub(crate) async fn send_with(
        &self,
        method: Method,
        target: &Target,
        body: OutBody,
        content_type: Option<&'static str>,
        accept: &'static str,
        header: Option<(HeaderName, HeaderValue)>,
    ) -> Result<Response<Incoming>, ClientError> {
        let operation = operation(&method, target);
        let headers = content_type
            .map(|kind| (CONTENT_TYPE, HeaderValue::from_static(kind)))
            .into_iter()
            .chain(header);
        let response = self.respond(method, target, body, accept, headers).await?;
        let status = response.status().as_u16();
        if status < 400 {
            return Ok(response);
        }
        let bytes = whole(&operation, response).await?;
        Err(ClientError::from_answer(&operation, status, &bytes))
    }

    /// Sends a request and returns any response, including errors.
    pub(crate) async fn respond(
        &self,
        method: Method,
        target: &Target,
        body: OutBody,
        accept: &'static str,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> Result<Response<Incoming>, ClientError> {
        let operation = operation(&method, target);
        let target = self.pinned(target);
        let mut request = Request::builder()
            .method(method)
            .uri(format!(
                "http://{}{}{}",
                self.endpoint.authority(),
                self.endpoint.prefix(),
                target.as_str()
            ))
            .header(ACCEPT, accept)
            .header(USER_AGENT, AGENT);
        for (name, value) in headers.into_iter().chain(self.operator()) {
            request = request.header(name, value);
        }
        if let Some(token) = self.authorization() {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request
            .body(body)
            .map_err(|error| ClientError::unexpected(&operation, error.to_string()))?;
        self.http.request(request).await.map_err(|error| {
            if error.is_connect() {
                ClientError::Unreachable {
                    endpoint: self.endpoint.to_string(),
                    source: plain_cause(error),
                }
            } else {
                ClientError::lost(&operation, error)
            }
        })
    }
}

/// The request as named in errors, such as `GET /v1/sessions`. Without the query, which may be
/// long.
pub(crate) fn operation(method: &Method, target: &Target) -> String {
    let path = target.as_str();
    format!("{method} {}", path.split('?').next().unwrap_or(path))
}

pub(crate) fn empty() -> OutBody {
    full(Bytes::new())
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> OutBody {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub(crate) fn to_json(
    method: &Method,
    target: &Target,
    body: &impl Serialize,
) -> Result<OutBody, ClientError> {
    serde_json::to_vec(body)
        .map(full)
        .map_err(|error| ClientError::unexpected(&operation(method, target), error.to_string()))
}

pub(crate) async fn whole(
    operation: &str,
    response: Response<Incoming>,
) -> Result<Bytes, ClientError> {
    Limited::new(response.into_body(), MAX_ANSWER_BYTES)
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .map_err(|error| ClientError::lost(operation, error))
}

/// The cause of hyper's "client error (Connect)", which is not helpful by itself.
fn plain_cause(error: hyper_util::client::legacy::Error) -> BodyError {
    let mut current: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(cause) = current {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return Box::new(match io.raw_os_error() {
                Some(code) => std::io::Error::from_raw_os_error(code),
                None => std::io::Error::new(io.kind(), io.to_string()),
            });
        }
        current = cause.source();
    }
    Box::new(error)
}
