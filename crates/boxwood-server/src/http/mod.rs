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

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use axum::routing::get;
use boxwood_agent::Agent;
use boxwood_api::{ErrorCode, ExecInput, RelayControl, RelayNews};
use boxwood_policy::PolicyRules;
use boxwood_session::Sessions;
use boxwood_skills::SkillStore;
use bytes::Bytes;
use tokio::sync::{Semaphore, watch};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi as Document, Required};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

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
    /// Written when somebody asks for it: few do, and it is large.
    openapi: OnceLock<Bytes>,
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
            openapi: OnceLock::new(),
        }
    }

    fn openapi(&self) -> Bytes {
        self.openapi
            .get_or_init(|| openapi_json().into_bytes().into())
            .clone()
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
    let (router, _) = routes().split_for_parts();
    let router = router
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

/// Routes and their description, registered together so that neither can exist alone.
fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(ApiDoc::openapi())
        .routes(routes!(daemon::health))
        .routes(routes!(daemon::status))
        .routes(routes!(daemon::profiles))
        .routes(routes!(daemon::backends))
        .routes(routes!(daemon::doctor))
        .routes(routes!(daemon::healthz))
        .routes(routes!(daemon::readyz))
        .routes(routes!(daemon::metrics))
        .routes(routes!(daemon::openapi))
        .routes(routes!(events::events))
        .routes(routes!(sessions::list))
        .routes(routes!(
            sessions::create,
            sessions::detail,
            sessions::delete
        ))
        .routes(routes!(sessions::exec))
        .routes(routes!(exec_stream::exec))
        .routes(routes!(exec_ws::exec))
        .routes(routes!(execs::list))
        .routes(routes!(execs::detail, execs::kill))
        .routes(routes!(exec_ws::resume))
        .routes(routes!(exec_stream::resume))
        .routes(routes!(processes::list))
        .routes(routes!(
            processes::start,
            processes::detail,
            processes::stop
        ))
        .routes(routes!(
            processes::start_named,
            processes::detail_named,
            processes::stop_named
        ))
        .routes(routes!(processes::signal))
        .routes(routes!(processes::logs))
        .routes(routes!(relay::attach))
        .routes(routes!(relay::attach_named))
        .routes(routes!(transfer::download, transfer::upload, files::remove))
        .routes(routes!(files::list))
        .routes(routes!(files::stat))
        .routes(routes!(files::mkdir))
        .routes(routes!(files::rename))
        .routes(routes!(file_tools::read))
        .routes(routes!(file_tools::write))
        .routes(routes!(file_tools::edit))
        .routes(routes!(file_tools::glob))
        .routes(routes!(file_tools::grep))
        .routes(routes!(images::list))
        .routes(routes!(images::import, images::delete))
        .routes(routes!(images::pull))
        .routes(routes!(agent::tools))
        .routes(routes!(agent::call))
        .routes(routes!(agent::status))
        .routes(routes!(agent::errors))
        .routes(routes!(agent::guidance))
        .routes(routes!(agent::register_skill))
        .routes(routes!(mcp_servers::list, mcp_servers::add))
        .routes(routes!(mcp_servers::import))
        .routes(routes!(mcp_progress::test))
        .routes(routes!(
            mcp_servers::detail,
            mcp_servers::replace,
            mcp_servers::edit,
            mcp_servers::remove
        ))
        .routes(routes!(mcp_servers::start))
        .routes(routes!(mcp_servers::stop))
        .routes(routes!(mcp_servers::restart))
        .routes(routes!(mcp_servers::logs))
        .routes(routes!(mcp_progress::progress))
        .routes(routes!(mcp_progress::test_stored))
        .routes(routes!(mcp_servers::tools))
        .routes(routes!(mcp_servers::call))
        .routes(routes!(skills::list, skills::create))
        .routes(routes!(skills::detail, skills::update, skills::delete))
        .routes(routes!(skill_files::list))
        .routes(routes!(
            skill_files::read,
            skill_files::write,
            skill_files::remove
        ))
        .routes(routes!(skill_files::rename))
        .routes(routes!(skill_archives::export))
        .routes(routes!(skill_archives::install))
        // The one fixed word among the names: a skill may have it as well.
        .route(
            &format!("/v1/skills/{}", skills::INSTALL),
            get(skills::detail)
                .patch(skills::update)
                .delete(skills::delete),
        )
}

/// The document that `/openapi.json` serves.
pub fn openapi_json() -> String {
    let (_, mut document) = routes().split_for_parts();
    // What the router calls a path of many parts, the document cannot say.
    document.paths.paths = std::mem::take(&mut document.paths.paths)
        .into_iter()
        .map(|(path, mut item)| {
            if path.contains("{session_id}") {
                pin(&mut item);
            }
            (path.replace("{*", "{"), item)
        })
        .collect();
    document.to_json().unwrap_or_else(|error| {
        tracing::error!(%error, "the OpenAPI document could not be written");
        "{}".to_owned()
    })
}

/// Describes what every route about a session knows, once for all of them.
fn pin(item: &mut PathItem) {
    let methods = [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.delete,
        &mut item.patch,
    ];
    for operation in methods.into_iter().flatten() {
        let incarnation = ParameterBuilder::new()
            .name("incarnation")
            .parameter_in(ParameterIn::Query)
            .required(Required::False)
            .description(Some(
                "Only this incarnation of the session; another, or none, is 410 `session_gone`.",
            ))
            .schema(Some(
                ObjectBuilder::new()
                    .schema_type(Type::Integer)
                    .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
                    .minimum(Some(0)),
            ))
            .build();
        operation
            .parameters
            .get_or_insert_default()
            .push(incarnation.into());
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Boxwood",
        description = "Sandboxes for AI agents: sessions, commands, managed processes, files, skills.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    components(schemas(ExecInput, RelayControl, RelayNews)),
    security(("bearer" = []), ("api_key" = []), ()),
    modifiers(&Schemes)
)]
struct ApiDoc;

struct Schemes;

impl Modify for Schemes {
    fn modify(&self, document: &mut Document) {
        let components = document.components.get_or_insert_default();
        components.add_security_scheme(
            "bearer",
            SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)),
        );
        components.add_security_scheme(
            "api_key",
            SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key"))),
        );
    }
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
