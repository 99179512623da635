//! Client errors.

use std::error::Error;
use std::{fmt, io};

use boxwood_api::{ErrorCode, ErrorDetail, McpErrorBody, McpPhase};

pub type Result<T, E = ClientError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("`{url}` is not an address of a daemon: {why}")]
    BadUrl { url: String, why: &'static str },
    #[error("the token contains characters that an HTTP header cannot have")]
    BadToken,
    /// No connection.
    #[error("no daemon answers at {endpoint}")]
    Unreachable {
        endpoint: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The daemon returned an error.
    #[error("{message}")]
    Refused {
        status: u16,
        code: ErrorCode,
        message: String,
        hint: Option<String>,
        /// The phase in which a hosted MCP server failed.
        phase: Option<McpPhase>,
    },
    /// The response is not one of a Boxwood daemon.
    #[error("unexpected response to `{operation}`: {what}")]
    Unexpected { operation: String, what: String },
    /// The connection was closed during the request.
    #[error("the connection to the daemon was lost during `{operation}`")]
    Lost {
        operation: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

impl ClientError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::BadUrl { .. } | Self::BadToken => ErrorCode::ValidationError,
            Self::Unreachable { .. } => ErrorCode::BackendUnavailable,
            Self::Refused { code, .. } => *code,
            Self::Unexpected { .. } | Self::Lost { .. } => ErrorCode::InternalError,
        }
    }

    /// What the user can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::BadUrl { .. } => {
                Some("addresses look like `http://127.0.0.1:5410` or `unix:///run/boxwood/boxwood.sock`".into())
            }
            Self::BadToken => Some("a token is one line of printable ASCII".into()),
            Self::Unreachable { source, .. } => Some(unreachable_hint(source.as_ref())),
            Self::Refused { hint: Some(hint), .. } => Some(hint.clone()),
            Self::Refused { code: ErrorCode::Unauthorized, .. } => Some(
                "set `BOXWOOD_TOKEN`; the daemon's own user makes one with `boxwood token create NAME`".into(),
            ),
            Self::Unexpected { .. } => {
                Some("check that a Boxwood daemon of this version listens there".into())
            }
            Self::Refused { .. } | Self::Lost { .. } => None,
        }
    }

    pub(crate) fn lost(operation: &str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Lost {
            operation: operation.to_owned(),
            source: source.into(),
        }
    }

    pub(crate) fn unexpected(operation: &str, reason: impl fmt::Display) -> Self {
        Self::Unexpected {
            operation: operation.to_owned(),
            what: reason.to_string(),
        }
    }

    pub(crate) fn refused(status: u16, error: ErrorDetail, phase: Option<McpPhase>) -> Self {
        Self::Refused {
            status,
            code: error.code,
            message: error.message,
            hint: error.hint,
            phase,
        }
    }

    /// Parses the error body of a failed request. Other bodies, such as the page of a proxy, are
    /// not quoted.
    pub(crate) fn from_response(operation: &str, status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<McpErrorBody>(body) {
            Ok(body) => Self::refused(status, body.error.error, body.error.phase),
            Err(_) => Self::unexpected(
                operation,
                format!("HTTP status {status} without an error body"),
            ),
        }
    }
}

fn unreachable_hint(source: &(dyn Error + Send + Sync + 'static)) -> String {
    match source.downcast_ref().map(io::Error::kind) {
        Some(io::ErrorKind::PermissionDenied) => {
            "the socket belongs to another user; use that user, or `--url http://HOST:PORT` with `BOXWOOD_TOKEN`"
        }
        _ => "start one with `boxwood serve`, or name another with `--url` or `BOXWOOD_URL`",
    }
    .to_owned()
}
