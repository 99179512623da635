//! Routes for running and recently finished commands.

pub(crate) mod sse;
mod start;
mod utf8;
pub(crate) mod ws;
mod ws_session;

use boxwood_api::{ExecDetail, ExecInfo, KilledExec};

use crate::http::error::ApiResult;
use crate::http::params::{InExec, InSession};
use crate::http::{BACKEND_TIMEOUT, json, with_timeout};

#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs", tag = "execs", operation_id = "list_execs",
    responses((status = 200, description = "Running and recently finished commands", body = Vec<ExecInfo>)))]
pub(crate) async fn list(InSession { id, sessions }: InSession) -> ApiResult {
    Ok(json::ok(sessions.execs(&id)?))
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}", tag = "execs", operation_id = "exec_detail",
    responses((status = 200, description = "The command, with its result if it has finished", body = ExecDetail)))]
pub(crate) async fn detail(InExec(sessions, id, exec_id): InExec) -> ApiResult {
    Ok(json::ok(sessions.exec_detail(&id, exec_id)?))
}

#[utoipa::path(delete, path = "/v1/sessions/{session_id}/execs/{exec_id}", tag = "execs", operation_id = "kill_exec",
    responses((status = 200, description = "The command and all its child processes were killed", body = KilledExec)))]
pub(crate) async fn kill(InExec(sessions, id, exec_id): InExec) -> ApiResult {
    with_timeout(BACKEND_TIMEOUT, sessions.kill_exec(&id, exec_id)).await?;
    Ok(json::ok(KilledExec { killed: exec_id }))
}
