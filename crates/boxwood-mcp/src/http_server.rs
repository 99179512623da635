//! The Streamable HTTP transport, for a route of the daemon's.
//!
//! Comes in: a request that the daemon has admitted. Goes out: a response whose body may be a stream of
//! events. Never here: tokens, `Host` and `Origin`, which the daemon's guard has judged before.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;

use boxwood_agent::Agent;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::combinators::BoxBody;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use crate::attendance::Attendance;
use crate::conversation::Home;
use crate::sessions::Sessions;
use crate::tool_server::ToolServer;

pub type Answer = Response<BoxBody<Bytes, Infallible>>;

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
        B::Error: Display,
    {
        self.service.handle(request).await
    }
}
