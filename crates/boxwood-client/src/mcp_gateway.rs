//! The daemon's MCP gateway: sends and receives JSON-RPC messages as bytes.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode, body::Incoming};

use crate::call::{empty, full, operation, whole};
use crate::path::Target;
use crate::sse::SseBody;
use crate::{Client, ClientError};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const EITHER: &str = "application/json, text/event-stream";
const EVENTS: &str = "text/event-stream";
/// Tool results can be long.
const MAX_EVENT_BYTES: usize = 64 << 20;

fn place(server: &str) -> Target {
    Target::new("/mcp").segment(server)
}

/// Headers of a message. An invalid header value is an error when it is sent.
pub type GatewayHeaders = Vec<(String, String)>;

#[derive(Debug)]
pub enum GatewayAnswer {
    /// No response body.
    Accepted,
    /// One message, or a batch.
    Message {
        body: Bytes,
        session: Option<String>,
    },
    Stream {
        events: GatewayStream,
        session: Option<String>,
    },
    /// The body may be a message or an error of the daemon.
    Refused { status: u16, body: Bytes },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayEvent {
    /// To resume from if the stream breaks.
    pub id: Option<String>,
    /// Empty for an event that only sets the id.
    pub data: String,
}

pub struct GatewayStream {
    body: SseBody,
}

impl std::fmt::Debug for GatewayStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayStream").finish_non_exhaustive()
    }
}

impl GatewayStream {
    /// `None` when the gateway has ended the stream. Unknown events are skipped.
    pub async fn next(&mut self) -> Result<Option<GatewayEvent>, ClientError> {
        while let Some(message) = self.body.next().await? {
            if matches!(message.event.as_str(), "" | "message") {
                return Ok(Some(GatewayEvent {
                    id: message.id,
                    data: message.data,
                }));
            }
        }
        Ok(None)
    }

    /// The delay before reconnecting, if the gateway sent one.
    pub fn retry(&self) -> Option<Duration> {
        self.body.retry()
    }
}

impl Client {
    /// Sends one message. `server` is the name of a server, or `_all`.
    pub async fn gateway_post(
        &self,
        server: &str,
        headers: &GatewayHeaders,
        message: Bytes,
    ) -> Result<GatewayAnswer, ClientError> {
        let target = place(server);
        let operation = operation(&Method::POST, &target);
        let mut sent = checked(&operation, headers)?;
        sent.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
        let response = self
            .respond(Method::POST, &target, full(message), EITHER, sent)
            .await?;
        answer(operation, response).await
    }

    /// Opens the stream of server messages, or resumes a broken one.
    pub async fn gateway_listen(
        &self,
        server: &str,
        headers: &GatewayHeaders,
    ) -> Result<GatewayAnswer, ClientError> {
        let target = place(server);
        let operation = operation(&Method::GET, &target);
        let sent = checked(&operation, headers)?;
        let response = self
            .respond(Method::GET, &target, empty(), EVENTS, sent)
            .await?;
        answer(operation, response).await
    }

    /// Deletes a session. Succeeds if there is none.
    pub async fn gateway_delete(
        &self,
        server: &str,
        headers: &GatewayHeaders,
    ) -> Result<(), ClientError> {
        let target = place(server);
        let operation = operation(&Method::DELETE, &target);
        let sent = checked(&operation, headers)?;
        self.respond(Method::DELETE, &target, empty(), EITHER, sent)
            .await?;
        Ok(())
    }
}

fn checked(
    operation: &str,
    headers: &GatewayHeaders,
) -> Result<Vec<(HeaderName, HeaderValue)>, ClientError> {
    let header = |(name, value): &(String, String)| {
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        let value = HeaderValue::try_from(value).map_err(|error| error.to_string())?;
        Ok((name, value))
    };
    headers
        .iter()
        .map(header)
        .collect::<Result<_, String>>()
        .map_err(|what| ClientError::unexpected(operation, what))
}

async fn answer(
    operation: String,
    response: Response<Incoming>,
) -> Result<GatewayAnswer, ClientError> {
    let status = response.status();
    let text = |name: HeaderName| {
        let value = response.headers().get(name)?;
        Some(value.to_str().ok()?.to_owned())
    };
    let session = text(SESSION);
    let is_stream = text(CONTENT_TYPE).is_some_and(|kind| kind.starts_with(EVENTS));
    if status.is_success() && is_stream {
        let events = GatewayStream {
            body: SseBody::new(operation, response.into_body()).with_limit(MAX_EVENT_BYTES),
        };
        return Ok(GatewayAnswer::Stream { events, session });
    }
    let body = whole(&operation, response).await?;
    if !status.is_success() {
        let status = status.as_u16();
        return Ok(GatewayAnswer::Refused { status, body });
    }
    if status == StatusCode::ACCEPTED || body.is_empty() {
        return Ok(GatewayAnswer::Accepted);
    }
    Ok(GatewayAnswer::Message { body, session })
}
