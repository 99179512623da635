//! Agent tools: calls, results and status.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::{ErrorCode, Status};

/// The directory in a box that keeps complete command outputs of agents for a while.
pub const KEPT_OUTPUT: &str = "/tmp/.boxwood/output";

/// The conversation on whose behalf a tool is called. Set by the platform, not by the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentQuery {
    /// A number or a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub query_id: Option<Value>,
    /// For example `person` or `group`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub launcher_id: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub sender_id: Option<Value>,
    /// Variables of the session-id template. `_pipeline_bound_skills` and `_activated_skills` are
    /// lists of skill names.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub variables: Map<String, Value>,
    #[serde(skip_serializing_if = "AgentPipeline::is_empty")]
    pub pipeline: AgentPipeline,
}

/// Box settings of the platform's pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentPipeline {
    #[serde(rename = "box-session-id-template", alias = "box_session_id_template")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub box_session_id_template: Option<String>,
}

impl AgentPipeline {
    fn is_empty(&self) -> bool {
        self.box_session_id_template.is_none()
    }
}

/// The body of a tool call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolCall {
    /// The arguments as written by the model.
    #[schema(value_type = Object)]
    pub arguments: Map<String, Value>,
    pub query: AgentQuery,
}

/// A tool as presented to a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolInfo {
    pub name: String,
    /// Display name.
    pub title: String,
    pub description: String,
    /// A JSON Schema.
    #[schema(value_type = Object)]
    pub input_schema: Value,
    #[schema(value_type = Object)]
    pub output_schema: Value,
    pub annotations: ToolAnnotations,
}

/// MCP tool annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one hint of the protocol, and none depends on another"
)]
pub struct ToolAnnotations {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolList {
    pub tools: Vec<ToolInfo>,
    /// The tools in the format of OpenAI function calling.
    #[schema(value_type = Vec<Object>)]
    pub openai: Vec<Value>,
    /// Set if no tools are available: the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<Unavailable>,
}

/// Availability of the agent tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    Ready,
    /// Disabled in the configuration (`enabled = false`).
    Disabled,
    /// The runtime cannot be reached.
    Unavailable,
    /// The runtime is reachable, but its backend cannot start boxes.
    BackendUnusable,
}

/// Why the tools are unavailable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unavailable {
    pub state: AgentState,
    pub reason: String,
    /// What the operator can do.
    pub fix: String,
}

/// The result of a tool call. `ok` in the result is true if the operation succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolAnswer {
    #[schema(value_type = Object)]
    pub result: Map<String, Value>,
    /// The session that the tool used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentStatus {
    pub available: bool,
    pub enabled: bool,
    pub state: AgentState,
    pub profile: String,
    /// The backend required for agents. Absent: the runtime's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The image of agents' boxes, if it differs from the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The workspace quota of agents, if it differs from the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_quota_mb: Option<u64>,
    /// The runtime that runs the agents' boxes, if it is not this daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    pub recent_error_count: u64,
    /// Empty if available.
    pub connector_error: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Whether the runtime runs on this machine, so that host paths are valid for it.
    pub shares_filesystem: bool,
    /// The session-id template that the operator enforces for all conversations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_template: Option<String>,
    /// The status reported by the runtime, if it is reachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Status>,
}

/// A recent failure of an agent tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentErrorRecord {
    pub timestamp: Timestamp,
    #[serde(rename = "type")]
    pub kind: ErrorCode,
    pub message: String,
    pub query_id: String,
}

/// Text for the system prompt, to be used if the tools are available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentGuidance {
    pub text: String,
    /// The skills that are visible in this conversation: name to description.
    pub skills: BTreeMap<String, String>,
}
