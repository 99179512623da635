//! The Streamable HTTP transport, for a route of the daemon's.
//!
//! Comes in: a request that the daemon has admitted. Goes out: a response whose body may be a stream of
//! events. Never here: tokens, `Host` and `Origin`, which the daemon's guard has judged before.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;

use boxwood_agent::Agent;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use rmcp::model::ProtocolVersion;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use crate::attendance::Attendance;
use crate::conversation::Home;
use crate::patience;
use crate::sessions::Sessions;
use crate::tool_server::ToolServer;

pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Cheap to clone.
#[derive(Clone)]
pub struct HttpServer {
    service: StreamableHttpService<ToolServer, Sessions>,
}

impl HttpServer {
    pub fn new(agent: Agent, largest_body: usize) -> Self {
        let attendance = Attendance::default();
        let sessions = Arc::new(Sessions::new(attendance.clone()));
        let server = ToolServer::new(agent, Home::PerMcpSession, attendance);
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            .with_max_request_body_bytes(largest_body);
        let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
        Self { service }
    }

    pub async fn answer<B>(&self, request: Request<B>) -> Answer
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Display,
    {
        let stateless = is_stateless(&request);
        let deletes = request.method() == Method::DELETE;
        let service = self.service.clone();
        let answering = async move { service.handle(request).await };
        if stateless {
            return patience::answer(Box::pin(answering)).await;
        }
        let mut answer = answering.await.map(BodyExt::boxed_unsync);
        // The session is gone by now, and the official Python client takes 202 for a failure.
        if deletes && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        answer
    }
}

fn is_stateless<B>(request: &Request<B>) -> bool {
    let version = request.headers().get("mcp-protocol-version");
    version.is_some_and(|version| {
        version.as_bytes() >= ProtocolVersion::V_2026_07_28.as_str().as_bytes()
    })
}
