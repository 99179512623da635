//! Routes for the agent tools.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use boxwood_agent::{NoProgress, ToolError};
use boxwood_api::{
    AgentErrorRecord, AgentGuidance, AgentQuery, AgentState, AgentStatus, CreateSkillRequest,
    ErrorBody, ErrorCode, ErrorDetail, RegisterSkillRequest, SkillDetail, ToolAnswer, ToolCall,
    ToolList,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::error::{ApiError, ApiResult};
use super::json::{self, JsonBody};
use super::params::InSession;
use super::sessions::files::inside;
use super::skills::InSkill as Named;
use super::{App, BACKEND_TIMEOUT, with_timeout};
use crate::agent::register;

#[utoipa::path(get, path = "/v1/agent/tools", tag = "agent", operation_id = "list_tools",
    responses((status = 200, description = "The tools as JSON Schema and in OpenAI format; empty with a reason if they are unavailable", body = ToolList)))]
pub(super) async fn tools(State(app): State<Arc<App>>) -> Response {
    json::ok(app.agent.tools().await)
}

#[utoipa::path(post, path = "/v1/agent/tools/{name}", tag = "agent", operation_id = "call_tool",
    params(("name" = String, Path, description = "The tool")),
    request_body = ToolCall,
    responses(
        (status = 200, description = "The result; `ok` is true if the operation succeeded", body = ToolAnswer),
        (status = 409, body = ErrorBody, description = "The session exists with different settings"),
        (status = 503, body = UnavailableBody, description = "The agent is disabled or its runtime is unavailable")))]
pub(super) async fn call(
    State(app): State<Arc<App>>,
    Named(name): Named,
    JsonBody(call): JsonBody<ToolCall>,
) -> ApiResult {
    let started = Instant::now();
    // Dropping the call kills its command, if the client disconnects.
    let answer = match app.agent.call(&name, call, &NoProgress).await {
        Err(error) if error.state.is_some() => return Ok(unavailable(error)),
        outcome => outcome?,
    };
    if name == "exec" {
        app.metrics.exec(started.elapsed());
    }
    Ok(json::ok(answer))
}

#[utoipa::path(get, path = "/v1/agent/status", tag = "agent", operation_id = "agent_status",
    responses((status = 200, description = "Availability of the tools", body = AgentStatus)))]
pub(super) async fn status(State(app): State<Arc<App>>) -> Response {
    json::ok(app.agent.status().await)
}

#[utoipa::path(get, path = "/v1/agent/errors", tag = "agent", operation_id = "agent_errors",
    responses((status = 200, description = "The last 50 failures, oldest first", body = Vec<AgentErrorRecord>)))]
pub(super) async fn errors(State(app): State<Arc<App>>) -> Response {
    json::ok(app.agent.recent_errors())
}

#[utoipa::path(post, path = "/v1/agent/guidance", tag = "agent", operation_id = "agent_guidance",
    request_body = AgentQuery,
    responses((status = 200, description = "Text for the system prompt, and the skills visible in this conversation", body = AgentGuidance)))]
pub(super) async fn guidance(
    State(app): State<Arc<App>>,
    JsonBody(query): JsonBody<AgentQuery>,
) -> ApiResult {
    Ok(json::ok(app.agent.guidance(&query).await))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/register_skill", tag = "skills", operation_id = "register_skill",
    request_body = RegisterSkillRequest,
    responses(
        (status = 201, description = "The registered skill", body = SkillDetail),
        (status = 409, body = ErrorBody, description = "A skill with this name exists")))]
pub(super) async fn register_skill(
    State(app): State<Arc<App>>,
    session: InSession,
    JsonBody(request): JsonBody<RegisterSkillRequest>,
) -> ApiResult {
    let path = inside(request.path)?;
    let new = CreateSkillRequest {
        name: request.name,
        display_name: request.display_name,
        description: request.description,
        instructions: request.instructions,
    };
    let work = register(&session, &path, &app.skills, &app.skill_uploads, new);
    Ok(json::created(with_timeout(BACKEND_TIMEOUT, work).await?))
}

/// Why the tools are unavailable.
#[derive(Serialize, ToSchema)]
pub(super) struct UnavailableBody {
    error: UnavailableDetail,
}

#[derive(Serialize, ToSchema)]
struct UnavailableDetail {
    #[serde(flatten)]
    error: ErrorDetail,
    /// The kind of unavailability.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<AgentState>,
}

fn unavailable(error: ToolError) -> Response {
    let detail = UnavailableDetail {
        error: ErrorDetail {
            code: ErrorCode::BackendUnavailable,
            message: error.message,
            hint: error.hint,
        },
        state: error.state,
    };
    let body = UnavailableBody { error: detail };
    json::answer(StatusCode::SERVICE_UNAVAILABLE, &body)
}

impl From<ToolError> for ApiError {
    fn from(error: ToolError) -> Self {
        Self::new(error.code, error.message).maybe_hint(error.hint)
    }
}
