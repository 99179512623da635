//! Errors of tool calls.

use boxwood_api::{AgentState, ErrorCode, ErrorDetail, Unavailable};

use crate::boxes::BoxesError;

/// The call violates a rule, or no box is available. A failure in a box is a result with `ok` false instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    pub code: ErrorCode,
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Set if no tool is available now.
    pub state: Option<AgentState>,
}

impl ToolError {
    /// The call violates a rule.
    pub(crate) fn rule(message: impl Into<String>) -> Self {
        Self {
            code: ErrorCode::ValidationError,
            message: message.into(),
            hint: None,
            state: None,
        }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The runtime did not answer within the call's deadline.
    pub(crate) fn late(longest: std::time::Duration) -> Self {
        Self {
            code: ErrorCode::Timeout,
            message: format!(
                "the runtime did not answer within {} s, so the call was cancelled",
                longest.as_secs()
            ),
            hint: Some(
                "try again; if it happens again, check the log of the runtime and run `boxwood doctor`"
                    .to_owned(),
            ),
            state: None,
        }
    }
}

impl From<Unavailable> for ToolError {
    fn from(why: Unavailable) -> Self {
        Self {
            code: ErrorCode::BackendUnavailable,
            message: why.reason,
            hint: Some(why.fix),
            state: Some(why.state),
        }
    }
}

/// With the text of the runtime.
impl From<BoxesError> for ToolError {
    fn from(error: BoxesError) -> Self {
        Self {
            code: error.code,
            message: error.message,
            hint: error.hint,
            state: None,
        }
    }
}

impl From<ToolError> for ErrorDetail {
    fn from(error: ToolError) -> Self {
        Self {
            code: error.code,
            message: error.message,
            hint: error.hint,
        }
    }
}
