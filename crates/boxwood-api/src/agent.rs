//! What an agent may call, and what comes back.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::{ErrorCode, Status};

/// The directory of a box in which the whole outputs of an agent's commands are kept for a while.
pub const KEPT_OUTPUT: &str = "/tmp/.boxwood/output";

/// The conversation on whose behalf a tool is called. Everything in it comes from the platform, nothing
/// from the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentQuery {
    /// A number or a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub query_id: Option<Value>,
    /// Such as `person` or `group`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub launcher_id: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub sender_id: Option<Value>,
    /// For the session-id template, and `_pipeline_bound_skills` and `_activated_skills`, which are
    /// lists of skill names.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub variables: Map<String, Value>,
    #[serde(skip_serializing_if = "AgentPipeline::is_empty")]
    pub pipeline: AgentPipeline,
}

/// What the platform's pipeline says about boxes.
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

/// The body of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolCall {
    /// What the model wrote.
    #[schema(value_type = Object)]
    pub arguments: Map<String, Value>,
    pub query: AgentQuery,
}

/// One tool, in the words that a model is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolInfo {
    pub name: String,
    /// For people.
    pub title: String,
    pub description: String,
    /// A JSON Schema.
    #[schema(value_type = Object)]
    pub input_schema: Value,
    #[schema(value_type = Object)]
    pub output_schema: Value,
    pub annotations: ToolAnnotations,
}

/// What a client may rely on before it asks its user.
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
    /// The same tools as OpenAI's function calling takes them.
    #[schema(value_type = Vec<Object>)]
    pub openai: Vec<Value>,
    /// Why there are none, where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<Unavailable>,
}

/// Whether the agent's tools can be used, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    Ready,
    /// The configuration says `enabled = false`.
    Disabled,
    /// The runtime cannot be reached.
    Unavailable,
    /// The runtime is there, its backend cannot make boxes.
    BackendUnusable,
}

/// Why a tool cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unavailable {
    pub state: AgentState,
    pub reason: String,
    /// What the operator can do.
    pub fix: String,
}

/// What a tool came to. `ok` in the result says whether the operation succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolAnswer {
    #[schema(value_type = Object)]
    pub result: Map<String, Value>,
    /// The box in which it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentStatus {
    pub available: bool,
    pub enabled: bool,
    pub state: AgentState,
    pub profile: String,
    /// The backend that agents insist on; absent where the choice is the runtime's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The image of agents' boxes, where it is not the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// What agents may write to a workspace of the host's, where it is not what the profile says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_quota_mb: Option<u64>,
    /// The runtime that has the agents' boxes, where it is not this daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    pub recent_error_count: u64,
    /// Empty when all is well.
    pub connector_error: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    pub shares_filesystem: bool,
    /// The session-id template that holds for every conversation, where the operator forces one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_template: Option<String>,
    /// What the runtime says of itself, where it could be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Status>,
}

/// One failure that somebody may want to look at later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentErrorRecord {
    #[schema(value_type = String, format = DateTime)]
    pub timestamp: Timestamp,
    #[serde(rename = "type")]
    pub kind: ErrorCode,
    pub message: String,
    pub query_id: String,
}

/// Text for the system prompt, where the platform has the tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentGuidance {
    pub text: String,
    /// The skills this conversation may see: name to description.
    pub skills: BTreeMap<String, String>,
}
