//! The Streamable HTTP transport, for a route of the daemon.
//!
//! The daemon has already checked tokens, `Host` and `Origin`.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;

use boxwood_agent::Agent;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use super::conversation::DefaultConversation;
use super::keep_alive;
use super::sessions::Sessions;
use super::tool_server::ToolServer;
use crate::protocol_versions::MODERN;
use crate::session_activity::SessionActivity;

pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Cheap to clone.
#[derive(Clone)]
pub struct HttpServer {
    service: StreamableHttpService<ToolServer, Sessions>,
}

impl HttpServer {
    pub fn new(agent: Agent, max_body_bytes: usize) -> Self {
        let activity = SessionActivity::default();
        let sessions = Arc::new(Sessions::new(activity.clone()));
        let server = ToolServer::new(agent, DefaultConversation::PerMcpSession, activity);
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            .with_max_request_body_bytes(max_body_bytes);
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
            return keep_alive::answer(Box::pin(answering)).await;
        }
        let mut answer = answering.await.map(BodyExt::boxed_unsync);
        // The session is gone, and the official Python client treats 202 as a failure.
        if deletes && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        answer
    }
}

fn is_stateless<B>(request: &Request<B>) -> bool {
    let version = request.headers().get("mcp-protocol-version");
    version.is_some_and(|version| version.as_bytes() >= MODERN.as_bytes())
}
