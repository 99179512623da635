//! Routes about the agent: its tools, and how it is.
//!
//! Comes in: what a platform passes on from a model, and the conversation it is about. Goes out: what
//! the tool came to. Never here: what a tool does.

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
use super::files::inside;
use super::ids::InSession;
use super::json::{self, JsonBody};
use super::skills::InSkill as Named;
use super::{App, PATIENCE, within};
use crate::agent::{Source, register};

#[utoipa::path(get, path = "/v1/agent/tools", tag = "agent", operation_id = "list_tools",
    responses((status = 200, description = "The tools as JSON Schema and in OpenAI's form; none, and why, where they cannot be used", body = ToolList)))]
pub(super) async fn tools(State(app): State<Arc<App>>) -> Response {
    json::ok(&app.agent.tools().await)
}

#[utoipa::path(post, path = "/v1/agent/tools/{name}", tag = "agent", operation_id = "call_tool",
    params(("name" = String, Path, description = "The tool")),
    request_body = ToolCall,
    responses(
        (status = 200, description = "What it came to; `ok` in the result says whether the operation succeeded", body = ToolAnswer),
        (status = 400, body = ErrorBody, description = "The arguments break a rule"),
        (status = 404, body = ErrorBody, description = "No such tool"),
        (status = 409, body = ErrorBody, description = "The session exists with other settings"),
        (status = 503, body = UnavailableBody, description = "The agent is off, or its boxes cannot be had now")))]
pub(super) async fn call(
    State(app): State<Arc<App>>,
    Named(name): Named,
    JsonBody(call): JsonBody<ToolCall>,
) -> ApiResult<Response> {
    let started = Instant::now();
    // A caller that leaves takes its command along: dropping the call kills it.
    let answer = match app.agent.call(&name, call, &NoProgress).await {
        Err(error) if error.state.is_some() => return Ok(unavailable(error)),
        outcome => outcome?,
    };
    if name == "exec" {
        app.metrics.exec(started.elapsed());
    }
    Ok(json::ok(&answer))
}

#[utoipa::path(get, path = "/v1/agent/status", tag = "agent", operation_id = "agent_status",
    responses((status = 200, description = "Whether the tools can be used, and why not", body = AgentStatus)))]
pub(super) async fn status(State(app): State<Arc<App>>) -> Response {
    json::ok(&app.agent.status().await)
}

#[utoipa::path(get, path = "/v1/agent/errors", tag = "agent", operation_id = "agent_errors",
    responses((status = 200, description = "The last failures, oldest first, at most 50", body = Vec<AgentErrorRecord>)))]
pub(super) async fn errors(State(app): State<Arc<App>>) -> Response {
    json::ok(&app.agent.recent_errors())
}

#[utoipa::path(post, path = "/v1/agent/guidance", tag = "agent", operation_id = "agent_guidance",
    request_body = AgentQuery,
    responses((status = 200, description = "Text for the system prompt, and the skills this conversation may see", body = AgentGuidance)))]
pub(super) async fn guidance(
    State(app): State<Arc<App>>,
    JsonBody(query): JsonBody<AgentQuery>,
) -> ApiResult<Response> {
    Ok(json::ok(&app.agent.guidance(&query).await))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/register_skill", tag = "skills", operation_id = "register_skill",
    params(("session_id" = String, Path,)),
    request_body = RegisterSkillRequest,
    responses(
        (status = 201, description = "The skill, copied out of the box", body = SkillDetail),
        (status = 400, body = ErrorBody, description = "There is no skill in the directory, or something that cannot be part of one"),
        (status = 404, body = ErrorBody, description = "No such session or directory"),
        (status = 409, body = ErrorBody, description = "There is a skill of that name"),
        (status = 413, body = ErrorBody, description = "Larger than the store allows")))]
pub(super) async fn register_skill(
    State(app): State<Arc<App>>,
    session: InSession,
    JsonBody(request): JsonBody<RegisterSkillRequest>,
) -> ApiResult<Response> {
    let path = inside(request.path)?;
    let wish = CreateSkillRequest {
        name: request.name,
        display_name: request.display_name,
        description: request.description,
        instructions: request.instructions,
    };
    let from = Source {
        sessions: &session.sessions,
        session_id: &session.id,
        path: &path,
    };
    let work = register(from, &app.skills, &app.skill_door, wish);
    Ok(json::created(&within(PATIENCE, work).await?))
}

/// Why no tool can be used now, whatever the arguments.
#[derive(Serialize, ToSchema)]
pub(super) struct UnavailableBody {
    error: UnavailableDetail,
}

#[derive(Serialize, ToSchema)]
struct UnavailableDetail {
    #[serde(flatten)]
    error: ErrorDetail,
    /// Which of the three reasons it is.
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

/// A refusal of the agent is told like any other.
impl From<ToolError> for ApiError {
    fn from(error: ToolError) -> Self {
        let told = Self::new(error.code, error.message);
        match error.hint {
            Some(hint) => told.hint(hint),
            None => told,
        }
    }
}
