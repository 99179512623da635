//! Routes for sessions and captured commands.

pub(super) mod exec;
pub(super) mod files;
pub(super) mod processes;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::response::Response;
use boxwood_api::{
    DeletedSession, ErrorBody, ExecResult, SessionDetail, SessionId, SessionInfo, SpecRequest,
};
use boxwood_policy::{Admission, Denial, Origin};

use crate::facts;
use crate::http::error::ApiResult;
use crate::http::json::{self, JsonBody};
use crate::http::params::InSession;
use crate::http::{App, BACKEND_TIMEOUT, with_timeout};

#[utoipa::path(get, path = "/v1/sessions", tag = "sessions",
    responses((status = 200, description = "All sessions", body = Vec<SessionInfo>)))]
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    json::ok(app.sessions.list())
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}", tag = "sessions",
    request_body = SpecRequest,
    responses(
        (status = 201, description = "The session, created or reused", body = SessionInfo),
        (status = 409, body = ErrorBody, description = "The session exists with different settings")))]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    InSession { id, sessions }: InSession,
    JsonBody(request): JsonBody<SpecRequest>,
) -> ApiResult {
    let admission = admit(&app, id, request).await?;
    with_timeout(app.start_timeout, sessions.get_or_create(admission.spec))
        .await
        .map(json::created)
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}", tag = "sessions",
    responses((status = 200, description = "The session with its processes", body = SessionDetail)))]
pub(crate) async fn detail(InSession { id, sessions }: InSession) -> ApiResult {
    Ok(json::ok(sessions.detail(&id)?))
}

#[utoipa::path(delete, path = "/v1/sessions/{session_id}", tag = "sessions",
    responses((status = 200, description = "The session was deleted", body = DeletedSession)))]
pub(crate) async fn delete(InSession { id, sessions }: InSession) -> ApiResult {
    with_timeout(BACKEND_TIMEOUT, sessions.delete(&id, "requested")).await?;
    Ok(json::ok(DeletedSession { deleted: id }))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/exec", tag = "sessions",
    request_body = SpecRequest,
    responses(
        (status = 200, description = "The result, also after a timeout", body = ExecResult),
        (status = 409, body = ErrorBody, description = "The session exists with different settings"),
        (status = 410, body = ErrorBody, description = "The box died")))]
pub(crate) async fn exec(
    State(app): State<Arc<App>>,
    InSession { id, sessions }: InSession,
    JsonBody(request): JsonBody<SpecRequest>,
) -> ApiResult {
    let started = Instant::now();
    let admission = admit_command(&app, id, request).await?;
    let limit = admission.exec.timeout() + app.start_timeout;
    let result = with_timeout(limit, sessions.exec(admission)).await?;
    app.metrics.exec(started.elapsed());
    Ok(json::ok(result))
}

/// Gathers facts and applies policy. The id in the path takes precedence over that in the body.
pub(crate) async fn admit(
    app: &App,
    id: SessionId,
    mut request: SpecRequest,
) -> ApiResult<Admission> {
    request.session_id = Some(id);
    let (origin, own) = (Origin::Client, Vec::new());
    Ok(facts::admit(&request, origin, own, &app.skills, &app.rules).await?)
}

/// The same for a request that must have a command.
pub(crate) async fn admit_command(
    app: &App,
    id: SessionId,
    request: SpecRequest,
) -> ApiResult<Admission> {
    if request.cmd.trim().is_empty() {
        return Err(Denial::EmptyCommand.into());
    }
    admit(app, id, request).await
}
