//! MCP servers that Boxwood runs: how one is described, and how it is.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{MountMode, Network, SessionId};

/// A server's name: it stands in URLs and in its box's id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$")]
pub struct McpServerName(String);

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

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for McpServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for McpServerName {
    type Error = McpNameError;

    fn try_from(name: String) -> Result<Self, McpNameError> {
        Self::new(name)
    }
}

impl FromStr for McpServerName {
    type Err = McpNameError;

    fn from_str(name: &str) -> Result<Self, McpNameError> {
        Self::new(name)
    }
}

impl From<McpServerName> for String {
    fn from(name: McpServerName) -> Self {
        name.0
    }
}

/// One server, as it is asked for. Read from JSON strictly: an unknown field is an error.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServerSpec {
    pub name: McpServerName,
    /// `npx`, `uvx`, `uv`, `pipx`, an interpreter, or any program of the box or the host.
    pub command: String,
    /// `${input:ID}` stands for the value of `input:ID` in `env`, where there is one.
    #[serde(default)]
    pub args: Vec<String>,
    /// For that process alone. Values are kept apart and never shown. Those of `input:ID` are for `args`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// A directory of the host; it is rewritten as arguments are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default, rename = "box")]
    pub settings: McpBoxSettings,
    #[serde(default)]
    pub tools: McpToolFilter,
    /// Stopped after so many seconds without a call, and started by the next one. Never when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_stop_sec: Option<u64>,
    /// Further packages or constraints for the install, such as `mcp<2`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
}

const fn yes() -> bool {
    true
}

/// Environment values may be secrets, so only their names are shown.
impl fmt::Debug for McpServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServerSpec")
            .field("name", &self.name)
            .field("command", &self.command)
            .field("args", &self.args)
            .field("env_keys", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .field("enabled", &self.enabled)
            .field("settings", &self.settings)
            .field("tools", &self.tools)
            .field("idle_stop_sec", &self.idle_stop_sec)
            .field("with", &self.with)
            .finish()
    }
}

/// The box of one server. What is left out is decided by the profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpBoxSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// While it runs. Its packages are installed with the network on.
    pub network: Network,
    /// A directory the server works on; inferred from absolute paths in command and arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// `ro`: the server gets a copy of its own. `rw`: the directory itself.
    pub host_path_mode: MountMode,
    /// For everything in the box; shown, so no place for secrets.
    pub env: BTreeMap<String, String>,
    #[schema(minimum = 1)]
    pub startup_timeout_sec: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<u64>,
    /// Writable when left out: many servers write beside themselves.
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

/// Which of a server's tools clients see and may call. `*` stands for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpToolFilter {
    /// All when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// Where a server is on its way, or where it failed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
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
    pub const ALL: [Self; 8] = [
        Self::SessionCreate,
        Self::DepInstall,
        Self::ProcessStart,
        Self::RelayConnect,
        Self::McpInit,
        Self::Runtime,
        Self::ToolCall,
        Self::BoxUnavailable,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SessionCreate => "session_create",
            Self::DepInstall => "dep_install",
            Self::ProcessStart => "process_start",
            Self::RelayConnect => "relay_connect",
            Self::McpInit => "mcp_init",
            Self::Runtime => "runtime",
            Self::ToolCall => "tool_call",
            Self::BoxUnavailable => "box_unavailable",
        }
    }
}

impl fmt::Display for McpPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpStatus {
    /// Not to be started.
    Disabled,
    /// Waits for its turn to start.
    Queued,
    Connecting,
    Connected,
    /// Stopped, by hand or because nobody called it; a call starts it unless it was by hand.
    Stopped,
    Error,
}

/// One step of the last start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct McpStep {
    pub phase: McpPhase,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// Still going on when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// In words, such as the package that is being installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A tool in the words of the seed system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct McpToolInfo {
    /// As the server calls it.
    pub name: String,
    pub description: String,
    /// A JSON Schema, as the server wrote it.
    #[schema(value_type = Object)]
    pub parameters: Value,
}

/// How a server is right now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct McpRuntimeInfo {
    pub status: McpStatus,
    pub error_message: Option<String>,
    pub error_phase: Option<McpPhase>,
    /// Failures in a row since it was last healthy.
    pub retry_count: u32,
    /// What clients see, after the filter.
    pub tool_count: usize,
    pub tools: Vec<McpToolInfo>,
    /// Only while it has a box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub box_session_id: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub box_enabled: Option<bool>,
    /// The way of the last start, phase by phase.
    #[serde(default)]
    pub steps: Vec<McpStep>,
    /// What its boxes have otherwise than they were asked for, such as a network that the profile locks off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// When the next attempt begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub retry_at: Option<Timestamp>,
    /// What to do about the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The revision the server speaks, once it is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// The server's name and version, as it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub server_info: Option<Value>,
}

/// A stored server, with how it is. Environment values are left out.
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
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// Where MCP clients find it, below the daemon's address.
    pub path: String,
    pub runtime: McpRuntimeInfo,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct McpServerList {
    pub servers: Vec<McpServerInfo>,
}

/// A client's configuration, pasted as it is.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportMcpRequest {
    /// `{"mcpServers": …}`, `{"servers": …}`, `{"mcp": {"servers": …}}` or the servers alone.
    #[schema(value_type = Object)]
    pub document: Value,
    /// Values for `${input:…}` and `${env:…}` in the document, by their names or as `input:ID` and
    /// `env:NAME`; `workspaceFolder` and `userHome` are named as they are.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
    /// Whether a server of the same name is replaced; otherwise it is left alone and reported.
    #[serde(default)]
    pub replace: bool,
}

/// Documents and inputs hold secrets, so neither is shown.
impl fmt::Debug for ImportMcpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportMcpRequest")
            .field("inputs", &self.inputs.keys().collect::<Vec<_>>())
            .field("replace", &self.replace)
            .finish_non_exhaustive()
    }
}

/// What came of an import. Every server of the document is in one of the lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImportedMcp {
    pub added: Vec<McpServerName>,
    pub replaced: Vec<McpServerName>,
    pub skipped: Vec<SkippedMcp>,
    /// What was understood in a way worth knowing.
    pub notices: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkippedMcp {
    /// As the document has it.
    pub name: String,
    pub why: String,
}

/// One line of a server's progress. A stream of them ends once it is connected, stopped or has failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum McpProgress {
    Phase {
        phase: McpPhase,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A line that an installer wrote, or the server itself while it is tried out.
    Output { line: String },
    /// It is not being started just now, and will be without being asked for again.
    Waiting {
        /// What for, or what went wrong before.
        why: String,
        /// Attempts that failed so far.
        retry_count: u32,
        /// Of the next attempt. Missing where it depends on others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        until: Option<Timestamp>,
    },
    /// How it ended. Always the last.
    Done { runtime: Box<McpRuntimeInfo> },
}

/// What a transient test found. Its box is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct McpTestResult {
    pub ok: bool,
    pub runtime: McpRuntimeInfo,
    /// What the server wrote to stderr, and the installer before it.
    pub log: String,
}

/// What a server said and heard lately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct McpLogs {
    pub stderr: String,
    pub install: String,
    /// One line for each message, `>` to the server and `<` from it, without arguments or results.
    pub protocol: Vec<String>,
}

/// The body of a call by hand.
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
