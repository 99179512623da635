//! A failed action, in the words the clients look for.
//!
//! The clients find the class by its name in the text (`BoxValidationError: …`), so the class is part
//! of the contract and everything behind the colon is for people.

use std::fmt;

use boxwood_api::ErrorCode;
use boxwood_policy::Denial;
use boxwood_session::SessionError;
use boxwood_skills::SkillError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    class: &'static str,
    message: String,
}

impl Fault {
    pub(crate) fn new(class: &'static str, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
        }
    }

    pub(crate) fn validation(message: impl Into<String>) -> Self {
        Self::new("BoxValidationError", message)
    }

    /// A key that the data must have.
    pub(crate) fn missing(key: &str) -> Self {
        Self::new("KeyError", format!("'{key}'"))
    }

    pub(crate) fn class(&self) -> &'static str {
        self.class
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn into_message(self) -> String {
        self.message
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

/// The class whose name the clients know, for each of our codes.
pub(super) fn class_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::ValidationError
        | ErrorCode::PayloadTooLarge
        | ErrorCode::ImageNotFound
        | ErrorCode::NotFound
        | ErrorCode::Forbidden => "BoxValidationError",
        ErrorCode::SessionNotFound => "BoxSessionNotFoundError",
        ErrorCode::SessionConflict => "BoxSessionConflictError",
        ErrorCode::ManagedProcessNotFound => "BoxManagedProcessNotFoundError",
        ErrorCode::ManagedProcessConflict => "BoxManagedProcessConflictError",
        ErrorCode::BackendUnavailable => "BoxBackendUnavailableError",
        ErrorCode::Capacity => "BoxCapacityExceededError",
        ErrorCode::SessionGone
        | ErrorCode::ReplayGone
        | ErrorCode::Unauthorized
        | ErrorCode::InternalError
        | ErrorCode::Timeout => "BoxError",
    }
}

impl From<Denial> for Fault {
    fn from(denial: Denial) -> Self {
        Self::new(
            class_of(denial.code()),
            with_hint(denial.to_string(), denial.hint()),
        )
    }
}

impl From<SessionError> for Fault {
    fn from(error: SessionError) -> Self {
        let text = match &error {
            SessionError::Conflict {
                session,
                field,
                value,
            } => format!(
                "Box session {session} already exists with {field}={}",
                python_value(field, value)
            ),
            // These name the process even when it is the one called `default`.
            SessionError::ProcessNotFound { session, process } => {
                format!("session {session} has no managed process with process_id={process}")
            }
            SessionError::ProcessNotRunning { session, process } => {
                format!("managed process {process} in session {session} is not running")
            }
            // Its beginning is what LangBot's own runtime says.
            SessionError::Unavailable { .. } => format!(
                "LangBot Box backend unavailable. {}",
                with_hint(error.to_string(), error.hint())
            ),
            other => with_hint(other.to_string(), other.hint()),
        };
        Self::new(class_of(error.code()), text)
    }
}

impl From<SkillError> for Fault {
    fn from(error: SkillError) -> Self {
        Self::new(class_of(error.code()), error.to_string())
    }
}

/// The clients show one line, so the way out stands in it too.
fn with_hint(text: String, hint: Option<String>) -> String {
    match hint {
        Some(hint) => format!("{text} ({hint})"),
        None => text,
    }
}

/// Python's spelling of what the living session has.
fn python_value<'a>(field: &str, value: &'a str) -> &'a str {
    match (field, value) {
        ("host_path", "null") => "None",
        ("persistent" | "read_only_rootfs", "true") => "True",
        ("persistent" | "read_only_rootfs", "false") => "False",
        _ => value,
    }
}
