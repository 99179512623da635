//! The `/v1` dialect.
//!
//! Comes in: requests. Goes out: answers and frames. Never here: sessions, policy, backends; this is
//! a translation onto a few of their calls.

mod agent;
mod daemon;
mod error;
mod events;
mod exec_follow;
mod exec_stream;
mod exec_ws;
mod execs;
mod file_tools;
mod files;
mod guard;
mod ids;
mod image_pull;
mod image_upload;
mod images;
mod input;
mod json;
mod mcp;
mod mcp_gateway;
mod mcp_progress;
mod mcp_servers;
mod metrics;
mod processes;
mod range;
mod relay;
mod relay_bytes;
mod routes;
mod sessions;
mod since;
mod skill_archives;
mod skill_body;
mod skill_error;
mod skill_files;
mod skills;
pub(crate) mod socket;
mod transfer;
mod utf8;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use boxwood_agent::Agent;
use boxwood_api::ErrorCode;
use boxwood_policy::PolicyRules;
use boxwood_session::Sessions;
use boxwood_skills::SkillStore;
use tokio::sync::{Semaphore, watch};
use tower_http::catch_panic::CatchPanicLayer;

use crate::agent::{DaemonBoxes, Home};
use crate::auth::Tokens;
use crate::config::{Config, HttpConfig};
use crate::langbot::{self, LangBot};
use crate::load::Shares;
use crate::mcp_hosting::McpHost;
use crate::skill_store::skill_store;
pub(crate) use error::{ApiError, ApiResult};
pub(crate) use files::unexpected as unexpected_answer;
use guard::RequestIds;
pub(crate) use ids::InSession;
pub(crate) use metrics::Metrics;
pub use routes::openapi_json;
pub(crate) use skill_archives::install_package;
pub(crate) use skill_body::Door as SkillDoor;
pub(crate) use skill_error::refusal as skill_refusal;
pub(crate) use skills::{ask_store, detail_of as skill_detail, info as skill_info};
pub(crate) use transfer::put as put_file;

/// What every route may use.
pub(crate) struct App {
    pub(crate) sessions: Sessions,
    pub(crate) rules: PolicyRules,
    pub(crate) tokens: Tokens,
    pub(crate) skills: SkillStore,
    /// Its tools act on these very sessions and skills, unless its boxes are elsewhere.
    pub(crate) agent: Agent,
    pub(crate) langbot: LangBot,
    /// MCP servers in boxes of this daemon.
    pub(crate) mcp: McpHost,
    pub(crate) http: HttpConfig,
    pub(crate) metrics: Metrics,
    /// For a box to start, with its image's way from a registry where an engine may have to fetch it.
    pub(crate) start_patience: Duration,
    /// True once the daemon has been told to stop.
    pub(crate) stopping: watch::Receiver<bool>,
    /// True once boxes are about to be left to another daemon. Whoever is attached to something in one
    /// is told to come back: nobody may read from it, or give it input, any more.
    pub(crate) leaving: watch::Receiver<bool>,
    /// One permit per open WebSocket.
    sockets: Arc<Semaphore>,
    /// What MCP clients have sent and the gateway still holds.
    mcp_shares: Shares,
    skill_door: Arc<SkillDoor>,
    request_ids: RequestIds,
}

impl App {
    pub(crate) fn new(
        config: &Config,
        sessions: Sessions,
        rules: PolicyRules,
        langbot: LangBot,
        home: Home,
        stopping: watch::Receiver<bool>,
        leaving: watch::Receiver<bool>,
    ) -> Self {
        let skills = skill_store(config);
        let skill_door = Arc::<SkillDoor>::default();
        let start_patience = PATIENCE + config.longest_pull();
        let boxes = || DaemonBoxes {
            sessions: sessions.clone(),
            rules: crate::agent::rules(&config.agent, &rules),
            skills: skills.clone(),
            skill_door: Arc::clone(&skill_door),
            start_patience,
            backend: crate::agent::own_backend(&config.agent),
        };
        Self {
            agent: home.agent(&config.agent, boxes),
            mcp: McpHost::new(config, &sessions, &rules, &skills, start_patience),
            start_patience,
            sessions,
            rules,
            tokens: Tokens::new(&config.state_dir),
            skills,
            langbot,
            metrics: Metrics::default(),
            stopping,
            leaving,
            sockets: Arc::new(Semaphore::new(config.http.max_connections)),
            http: config.http.clone(),
            mcp_shares: Shares::default(),
            skill_door,
            request_ids: RequestIds::new(),
        }
    }

    pub(crate) fn ping_every(&self) -> Duration {
        Duration::from_secs(self.http.ping_sec.get())
    }

    fn body_timeout(&self) -> Duration {
        Duration::from_secs(self.http.body_timeout_sec)
    }

    /// Resolves when the last WebSocket has said goodbye, or the time is over.
    pub(crate) async fn sockets_closed(&self, longest: Duration) {
        let all = u32::try_from(self.http.max_connections).unwrap_or(u32::MAX);
        if tokio::time::timeout(longest, self.sockets.acquire_many(all))
            .await
            .is_err()
        {
            tracing::debug!("some WebSockets are cut off");
        }
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

/// For a backend to do what should be quick: start a box, end it, touch a file. Long enough for an
/// overloaded host, short enough that a caller is not left waiting for ever.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Every request gets an answer, also from a backend that does not come back.
pub(crate) async fn within<T, E: Into<ApiError>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(limit, work).await {
        Ok(outcome) => outcome.map_err(Into::into),
        Err(_) => Err(ApiError::new(
            ErrorCode::Timeout,
            format!("the backend did not answer within {} s", limit.as_secs()),
        )),
    }
}

/// Every route with everything around it.
pub(crate) fn router(app: Arc<App>) -> Router {
    let router = routes::routes()
        .route("/rpc/ws", any(langbot::ws::connect))
        .route("/mcp", mcp::route(&app));
    mcp_gateway::routes(router)
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
        format!("there is no route `{}`", uri.path()),
    )
    .hint("`GET /openapi.json` lists all routes")
    .into_response()
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    ApiError::new(
        ErrorCode::NotFound,
        format!("`{}` has no method {method}", uri.path()),
    )
    .status(StatusCode::METHOD_NOT_ALLOWED)
    .hint("`GET /openapi.json` lists all routes and their methods")
    .into_response()
}
