//! The HTTP API: routes, request parsing, responses and WebSocket frames.
//!
//! Handlers translate requests into calls of `boxwood_session`, `boxwood_policy` and the stores.
#![expect(
    unused_qualifications,
    reason = "the expansion of `utoipa::path` qualifies the parameter types"
)]

mod agent;
mod body;
mod daemon;
mod error;
mod guard;
mod images;
mod json;
mod langbot;
mod mcp;
mod params;
mod routes;
mod sessions;
mod skills;
pub(crate) mod websocket;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use boxwood_agent::Agent;
use boxwood_api::ErrorCode;
use boxwood_langbot::{LangBot, Services, Setup};
use boxwood_policy::PolicyRules;
use boxwood_session::Sessions;
use boxwood_skills::SkillStore;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, watch};
use tower_http::catch_panic::CatchPanicLayer;

use crate::agent::{AgentLocation, DaemonBoxes};
use crate::auth::Tokens;
use crate::config::{Config, HttpConfig};
use crate::load::PrincipalLimit;
use crate::mcp_hosting::McpHost;
use crate::serve::skill_store;
pub(crate) use daemon::metrics::Metrics;
pub(crate) use error::{ApiError, ApiResult};
pub(crate) use params::InSession;
pub use routes::openapi_json;
pub(crate) use sessions::files::transfer::put as put_file;
pub(crate) use skills::archives::install_package;
pub(crate) use skills::body::UploadGate;
pub(crate) use skills::error::refusal as skill_refusal;
pub(crate) use skills::{detail_of as skill_detail, info as skill_info, with_store};

/// Shared state of all routes.
pub(crate) struct App {
    pub(crate) sessions: Sessions,
    pub(crate) rules: PolicyRules,
    pub(crate) tokens: Tokens,
    pub(crate) skills: SkillStore,
    /// Uses these sessions and skills, unless its boxes are on another daemon.
    pub(crate) agent: Agent,
    pub(crate) langbot: Arc<LangBot>,
    /// MCP servers hosted in boxes of this daemon.
    pub(crate) mcp: McpHost,
    pub(crate) http: HttpConfig,
    pub(crate) metrics: Arc<Metrics>,
    /// Timeout for starting a box, including an image pull.
    pub(crate) start_timeout: Duration,
    /// True once shutdown has started.
    pub(crate) stopping: watch::Receiver<bool>,
    /// True once boxes are being detached for the next daemon. Attached clients are disconnected and asked
    /// to reconnect.
    pub(crate) handing_over: watch::Receiver<bool>,
    /// One permit per open WebSocket.
    sockets: Arc<Semaphore>,
    /// Limits the requests that the MCP gateway holds per principal.
    mcp_limit: PrincipalLimit,
    skill_uploads: Arc<UploadGate>,
    next_request_id: AtomicU64,
}

impl App {
    pub(crate) fn new(
        config: &Config,
        sessions: Sessions,
        rules: PolicyRules,
        langbot: Setup,
        agent_location: AgentLocation,
        stopping: watch::Receiver<bool>,
        handing_over: watch::Receiver<bool>,
    ) -> Self {
        let skills = skill_store(config);
        let skill_uploads = Arc::<UploadGate>::default();
        let start_timeout = BACKEND_TIMEOUT + config.longest_pull();
        let boxes = || DaemonBoxes {
            sessions: sessions.clone(),
            rules: crate::agent::rules(&config.agent, &rules),
            skills: skills.clone(),
            skill_uploads: Arc::clone(&skill_uploads),
            start_timeout,
            backend: crate::agent::own_backend(&config.agent),
        };
        let metrics = Arc::<Metrics>::default();
        let services = Services {
            sessions: sessions.clone(),
            rules: rules.clone(),
            skills: skills.clone(),
            start_timeout,
            backend_timeout: BACKEND_TIMEOUT,
            gather_facts: |request, skills| Box::pin(crate::facts::gather(request, skills)),
            record_exec: Box::new({
                let metrics = Arc::clone(&metrics);
                move |elapsed| metrics.exec(elapsed)
            }),
        };
        Self {
            langbot: Arc::new(LangBot::new(langbot, services)),
            agent: agent_location.agent(&config.agent, boxes),
            mcp: McpHost::new(config, &sessions, &rules, &skills, start_timeout),
            start_timeout,
            sessions,
            rules,
            tokens: Tokens::new(&config.state_dir),
            skills,
            metrics,
            stopping,
            handing_over,
            sockets: Arc::new(Semaphore::new(config.http.max_connections)),
            http: config.http.clone(),
            mcp_limit: PrincipalLimit::default(),
            skill_uploads,
            next_request_id: guard::first_request_id(),
        }
    }

    pub(crate) fn ping_every(&self) -> Duration {
        Duration::from_secs(self.http.ping_sec.get())
    }

    fn body_timeout(&self) -> Duration {
        Duration::from_secs(self.http.body_timeout_sec)
    }

    /// Resolves when every WebSocket is closed, or after the timeout.
    pub(crate) async fn sockets_closed(&self, timeout: Duration) {
        let all = u32::try_from(self.http.max_connections).unwrap_or(u32::MAX);
        if tokio::time::timeout(timeout, self.sockets.acquire_many(all))
            .await
            .is_err()
        {
            tracing::debug!("dropping WebSockets that did not close in time");
        }
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Resolves once boxes are being detached for the next daemon. Clients should reconnect then.
    fn handover(&self) -> BoxFuture<'static, ()> {
        let mut handing_over = self.handing_over.clone();
        Box::pin(async move {
            if handing_over.wait_for(|started| *started).await.is_err() {
                // The sender is gone, so there will be no handover.
                std::future::pending::<()>().await;
            }
        })
    }

    /// Resolves once shutdown has started.
    fn stopped(&self) -> BoxFuture<'static, ()> {
        let mut stopping = self.stopping.clone();
        Box::pin(async move {
            // An error also means that the daemon is stopping.
            let _ = stopping.wait_for(|stopping| *stopping).await;
        })
    }
}

/// Timeout for quick backend operations, such as file calls. Generous, for overloaded hosts.
pub(crate) const BACKEND_TIMEOUT: Duration = Duration::from_mins(2);

/// Ensures that a request is answered if the backend hangs.
pub(crate) async fn with_timeout<T, E: Into<ApiError>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(limit, work).await {
        Ok(outcome) => outcome.map_err(Into::into),
        Err(_) => Err(ApiError::new(
            ErrorCode::Timeout,
            format!("the backend did not respond within {} s", limit.as_secs()),
        )),
    }
}

/// All routes with their middleware.
pub(crate) fn router(app: Arc<App>) -> Router {
    let router = routes::routes()
        .route("/rpc/ws", any(langbot::connect))
        .route("/mcp", mcp::route(&app));
    mcp::gateway::routes(router)
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        // The last layer is the outermost: account, catch panics, admit, route.
        .layer(from_fn_with_state(Arc::clone(&app), guard::admit))
        .layer(CatchPanicLayer::custom(guard::after_panic))
        .layer(from_fn_with_state(Arc::clone(&app), guard::account))
        .with_state(app)
}

async fn unknown_route(uri: Uri) -> Response {
    ApiError::new(
        ErrorCode::NotFound,
        format!("no such route: `{}`", uri.path()),
    )
    .hint("`GET /openapi.json` lists all routes")
    .into_response()
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    ApiError::new(
        ErrorCode::NotFound,
        format!("`{}` does not support the method {method}", uri.path()),
    )
    .status(StatusCode::METHOD_NOT_ALLOWED)
    .hint("`GET /openapi.json` lists all routes and their methods")
    .into_response()
}
