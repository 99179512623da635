//! Managed processes: long-lived programs in a session, and the text frames of a resumable relay.
//!
//! Binary frames of a relay carry stdin and stdout of the process.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, de};
use utoipa::ToSchema;

use crate::parse::fields::{Fields, Null};
use crate::parse::rules;
use crate::{ErrorDetail, FieldError, ProcessId, Reason, SessionId};

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
    /// Trims command and cwd and validates all fields. Parsing from JSON does this; specs built in
    /// code must call it.
    pub fn validate(mut self) -> Result<Self, FieldError> {
        self.command = self.command.trim().to_owned();
        self.cwd = self.cwd.trim().to_owned();
        if self.command.is_empty() {
            return Err(FieldError::new("command", "must not be empty"));
        }
        rules::without_nul("command", &self.command)?;
        rules::at_most_bytes("command", &self.command, rules::MAX_PATH_BYTES)?;
        rules::check_arguments("args", &self.args)?;
        rules::environment(&self.env)?;
        rules::box_path("cwd", &self.cwd)?;
        Ok(self)
    }

    fn from_fields(mut fields: Fields) -> Result<Self, FieldError> {
        let process_id = fields.parsed("process_id", Null::IsWrong, ProcessId::new)?;
        let command = fields.text("command", Null::IsWrong)?;
        let spec = Self {
            process_id: process_id.unwrap_or_default(),
            command: command.ok_or_else(|| FieldError::new("command", "is required"))?,
            args: fields.texts("args")?,
            env: fields.text_map("env")?,
            cwd: fields
                .text("cwd", Null::IsWrong)?
                .unwrap_or_else(default_cwd),
        };
        fields.finish()?;
        spec.validate()
    }
}

impl<'de> Deserialize<'de> for ProcessSpec {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let fields = Fields::read(input)?;
        Self::from_fields(fields).map_err(de::Error::custom)
    }
}

/// Without values of the environment, because they may be secrets.
impl fmt::Debug for ProcessSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSpec")
            .field("process_id", &self.process_id)
            .field("command", &self.command)
            .field("args", &self.args)
            .field("env_keys", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
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
    pub started_at: Timestamp,
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

/// Sent by the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum RelayNews {
    /// The first frame: the offset at which the output starts, and the total bytes of input that
    /// the process has accepted. A client that reconnects continues sending from there, unless
    /// `started_at` shows that it is another process.
    Joined {
        stdout: u64,
        stdin: u64,
        started_at: Timestamp,
    },
    /// Total bytes of input that are accepted. They survive a daemon restart and need not be
    /// resent.
    Accepted { stdin: u64 },
    /// The process accepts no more input; further input is discarded. `stdin_closed` is always true.
    StdinClosed { stdin_closed: bool },
    /// The last frame: all output has been sent and the process has exited.
    Exited { exited: ProcessExit },
    /// A frame was invalid, or the process can no longer be attached to.
    Error { error: ErrorDetail },
}

/// Sent by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum RelayControl {
    /// Closes stdin of the process.
    CloseStdin,
    /// Output up to this offset has arrived and will not be requested again.
    Ack { stdout: u64 },
}

/// How a managed process exited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessExit {
    /// 128+n if killed by signal n.
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub exited_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(news: &RelayNews, json: &str) {
        assert_eq!(serde_json::to_string(news).expect("JSON"), json);
        let back: RelayNews = serde_json::from_str(json).expect("the same frame");
        assert_eq!(&back, news);
    }

    #[test]
    fn relay_frames_are_distinguished_by_their_keys() {
        check(
            &RelayNews::Joined {
                stdout: 7,
                stdin: 3,
                started_at: "2026-06-09T11:30:17Z".parse().expect("a time"),
            },
            r#"{"stdout":7,"stdin":3,"started_at":"2026-06-09T11:30:17Z"}"#,
        );
        check(&RelayNews::Accepted { stdin: 9 }, r#"{"stdin":9}"#);
        check(
            &RelayNews::Exited {
                exited: ProcessExit {
                    exit_code: Some(137),
                    reason: Some(Reason::Signal { signal: 9 }),
                    exited_at: "2026-06-09T11:30:18Z".parse().expect("a time"),
                },
            },
            r#"{"exited":{"exit_code":137,"reason":{"kind":"signal","signal":9},"exited_at":"2026-06-09T11:30:18Z"}}"#,
        );
        let control: RelayControl =
            serde_json::from_str(r#"{"type":"close_stdin"}"#).expect("a control frame");
        assert_eq!(control, RelayControl::CloseStdin);
        for wrong in [r#"{"type":"start"}"#, "{}", "[]"] {
            assert!(serde_json::from_str::<RelayControl>(wrong).is_err());
        }
    }
}
