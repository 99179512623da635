//! Routes for running and recently finished commands.

pub(super) mod sse;
mod utf8;
pub(super) mod ws;
mod ws_session;

use axum::response::Response;
use boxwood_api::{ErrorBody, ExecDetail, ExecInfo, KilledExec};

use super::error::ApiResult;
use super::params::{InExec, InSession};
use super::{BACKEND_TIMEOUT, json, with_timeout};

#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs", tag = "execs", operation_id = "list_execs",
    params(("session_id" = String, Path,)),
    responses(
        (status = 200, description = "Running and recently finished commands", body = Vec<ExecInfo>),
        (status = 404, body = ErrorBody, description = "Unknown session")))]
pub(super) async fn list(InSession { id, sessions }: InSession) -> ApiResult<Response> {
    Ok(json::ok(&sessions.execs(&id)?))
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}", tag = "execs", operation_id = "exec_detail",
    params(("session_id" = String, Path,), ("exec_id" = u64, Path,)),
    responses(
        (status = 200, description = "The command, with its result if it has finished", body = ExecDetail),
        (status = 404, body = ErrorBody, description = "Unknown session or command")))]
pub(super) async fn detail(
    InExec {
        id,
        exec_id,
        sessions,
    }: InExec,
) -> ApiResult<Response> {
    Ok(json::ok(&sessions.exec_detail(&id, exec_id)?))
}

#[utoipa::path(delete, path = "/v1/sessions/{session_id}/execs/{exec_id}", tag = "execs", operation_id = "kill_exec",
    params(("session_id" = String, Path,), ("exec_id" = u64, Path,)),
    responses(
        (status = 200, description = "The command and all its child processes were killed", body = KilledExec),
        (status = 404, body = ErrorBody, description = "Unknown session or command")))]
pub(super) async fn kill(
    InExec {
        id,
        exec_id,
        sessions,
    }: InExec,
) -> ApiResult<Response> {
    with_timeout(BACKEND_TIMEOUT, sessions.kill_exec(&id, exec_id)).await?;
    Ok(json::ok(&KilledExec { killed: exec_id }))
}
