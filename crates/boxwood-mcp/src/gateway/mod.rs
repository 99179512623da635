//! MCP gateway: serves hosted MCP servers to MCP clients over HTTP, in the legacy and the modern protocol
//! version.
//!
//! Input: a request that the daemon has authenticated, for one server or for all of them. Output: the
//! server's response with the client's request id. Authentication, `Host` and `Origin` checks happen
//! before; running the servers is the job of `hosting`.

pub(crate) mod aggregate;
pub(crate) mod client_session;
pub(crate) mod error;
mod event_stream;
mod http;
pub(crate) mod json;
mod modern;
mod notifications;
pub(crate) mod params;
pub(crate) mod server_registry;
#[cfg(test)]
mod tests;
mod tool_filter;

use std::sync::Arc;
use std::time::Duration;

use ::http::{Method, Request};
use boxwood_api::McpServerName;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use self::aggregate::Aggregate;
use self::client_session::table::SessionTable;
use self::event_stream::budget::MemoryBudget;
use self::http::request::HttpRequest;
use self::http::{legacy_sse, response, streamable};
use self::modern::interactive::InteractiveCalls;
use self::modern::param_headers::ParamHeaderCache;
use self::notifications::hub::Hubs;
use self::server_registry::ServerRegistry;
use crate::agent_server::Answer;
use crate::hosting::Hosting;

/// The servers that a request addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    One(McpServerName),
    /// All servers. Names of tools, prompts and resources carry the name of their server.
    All,
}

#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Maximum size of a request body in bytes.
    pub max_body: usize,
    /// A session without requests and streams ends after this time.
    pub session_idle: Duration,
    pub max_sessions: usize,
    /// Interval of keep-alive comments on an idle SSE stream.
    pub keep_alive: Duration,
    /// Maximum duration of a call.
    pub longest_call: Duration,
    /// Maximum bytes buffered for clients that have not read them, over all clients. One client may use
    /// half of it.
    pub max_unread: usize,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            max_body: 16 * 1024 * 1024,
            session_idle: Duration::from_mins(30),
            max_sessions: 1000,
            keep_alive: Duration::from_secs(15),
            longest_call: Duration::from_hours(1),
            max_unread: 256 * 1024 * 1024,
        }
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) settings: GatewaySettings,
    pub(crate) registry: Arc<dyn ServerRegistry>,
    pub(crate) all: Aggregate,
    pub(crate) hubs: Arc<Hubs>,
    pub(crate) sessions: Arc<SessionTable>,
    pub(crate) budget: MemoryBudget,
    pub(crate) interactive: InteractiveCalls,
    pub(crate) param_headers: ParamHeaderCache,
    pub(crate) closed: CancellationToken,
}

impl Gateway {
    pub fn new(hosting: Hosting, settings: GatewaySettings) -> Self {
        Self::with_registry(Arc::new(hosting), settings)
    }

    pub(crate) fn with_registry(
        registry: Arc<dyn ServerRegistry>,
        settings: GatewaySettings,
    ) -> Self {
        let hubs = Arc::new(Hubs::new(Arc::clone(&registry)));
        let all = Aggregate::new(Arc::clone(&registry));
        let budget = MemoryBudget::new(settings.max_unread);
        let inner = Inner {
            interactive: InteractiveCalls::new(&budget, settings.longest_call),
            sessions: Arc::new(SessionTable::new(
                settings.max_sessions,
                settings.session_idle,
                budget.clone(),
            )),
            param_headers: ParamHeaderCache::default(),
            closed: CancellationToken::new(),
            settings,
            registry,
            all,
            hubs,
            budget,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// All methods of `/mcp/{name}` and `/mcp/_all`. `principal` is the owner of the token; a session
    /// belongs to the principal that created it.
    pub async fn answer(
        &self,
        target: Target,
        principal: Option<String>,
        request: Request<Bytes>,
    ) -> Answer {
        let (request, body) = HttpRequest::new(target, principal, request);
        match request.head.method {
            Method::POST => streamable::post(&self.inner, request, body).await,
            Method::GET => streamable::get(&self.inner, &request),
            Method::DELETE => streamable::delete(&self.inner, &request),
            _ => response::method_not_allowed("GET, POST, DELETE"),
        }
    }

    /// `GET /mcp/{name}/sse` of protocol version 2024-11-05.
    pub async fn sse_open(
        &self,
        target: Target,
        principal: Option<String>,
        request: Request<Bytes>,
    ) -> Answer {
        let (request, _) = HttpRequest::new(target, principal, request);
        legacy_sse::open(&self.inner, request).await
    }

    /// `POST /mcp/{name}/messages` of protocol version 2024-11-05.
    pub async fn sse_message(
        &self,
        target: Target,
        principal: Option<String>,
        request: Request<Bytes>,
    ) -> Answer {
        let (request, body) = HttpRequest::new(target, principal, request);
        legacy_sse::message(&self.inner, request, &body).await
    }

    /// Ends all sessions, calls, streams and dedicated processes. New ones are refused.
    pub fn close(&self) {
        self.inner.sessions.close();
        self.inner.closed.cancel();
        self.inner.interactive.close();
    }
}
