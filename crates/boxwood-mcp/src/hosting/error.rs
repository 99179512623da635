//! Errors of hosting, as returned to callers.

use std::io;

use boxwood_agent::BoxesError;
use boxwood_api::{ErrorCode, ErrorDetail, McpPhase, McpServerName};

/// JSON-RPC error code for invalid arguments.
const INVALID_PARAMS: i64 = -32602;

/// The text is shown to the caller, so it contains no host path of the daemon and no value of a variable.
#[derive(Debug, thiserror::Error)]
pub enum HostingError {
    #[error("MCP server `{name}` does not exist")]
    NotFound { name: String },
    #[error("MCP server `{server}` has no tool `{tool}`")]
    ToolNotFound { server: McpServerName, tool: String },
    #[error("MCP server `{name}` already exists")]
    Exists { name: McpServerName },
    #[error("`{field}`: {message}")]
    Invalid { field: String, message: String },
    #[error("MCP server `{name}` is disabled")]
    Disabled { name: McpServerName },
    /// Stopped on request, so a call does not start it.
    #[error("MCP server `{name}` was stopped")]
    Stopped { name: McpServerName },
    #[error("limit reached: {message}")]
    Full { message: String },
    /// The start or a call failed.
    #[error("{message}")]
    Failed {
        phase: McpPhase,
        message: String,
        hint: Option<String>,
    },
    /// The server answered a call with a JSON-RPC error.
    #[error("the server refused the call: {message} ({code})")]
    CallRefused {
        server: McpServerName,
        code: i64,
        message: String,
    },
    #[error("MCP server `{name}` did not answer within {seconds} s")]
    TimedOut {
        name: McpServerName,
        seconds: u64,
        phase: Option<McpPhase>,
    },
    /// Policy or the session registry refused the request.
    #[error("{message}")]
    Refused {
        code: ErrorCode,
        message: String,
        hint: Option<String>,
    },
    #[error("{doing} failed")]
    Storage {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("hosting of MCP servers is shutting down")]
    Closing,
}

impl HostingError {
    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.into(),
            message: message.into(),
        }
    }

    pub fn code(&self) -> ErrorCode {
        match self {
            Self::CallRefused { code, .. } if *code == INVALID_PARAMS => ErrorCode::ValidationError,
            Self::NotFound { .. } | Self::ToolNotFound { .. } => ErrorCode::NotFound,
            Self::Exists { .. } => ErrorCode::SessionConflict,
            Self::Invalid { .. } | Self::Disabled { .. } | Self::Stopped { .. } => {
                ErrorCode::ValidationError
            }
            Self::Full { .. } => ErrorCode::Capacity,
            Self::Failed { .. } | Self::CallRefused { .. } | Self::Closing => {
                ErrorCode::BackendUnavailable
            }
            Self::TimedOut { .. } => ErrorCode::Timeout,
            Self::Refused { code, .. } => *code,
            Self::Storage { .. } => ErrorCode::InternalError,
        }
    }

    /// What the caller can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { .. } => Some("`boxwood mcp ls` lists the servers".to_owned()),
            Self::ToolNotFound { server, .. } => Some(format!(
                "`boxwood mcp tools {server}` lists its tools; filtered tools are not available"
            )),
            Self::CallRefused { server, .. } => Some(format!(
                "`boxwood mcp tools {server}` lists its tools and their arguments"
            )),
            Self::Exists { .. } => Some(
                "choose another name, or replace the server (`--replace`, `replace: true`)"
                    .to_owned(),
            ),
            Self::Disabled { name } => Some(format!("`boxwood mcp enable {name}` starts it")),
            Self::Stopped { name } => Some(format!("`boxwood mcp start {name}` starts it")),
            Self::Full { .. } => Some("remove servers that are not needed, disconnect clients, or raise the limit; then try again".to_owned()),
            Self::TimedOut { name, .. } => {
                Some(format!("`boxwood mcp logs {name}` shows its output"))
            }
            Self::Storage { .. } => {
                Some("check the daemon's log and the disk of its state directory".to_owned())
            }
            Self::Failed { hint, .. } | Self::Refused { hint, .. } => hint.clone(),
            Self::Invalid { .. } | Self::Closing => None,
        }
    }

    /// The phase in which a start or call failed.
    pub fn phase(&self) -> Option<McpPhase> {
        match self {
            Self::Failed { phase, .. } => Some(*phase),
            Self::TimedOut { phase, .. } => *phase,
            Self::CallRefused { .. } => Some(McpPhase::ToolCall),
            _ => None,
        }
    }
}

impl From<BoxesError> for HostingError {
    fn from(error: BoxesError) -> Self {
        Self::Refused {
            code: error.code,
            message: error.message,
            hint: error.hint,
        }
    }
}

impl From<&HostingError> for ErrorDetail {
    fn from(error: &HostingError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            hint: error.hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_error_keeps_its_cause_for_the_log() {
        let error = HostingError::Storage {
            doing: "storing an MCP server",
            source: io::Error::other("/var/lib/boxwood/mcp is full"),
        };
        let detail = ErrorDetail::from(&error);
        assert_eq!(detail.message, "storing an MCP server failed");
        assert_eq!(detail.code, ErrorCode::InternalError);
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("/var/lib/boxwood/mcp is full"));
    }

    #[test]
    fn a_policy_denial_keeps_its_code_and_hint() {
        let error = HostingError::from(BoxesError {
            code: ErrorCode::Forbidden,
            message: "`/etc` cannot be mounted".to_owned(),
            hint: Some("choose another directory".to_owned()),
            reached: true,
        });
        assert_eq!(error.code(), ErrorCode::Forbidden);
        assert_eq!(error.hint().as_deref(), Some("choose another directory"));
        assert_eq!(error.phase(), None);
    }
}
