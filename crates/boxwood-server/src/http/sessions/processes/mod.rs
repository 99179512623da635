//! Routes for managed processes. The forms without process id use the process `default`.

pub(crate) mod relay;
mod relay_bytes;
mod relay_lines;

use boxwood_api::{
    ErrorBody, ProcessInfo, ProcessLogs, ProcessSpec, SessionId, SignalRequest, SignalledProcess,
    StoppedProcess,
};
use boxwood_session::{Replace, Sessions};

use crate::http::error::ApiResult;
use crate::http::json::{self, JsonBody};
use crate::http::params::{InProcess, InSession};
use crate::http::{BACKEND_TIMEOUT, with_timeout};

#[utoipa::path(get, path = "/v1/sessions/{session_id}/processes", tag = "processes",
    responses((status = 200, description = "The session's managed processes", body = Vec<ProcessInfo>)))]
pub(crate) async fn list(InSession { id, sessions }: InSession) -> ApiResult {
    Ok(json::ok(sessions.processes(&id)?))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/managed-process", tag = "processes",
    request_body = ProcessSpec,
    responses(
        (status = 201, description = "The process was started", body = ProcessInfo),
        (status = 409, body = ErrorBody, description = "A process with this id is running")))]
pub(crate) async fn start(
    InSession { id, sessions }: InSession,
    JsonBody(spec): JsonBody<ProcessSpec>,
) -> ApiResult {
    begin(&sessions, &id, spec).await
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/managed-process/{process_id}", tag = "processes",
    request_body = ProcessSpec,
    responses(
        (status = 201, description = "The process was started", body = ProcessInfo),
        (status = 409, body = ErrorBody, description = "A process with this id is running")))]
pub(crate) async fn start_named(
    InProcess(sessions, id, process): InProcess,
    JsonBody(spec): JsonBody<ProcessSpec>,
) -> ApiResult {
    let spec = ProcessSpec {
        process_id: process,
        ..spec
    };
    begin(&sessions, &id, spec).await
}

async fn begin(sessions: &Sessions, id: &SessionId, spec: ProcessSpec) -> ApiResult {
    let starting = sessions.start_process(id, spec, Replace::Refuse);
    with_timeout(BACKEND_TIMEOUT, starting)
        .await
        .map(json::created)
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process", tag = "processes",
    responses((status = 200, description = "The process `default`", body = ProcessInfo)))]
pub(crate) async fn detail(ids: InProcess) -> ApiResult {
    detail_named(ids).await
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/{process_id}", tag = "processes",
    responses((status = 200, description = "The process", body = ProcessInfo)))]
pub(crate) async fn detail_named(InProcess(sessions, id, process): InProcess) -> ApiResult {
    Ok(json::ok(sessions.process(&id, &process)?))
}

#[utoipa::path(delete, path = "/v1/sessions/{session_id}/managed-process", tag = "processes",
    responses((status = 200, description = "The process `default` was stopped", body = StoppedProcess)))]
pub(crate) async fn stop(ids: InProcess) -> ApiResult {
    stop_named(ids).await
}

#[utoipa::path(delete, path = "/v1/sessions/{session_id}/managed-process/{process_id}", tag = "processes",
    responses((status = 200, description = "The process was stopped", body = StoppedProcess)))]
pub(crate) async fn stop_named(InProcess(sessions, id, process): InProcess) -> ApiResult {
    with_timeout(BACKEND_TIMEOUT, sessions.stop_process(&id, &process)).await?;
    Ok(json::ok(StoppedProcess { stopped: process }))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/managed-process/{process_id}/signal", tag = "processes",
    request_body = SignalRequest,
    responses(
        (status = 200, description = "The signal was sent", body = SignalledProcess),
        (status = 409, body = ErrorBody, description = "The process has exited")))]
pub(crate) async fn signal(
    InProcess(sessions, id, process): InProcess,
    JsonBody(request): JsonBody<SignalRequest>,
) -> ApiResult {
    sessions
        .signal_process(&id, &process, request.signal.number())
        .await?;
    Ok(json::ok(SignalledProcess { signalled: process }))
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/{process_id}/logs", tag = "processes",
    responses((status = 200, description = "The most recent output of the process", body = ProcessLogs)))]
pub(crate) async fn logs(InProcess(sessions, id, process): InProcess) -> ApiResult {
    Ok(json::ok(&sessions.logs(&id, &process)?))
}
