//! Routes about commands that run, or ended not long ago.

use axum::response::Response;
use boxwood_api::{ErrorBody, ExecDetail, ExecInfo, KilledExec};

use super::error::ApiResult;
use super::ids::{InExec, InSession};
use super::{PATIENCE, json, within};

#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs", tag = "execs", operation_id = "list_execs",
    params(("session_id" = String, Path,)),
    responses(
        (status = 200, description = "Commands that run, and those that are remembered", body = Vec<ExecInfo>),
        (status = 404, body = ErrorBody, description = "No such session")))]
pub(super) async fn list(InSession { id, sessions }: InSession) -> ApiResult<Response> {
    Ok(json::ok(&sessions.execs(&id)?))
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}", tag = "execs", operation_id = "exec_detail",
    params(("session_id" = String, Path,), ("exec_id" = u64, Path,)),
    responses(
        (status = 200, description = "The command, with its result once it has ended", body = ExecDetail),
        (status = 404, body = ErrorBody, description = "No such session, or no such command any more")))]
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
        (status = 200, description = "Its whole tree was killed, and it has ended", body = KilledExec),
        (status = 404, body = ErrorBody, description = "No such session, or no such command any more")))]
pub(super) async fn kill(
    InExec {
        id,
        exec_id,
        sessions,
    }: InExec,
) -> ApiResult<Response> {
    within(PATIENCE, sessions.kill_exec(&id, exec_id)).await?;
    Ok(json::ok(&KilledExec { killed: exec_id }))
}
