//! Managed processes: long-lived programs in a session.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, de};
use utoipa::ToSchema;

use crate::field;
use crate::fields::{Fields, Null};
use crate::{FieldError, ProcessId, Reason, SessionId};

/// A process to start.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    #[serde(default)]
    pub process_id: ProcessId,
    /// Looked up in the `PATH` of the box if it has no slash. No shell is involved.
    pub command: String,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default = "default_cwd")]
    pub cwd: String,
}

fn default_cwd() -> String {
    crate::DEFAULT_MOUNT_PATH.to_owned()
}

impl ProcessSpec {
    /// All field names. Interfaces that ignore unknown fields keep only these.
    pub const FIELDS: [&'static str; 5] = ["process_id", "command", "args", "env", "cwd"];

    /// Trims command and cwd and validates all fields. Parsing from JSON does this; specs built in
    /// code must call it.
    pub fn validate(mut self) -> Result<Self, FieldError> {
        self.command = self.command.trim().to_owned();
        self.cwd = self.cwd.trim().to_owned();
        if self.command.is_empty() {
            return Err(FieldError::new("command", "must not be empty"));
        }
        field::without_nul("command", &self.command)?;
        if self.command.len() > field::MAX_PATH_BYTES {
            return Err(FieldError::new(
                "command",
                &format!("must be at most {} bytes", field::MAX_PATH_BYTES),
            ));
        }
        field::check_arguments("args", &self.args)?;
        field::environment(&self.env)?;
        field::box_path("cwd", &self.cwd)?;
        Ok(self)
    }

    fn from_fields(mut fields: Fields) -> Result<Self, String> {
        let process_id = fields.parsed("process_id", Null::IsWrong, ProcessId::new)?;
        let rest = move || -> Result<Self, FieldError> {
            Self {
                process_id: process_id.unwrap_or_default(),
                command: fields
                    .text("command", Null::IsWrong)?
                    .ok_or_else(|| FieldError::new("command", "is required"))?,
                args: fields.texts("args")?,
                env: fields.text_map("env")?,
                cwd: fields
                    .text("cwd", Null::IsWrong)?
                    .unwrap_or_else(default_cwd),
            }
            .validate()
        };
        rest().map_err(|fault| fault.to_string())
    }
}

impl<'de> Deserialize<'de> for ProcessSpec {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let fields = Fields::read(input, &Self::FIELDS)?;
        Self::from_fields(fields).map_err(de::Error::custom)
    }
}

/// Shows only the names of environment variables, because values may be secrets.
impl fmt::Debug for ProcessSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSpec")
            .field("process_id", &self.process_id)
            .field("command", &self.command)
            .field("args", &self.args)
            .field("env_keys", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessStatus {
    Running,
    Exited,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessInfo {
    pub session_id: SessionId,
    pub process_id: ProcessId,
    pub status: ProcessStatus,
    pub command: String,
    pub args: Vec<String>,
    pub cwd: String,
    /// Names only, sorted: values may be secrets.
    pub env_keys: Vec<String>,
    pub attached: bool,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub exited_at: Option<Timestamp>,
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub stderr_preview: String,
}

/// The response for a stopped process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoppedProcess {
    pub stopped: ProcessId,
}

/// The response for a delivered signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignalledProcess {
    pub signalled: ProcessId,
}

/// Recent output of a process; invalid UTF-8 is replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessLogs {
    pub stdout: String,
    pub stderr: String,
}
