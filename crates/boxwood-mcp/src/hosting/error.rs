//! Why a hosted server cannot be had.

use std::io;

use boxwood_agent::BoxesError;
use boxwood_api::{ErrorCode, ErrorDetail, McpPhase, McpServerName};

/// The caller's arguments are wrong, in the words of JSON-RPC.
const INVALID_PARAMS: i64 = -32602;

/// The text is for whoever asked: it names no path of the daemon's and no value of a variable.
#[derive(Debug, thiserror::Error)]
pub enum HostingError {
    #[error("no MCP server is called `{name}`")]
    NotFound { name: String },
    #[error("MCP server `{server}` has no tool `{tool}`")]
    ToolNotFound { server: McpServerName, tool: String },
    #[error("an MCP server called `{name}` is there already")]
    Exists { name: McpServerName },
    #[error("`{field}`: {message}")]
    Invalid { field: String, message: String },
    /// It is not to be started.
    #[error("MCP server `{name}` is disabled")]
    Disabled { name: McpServerName },
    /// Somebody stopped it by hand, so a call does not start it.
    #[error("MCP server `{name}` was stopped")]
    Stopped { name: McpServerName },
    /// Something else is done to it right now.
    #[error("MCP server `{name}` is busy: {doing}")]
    Busy {
        name: McpServerName,
        doing: &'static str,
    },
    #[error("there is no room for another: {message}")]
    Full { message: String },
    /// There are no boxes to run it in.
    #[error("{message}")]
    Unavailable {
        message: String,
        hint: Option<String>,
    },
    /// It did not start, or a call did not work out.
    #[error("{message}")]
    Failed {
        phase: McpPhase,
        message: String,
        hint: Option<String>,
    },
    /// The server answered a call with an error of the protocol.
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
    /// The daemon's own door said no.
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
    #[error("hosted MCP servers are being shut down")]
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
            Self::Exists { .. } | Self::Busy { .. } => ErrorCode::SessionConflict,
            Self::Invalid { .. } | Self::Disabled { .. } | Self::Stopped { .. } => {
                ErrorCode::ValidationError
            }
            Self::Full { .. } => ErrorCode::Capacity,
            Self::Unavailable { .. }
            | Self::Failed { .. }
            | Self::CallRefused { .. }
            | Self::Closing => ErrorCode::BackendUnavailable,
            Self::TimedOut { .. } => ErrorCode::Timeout,
            Self::Refused { code, .. } => *code,
            Self::Storage { .. } => ErrorCode::InternalError,
        }
    }

    /// What to do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { .. } => Some("`boxwood mcp ls` shows the servers".to_owned()),
            Self::ToolNotFound { server, .. } => Some(format!(
                "`boxwood mcp tools {server}` shows its tools; one that its filter keeps back counts as missing"
            )),
            Self::CallRefused { server, .. } => Some(format!(
                "`boxwood mcp tools {server}` shows its tools and what each takes"
            )),
            Self::Exists { .. } => Some("choose another name, or ask to replace it".to_owned()),
            Self::Disabled { name } => Some(format!("`boxwood mcp enable {name}` starts it")),
            Self::Stopped { name } => Some(format!("`boxwood mcp start {name}` starts it")),
            Self::Busy { .. } => Some("try again in a moment".to_owned()),
            Self::Full { .. } => Some("end what is not needed any more, then try again".to_owned()),
            Self::TimedOut { name, .. } => {
                Some(format!("`boxwood mcp logs {name}` shows what it was doing"))
            }
            Self::Storage { .. } => {
                Some("look at the daemon's log, and at the disk of its state directory".to_owned())
            }
            Self::Unavailable { hint, .. }
            | Self::Failed { hint, .. }
            | Self::Refused { hint, .. } => hint.clone(),
            Self::Invalid { .. } | Self::Closing => None,
        }
    }

    /// The phase it failed in, where it was on its way.
    pub fn phase(&self) -> Option<McpPhase> {
        match self {
            Self::Failed { phase, .. } => Some(*phase),
            Self::TimedOut { phase, .. } => *phase,
            Self::CallRefused { .. } => Some(McpPhase::ToolCall),
            Self::Unavailable { .. } => Some(McpPhase::BoxUnavailable),
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
    fn what_the_door_refused_keeps_its_code_and_hint() {
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
