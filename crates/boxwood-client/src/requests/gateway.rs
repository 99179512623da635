//! The daemon's MCP gateway: sends and receives JSON-RPC messages as bytes.

use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};

use crate::http::sse::SseBody;
use crate::http::target::Target;
use crate::http::{Call, EVENTS, HttpResponse, JSON, full_body};
use crate::{Client, Result};

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

pub struct GatewayStream(Box<SseBody>);

impl std::fmt::Debug for GatewayStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayStream").finish_non_exhaustive()
    }
}

impl GatewayStream {
    /// `None` when the gateway has ended the stream. Unknown events are skipped.
    pub async fn next(&mut self) -> Result<Option<GatewayEvent>> {
        while let Some(message) = self.0.next().await? {
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
        self.0.retry()
    }
}

impl Client {
    /// Sends one message. `server` is the name of a server, or `_all`.
    pub async fn gateway_post(
        &self,
        server: &str,
        headers: &GatewayHeaders,
        message: Bytes,
    ) -> Result<GatewayAnswer> {
        let call = self.gateway(Method::POST, server, headers);
        let call = call.accept("application/json, text/event-stream");
        read(call.body(JSON, full_body(message)).respond().await?).await
    }

    /// Opens the stream of server messages, or resumes a broken one.
    pub async fn gateway_listen(
        &self,
        server: &str,
        headers: &GatewayHeaders,
    ) -> Result<GatewayAnswer> {
        let call = self.gateway(Method::GET, server, headers);
        read(call.accept(EVENTS).respond().await?).await
    }

    /// Deletes a session. Fails only without a response: the status is ignored, because the session may already be gone.
    pub async fn gateway_delete(&self, server: &str, headers: &GatewayHeaders) -> Result<()> {
        let call = self.gateway(Method::DELETE, server, headers);
        call.respond().await.map(|_| ())
    }

    fn gateway(&self, method: Method, server: &str, headers: &GatewayHeaders) -> Call<'_> {
        let mut call = self.call(method, &Target::new("/mcp").segment(server));
        for (name, value) in headers {
            call = call.header(name, value);
        }
        call
    }
}

async fn read(response: HttpResponse) -> Result<GatewayAnswer> {
    let status = response.status();
    let is_success = (200..300).contains(&status);
    let session = response.header("mcp-session-id").map(str::to_owned);
    let content_type = response.header("content-type").unwrap_or_default();
    if is_success && content_type.starts_with(EVENTS) {
        let events = GatewayStream(Box::new(SseBody::new(response)));
        return Ok(GatewayAnswer::Stream { events, session });
    }
    let body = response.whole().await?;
    if !is_success {
        return Ok(GatewayAnswer::Refused { status, body });
    }
    if status == StatusCode::ACCEPTED || body.is_empty() {
        return Ok(GatewayAnswer::Accepted);
    }
    Ok(GatewayAnswer::Message { body, session })
}
