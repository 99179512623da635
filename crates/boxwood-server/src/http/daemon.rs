//! Routes about the daemon itself.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use boxwood_api::{
    BackendInfo, DoctorFinding, DoctorReport, ErrorBody, ErrorCode, FindingState, ProfileInfo,
    Status,
};
use boxwood_backend::{Finding, Outcome};
use serde::Serialize;
use utoipa::ToSchema;

use super::error::{ApiError, ApiResult};
use super::{App, PATIENCE, json, within};

#[utoipa::path(get, path = "/v1/health", tag = "daemon",
    responses((status = 200, description = "The backend", body = BackendInfo)))]
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    json::ok(&app.sessions.status().backend)
}

#[utoipa::path(get, path = "/v1/status", tag = "daemon",
    responses((status = 200, description = "The daemon in numbers", body = Status)))]
pub(super) async fn status(State(app): State<Arc<App>>) -> Response {
    json::ok(&app.sessions.status())
}

#[utoipa::path(get, path = "/v1/profiles", tag = "daemon",
    responses((status = 200, description = "All profiles", body = Vec<ProfileInfo>)))]
pub(super) async fn profiles(State(app): State<Arc<App>>) -> Response {
    json::ok(&app.rules.profiles.infos())
}

#[utoipa::path(get, path = "/v1/doctor", tag = "daemon",
    responses(
        (status = 200, description = "What each mechanism said when it was tried", body = DoctorReport),
        (status = 503, description = "The host could not be looked at", body = ErrorBody)))]
pub(super) async fn doctor(State(app): State<Arc<App>>) -> ApiResult<Response> {
    let probing = async {
        app.backend.probe().await.map_err(|error| {
            tracing::warn!(%error, source = ?error.source, "the backend could not be looked at");
            ApiError::new(ErrorCode::BackendUnavailable, error.to_string())
                .hint("the daemon's log has the cause")
        })
    };
    let probe = within(PATIENCE, probing).await?;
    let findings = probe.findings.into_iter().map(finding).collect();
    Ok(json::ok(&DoctorReport::new(app.backend.name(), findings)))
}

fn finding(finding: Finding) -> DoctorFinding {
    let (state, detail, fix) = match finding.outcome {
        Outcome::Works { detail } => (FindingState::Works, detail, None),
        Outcome::Missing { why, fix } => (FindingState::Missing, why, Some(fix)),
        Outcome::Fatal { why, fix } => (FindingState::Fatal, why, Some(fix)),
    };
    DoctorFinding {
        name: finding.name.to_owned(),
        mechanism: finding.mechanism,
        state,
        detail,
        fix,
        matters: finding.matters.to_owned(),
    }
}

/// Also readable by the seed's clients, which look at `status`.
#[derive(Serialize, ToSchema)]
pub(super) struct Liveness {
    status: &'static str,
    version: &'static str,
    active_sessions: u64,
    managed_processes: u64,
}

#[utoipa::path(get, path = "/healthz", tag = "daemon", security(()),
    responses((status = 200, description = "The process lives", body = Liveness)))]
pub(super) async fn healthz(State(app): State<Arc<App>>) -> Response {
    json::ok(&liveness(&app, "ok"))
}

#[utoipa::path(get, path = "/readyz", tag = "daemon", security(()),
    responses(
        (status = 200, description = "Boxes can be started", body = Liveness),
        (status = 503, description = "No box can be started, or the daemon is going", body = Liveness)))]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Response {
    if app.is_stopping() {
        return json::answer(StatusCode::SERVICE_UNAVAILABLE, &liveness(&app, "stopping"));
    }
    if !app.sessions.status().backend.available {
        return json::answer(
            StatusCode::SERVICE_UNAVAILABLE,
            &liveness(&app, "unavailable"),
        );
    }
    json::ok(&liveness(&app, "ready"))
}

fn liveness(app: &App, word: &'static str) -> Liveness {
    let status = app.sessions.status();
    Liveness {
        status: word,
        version: env!("CARGO_PKG_VERSION"),
        active_sessions: status.active_sessions,
        managed_processes: status.managed_processes,
    }
}

#[utoipa::path(get, path = "/metrics", tag = "daemon",
    responses((status = 200, description = "Prometheus text", body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = app.metrics.render(&app.sessions.status());
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

#[utoipa::path(get, path = "/openapi.json", tag = "daemon",
    responses((status = 200, description = "This document", body = serde_json::Value)))]
pub(super) async fn openapi(State(app): State<Arc<App>>) -> Response {
    let content_type = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, content_type)], app.openapi()).into_response()
}
