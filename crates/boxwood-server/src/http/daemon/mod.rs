//! Routes for the daemon itself.

pub(super) mod events;
pub(super) mod metrics;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use boxwood_api::{BackendInfo, BackendReport, DoctorReport, ProfileInfo, Status};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::error::{ApiError, ApiResult};
use super::params::Params;
use super::routes::openapi_json;
use super::{App, BACKEND_TIMEOUT, json, with_timeout};
use crate::mcp_hosting::toolchains;

#[utoipa::path(get, path = "/v1/health", tag = "daemon",
    responses((status = 200, description = "The default backend", body = BackendInfo)))]
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    json::ok(app.sessions.status().backend)
}

#[utoipa::path(get, path = "/v1/status", tag = "daemon",
    responses((status = 200, description = "Counters of the daemon", body = Status)))]
pub(super) async fn status(State(app): State<Arc<App>>) -> Response {
    json::ok(app.sessions.status())
}

#[utoipa::path(get, path = "/v1/profiles", tag = "daemon",
    responses((status = 200, description = "All profiles", body = Vec<ProfileInfo>)))]
pub(super) async fn profiles(State(app): State<Arc<App>>) -> Response {
    json::ok(app.rules.profiles.infos())
}

#[utoipa::path(get, path = "/v1/backends", tag = "daemon",
    responses((status = 200, description = "All backends, in order of preference", body = Vec<BackendReport>)))]
pub(super) async fn backends(State(app): State<Arc<App>>) -> ApiResult {
    let probing = async { Ok::<_, ApiError>(app.sessions.backends().survey().await) };
    Ok(json::ok(with_timeout(BACKEND_TIMEOUT, probing).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WhichBackend {
    /// The backend to probe. Default: the daemon's default backend.
    backend: Option<String>,
}

#[utoipa::path(get, path = "/v1/doctor", tag = "daemon",
    params(WhichBackend),
    responses((status = 200, description = "The result of probing each isolation mechanism", body = DoctorReport)))]
pub(super) async fn doctor(
    State(app): State<Arc<App>>,
    Params(which): Params<WhichBackend>,
) -> ApiResult {
    let probing = app.sessions.backends().doctor(which.backend.as_deref());
    let report = with_timeout(BACKEND_TIMEOUT, probing).await?;
    let toolchains = tokio::task::spawn_blocking(toolchains).await;
    Ok(json::ok(
        report.with_toolchains(toolchains.unwrap_or_default()),
    ))
}

/// LangBot's clients read `live` and `resources`.
#[derive(Serialize, ToSchema)]
pub(super) struct Liveness {
    status: &'static str,
    live: bool,
    version: &'static str,
    active_sessions: u64,
    managed_processes: u64,
    resources: Resources,
}

/// Resource counters, with LangBot's field names.
#[derive(Serialize, ToSchema)]
struct Resources {
    event_loop: EventLoop,
    sessions: usize,
    managed_processes: usize,
    completed_processes: usize,
    creating_session_tasks: usize,
    closing_session_tasks: usize,
    background_tasks: usize,
}

#[derive(Serialize, ToSchema)]
struct EventLoop {
    workers: usize,
    /// Tasks waiting for a worker thread.
    queued: usize,
}

/// Liveness, and whether boxes can be started.
#[derive(Serialize, ToSchema)]
pub(super) struct Readiness {
    #[serde(flatten)]
    liveness: Liveness,
    ready: bool,
    /// `standard`, or `grant_enforced` if LangBot requires admission grants.
    mode: Value,
    backend: Value,
    /// The result of each check.
    checks: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    unsafe_soft_storage_limits: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

#[utoipa::path(get, path = "/healthz", tag = "daemon", security(()),
    responses((status = 200, description = "The daemon is running", body = Liveness)))]
pub(super) async fn healthz(State(app): State<Arc<App>>) -> Response {
    json::ok(liveness(&app, "ok"))
}

#[utoipa::path(get, path = "/readyz", tag = "daemon", security(()),
    responses(
        (status = 200, description = "Boxes can be started", body = Readiness),
        (status = 503, description = "No box can be started, or the daemon is stopping", body = Readiness)))]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Response {
    let mut report = app.langbot.readiness().await;
    let ready = report["ready"] == true && !app.is_stopping();
    let (code, status_text) = match (app.is_stopping(), ready) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        (false, true) => (StatusCode::OK, "ready"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    };
    let mut part = |key: &str| report.get_mut(key).map(Value::take);
    let body = Readiness {
        liveness: liveness(&app, status_text),
        ready,
        mode: part("mode").unwrap_or_default(),
        backend: part("backend").unwrap_or_default(),
        checks: part("checks").unwrap_or_default(),
        unsafe_soft_storage_limits: part("unsafe_soft_storage_limits"),
        error: part("error"),
    };
    json::answer(code, &body)
}

fn liveness(app: &App, status_text: &'static str) -> Liveness {
    let workload = app.sessions.workload();
    let tasks = tokio::runtime::Handle::current().metrics();
    Liveness {
        status: status_text,
        live: true,
        version: env!("CARGO_PKG_VERSION"),
        active_sessions: workload.sessions as u64,
        managed_processes: workload.running_processes as u64,
        resources: Resources {
            event_loop: EventLoop {
                workers: tasks.num_workers(),
                queued: tasks.global_queue_depth(),
            },
            sessions: workload.sessions,
            managed_processes: workload.running_processes,
            completed_processes: workload.ended_processes,
            creating_session_tasks: workload.starting,
            closing_session_tasks: workload.closing,
            background_tasks: tasks.num_alive_tasks(),
        },
    }
}

#[utoipa::path(get, path = "/metrics", tag = "daemon",
    responses((status = 200, description = "Prometheus text", body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = app.metrics.render(
        &app.sessions.status(),
        &app.sessions.load(),
        &app.mcp.counts(),
    );
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

#[utoipa::path(get, path = "/openapi.json", tag = "daemon",
    responses((status = 200, description = "This document", body = serde_json::Value)))]
pub(super) async fn openapi() -> Response {
    let content_type = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, content_type)], openapi_json()).into_response()
}
