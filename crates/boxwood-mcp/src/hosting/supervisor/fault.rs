//! Why a server is not running: phase, message, hint and whether a retry may help.

use boxwood_agent::BoxesError;
use boxwood_api::{ErrorCode, McpPhase};

use super::retry::Retryable;
use crate::hosting::HostingError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) phase: McpPhase,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) retryable: Retryable,
    pub(crate) main_exited: bool,
    /// Error message of the server, not yet redacted.
    pub(crate) server_message: Option<String>,
    /// Last stderr output, not yet redacted.
    pub(crate) stderr: Option<String>,
}

impl Fault {
    pub(crate) fn new(phase: McpPhase, message: impl Into<String>) -> Self {
        Self {
            phase,
            message: message.into(),
            hint: None,
            retryable: Retryable::Yes,
            main_exited: false,
            server_message: None,
            stderr: None,
        }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }

    pub(crate) fn not_retryable(mut self) -> Self {
        self.retryable = Retryable::No;
        self
    }

    pub(crate) fn with_server_message(mut self, message: String) -> Self {
        self.server_message = Some(message);
        self
    }

    pub(crate) fn main_process_exited(mut self) -> Self {
        self.main_exited = true;
        self
    }

    pub(crate) fn from_runtime(phase: McpPhase, error: BoxesError) -> Self {
        if error.code == ErrorCode::BackendUnavailable {
            return Self::boxes_unavailable(error.message, error.hint);
        }
        let retryable = match error.code {
            ErrorCode::ValidationError
            | ErrorCode::Forbidden
            | ErrorCode::Unauthorized
            | ErrorCode::ImageNotFound
            | ErrorCode::SessionConflict
            | ErrorCode::PayloadTooLarge => Retryable::No,
            _ => Retryable::Yes,
        };
        Self {
            retryable,
            ..Self::new(phase, error.message).with_hint(error.hint)
        }
    }

    /// The message is fixed because clients compare it. The hint explains the cause.
    pub(crate) fn boxes_unavailable(cause: String, hint: Option<String>) -> Self {
        let hint = match hint {
            Some(hint) => format!("{cause}: {hint}"),
            None => cause,
        };
        Self::new(McpPhase::BoxUnavailable, "box_unavailable")
            .with_hint(hint)
            .not_retryable()
    }

    pub(crate) fn from_storage(phase: McpPhase, doing: &str, error: &std::io::Error) -> Self {
        Self::new(phase, format!("{doing} failed: {error}")).with_hint(
            "check the disk and the permissions of the daemon's state directory".to_owned(),
        )
    }
}

impl From<Fault> for HostingError {
    fn from(fault: Fault) -> Self {
        Self::Failed {
            phase: fault.phase,
            message: fault.message,
            hint: fault.hint,
        }
    }
}
