//! Hosted MCP servers: definitions and state.

pub(crate) mod edit;

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{Display, IntoStaticStr, VariantArray};
use utoipa::ToSchema;

use crate::id::checked_text;
use crate::{MountMode, Network, SessionId};

checked_text!(
    /// A server name. Used in URLs and in the id of its box.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$")]
    McpServerName,
    McpNameError
);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` cannot name an MCP server: use 1 to 48 letters, digits, `.`, `_` and `-`, a letter or digit first"
)]
pub struct McpNameError(String);

impl McpServerName {
    pub const MAX_BYTES: usize = 48;

    pub fn new(name: impl Into<String>) -> Result<Self, McpNameError> {
        let name = name.into();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let bytes = name.as_bytes();
        let is_legal = bytes.len() <= Self::MAX_BYTES
            && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.iter().copied().all(fits);
        if is_legal {
            Ok(Self(name))
        } else {
            Err(McpNameError(name.chars().take(80).collect()))
        }
    }
}

/// The definition of a server. Unknown JSON fields are errors.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServerSpec {
    pub name: McpServerName,
    /// `npx`, `uvx`, `uv`, an interpreter, or any program of the box or the host.
    pub command: String,
    /// `${input:ID}` is replaced by the value of `input:ID` in `env`.
    #[serde(default)]
    pub args: Vec<String>,
    /// Environment of the server process only. Values are stored separately and never shown. Values
    /// of `input:ID` are used in `args`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// A host directory, rewritten to its path in the box like paths in arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default, rename = "box")]
    pub settings: McpBoxSettings,
    #[serde(default)]
    pub tools: McpToolFilter,
    /// Stop the server after this many seconds without a call; the next call starts it. Default:
    /// never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_stop_sec: Option<u64>,
    /// Additional packages or constraints for the install, such as `mcp<2`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
}

const fn yes() -> bool {
    true
}

/// Without values of the environment, because they may be secrets.
impl fmt::Debug for McpServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServerSpec")
            .field("name", &self.name)
            .field("command", &self.command)
            .field("args", &self.args)
            .field("env_keys", &self.env.keys().collect::<Vec<_>>())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The box of a server. Defaults come from the profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpBoxSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Network while the server runs. Packages are always installed with network.
    pub network: Network,
    /// The directory the server works on. Default: inferred from absolute paths in command and
    /// arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// `ro`: the server gets its own copy. `rw`: the directory itself is mounted.
    pub host_path_mode: MountMode,
    /// Environment of all processes in the box. Shown in responses, so not suitable for secrets.
    pub env: BTreeMap<String, String>,
    #[schema(minimum = 1)]
    pub startup_timeout_sec: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<u64>,
    /// Default: false, because many servers write next to their files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_rootfs: Option<bool>,
}

impl Default for McpBoxSettings {
    fn default() -> Self {
        Self {
            profile: None,
            backend: None,
            image: None,
            network: Network::On,
            host_path: None,
            host_path_mode: MountMode::Ro,
            env: BTreeMap::new(),
            startup_timeout_sec: 120,
            cpus: None,
            memory_mb: None,
            pids_limit: None,
            read_only_rootfs: None,
        }
    }
}

/// Which tools of a server clients can see and call. `*` matches any text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpToolFilter {
    /// Empty: all tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// The phase of a start, or in which it failed.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    Display,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum McpPhase {
    SessionCreate,
    DepInstall,
    ProcessStart,
    RelayConnect,
    McpInit,
    Runtime,
    ToolCall,
    BoxUnavailable,
}

impl McpPhase {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum McpStatus {
    /// `enabled` is false in the definition.
    Disabled,
    /// Waiting for a free start slot.
    Queued,
    Connecting,
    Connected,
    /// Stopped manually, or because it was idle. A call starts it again unless it was stopped
    /// manually.
    Stopped,
    Error,
}

impl McpStatus {
    pub const ALL: &'static [Self] = Self::VARIANTS;

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One phase of the last start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct McpStep {
    pub phase: McpPhase,
    pub started_at: Timestamp,
    /// Absent while the phase is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// A description, such as the package being installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A tool, in the format of LangBot Box.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct McpToolInfo {
    /// The name used by the server.
    pub name: String,
    pub description: String,
    /// A JSON Schema, as provided by the server.
    #[schema(value_type = Object)]
    pub parameters: Value,
}

/// The current state of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct McpRuntimeInfo {
    pub status: McpStatus,
    pub error_message: Option<String>,
    pub error_phase: Option<McpPhase>,
    /// Consecutive failures since it was last healthy.
    pub retry_count: u32,
    /// The visible tools, after the filter.
    pub tool_count: usize,
    pub tools: Vec<McpToolInfo>,
    /// Present only while it has a box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub box_session_id: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub box_enabled: Option<bool>,
    /// The phases of the last start.
    #[serde(default)]
    pub steps: Vec<McpStep>,
    /// Differences between the box and the definition, such as a network that the profile disables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// When the next start attempt begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// How to resolve the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The negotiated MCP protocol version, once connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// Name and version reported by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub server_info: Option<Value>,
}

/// A stored server with its state. Without environment values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct McpServerInfo {
    pub name: McpServerName,
    pub command: String,
    pub args: Vec<String>,
    /// Names only, sorted: values may be secrets.
    pub env_keys: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    pub enabled: bool,
    #[serde(rename = "box")]
    pub settings: McpBoxSettings,
    pub tools: McpToolFilter,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_stop_sec: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The MCP endpoint, relative to the daemon's address.
    pub path: String,
    pub runtime: McpRuntimeInfo,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct McpServerList {
    pub servers: Vec<McpServerInfo>,
}

/// An import of an MCP client's configuration.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportMcpRequest {
    /// `{"mcpServers": …}`, `{"servers": …}`, `{"mcp": {"servers": …}}` or the servers alone.
    #[schema(value_type = Object)]
    pub document: Value,
    /// Values for `${input:…}` and `${env:…}` in the document, by name or as `input:ID` and
    /// `env:NAME`; also `workspaceFolder` and `userHome`.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
    /// Replace servers with the same name. Otherwise they are skipped and reported.
    #[serde(default)]
    pub replace: bool,
}

/// Shows neither document nor inputs, which contain secrets.
impl fmt::Debug for ImportMcpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportMcpRequest")
            .field("inputs", &self.inputs.keys().collect::<Vec<_>>())
            .field("replace", &self.replace)
            .finish_non_exhaustive()
    }
}

/// The result of an import. Every server of the document is in one of the lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImportedMcp {
    pub added: Vec<McpServerName>,
    pub replaced: Vec<McpServerName>,
    pub skipped: Vec<SkippedMcp>,
    /// Notes about how the document was interpreted.
    pub notices: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkippedMcp {
    /// The name in the document.
    pub name: String,
    pub why: String,
}

/// A progress event. The stream ends when the server is connected, stopped or failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum McpProgress {
    Phase {
        phase: McpPhase,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A line written by an installer, or by the server during a test.
    Output { line: String },
    /// Not starting at the moment; the start will be retried automatically.
    Waiting {
        /// What it waits for, or the last error.
        why: String,
        /// Failed attempts so far.
        retry_count: u32,
        /// Time of the next attempt. Absent if it depends on other servers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The final state. Always the last event.
    Done { runtime: Box<McpRuntimeInfo> },
}

/// The result of a test. Its box has been deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct McpTestResult {
    pub ok: bool,
    pub runtime: McpRuntimeInfo,
    /// Stderr of the installer and the server.
    pub log: String,
}

/// Recent messages of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct McpLogs {
    pub stderr: String,
    pub install: String,
    /// One line per message, `>` to the server and `<` from it, without arguments and results.
    pub protocol: Vec<String>,
}

/// The body of a manual tool call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CallMcpToolRequest {
    #[schema(value_type = Object)]
    pub arguments: serde_json::Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovedMcpServer {
    pub removed: McpServerName,
}
