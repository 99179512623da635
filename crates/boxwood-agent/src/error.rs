//! Why a tool did not do what it was asked.

use boxwood_api::{AgentState, ErrorCode, ErrorDetail, Unavailable};

use crate::boxes::BoxesError;

/// A rule was broken, or nothing could be done at all. What a tool tried in a box and did not manage is
/// a result instead, with `ok` false.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    pub code: ErrorCode,
    pub message: String,
    /// What to do about it, where there is something.
    pub hint: Option<String>,
    /// Set where no tool can be used now, whatever the arguments.
    pub state: Option<AgentState>,
}

impl ToolError {
    /// The caller broke a rule.
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
                "the runtime did not answer within {} s, so the call was given up",
                longest.as_secs()
            ),
            hint: Some(
                "try again; if it stays so, look at the runtime's log and run `boxwood doctor`"
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

/// In the runtime's own words. Whether it means that nothing can be used is judged elsewhere.
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
