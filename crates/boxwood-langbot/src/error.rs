//! The error of an action, with the Python class name that LangBot's clients match.
//!
//! Clients find the class by its name at the start of the text (`BoxValidationError: …`), so the class is
//! part of the protocol. The message after it is for people.

use std::fmt;

use boxwood_api::ErrorCode;
use boxwood_policy::Denial;
use boxwood_session::SessionError;
use boxwood_skills::SkillError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionError {
    class: &'static str,
    message: String,
}

impl ActionError {
    pub(crate) fn new(class: &'static str, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
        }
    }

    pub(crate) fn validation(message: impl Into<String>) -> Self {
        Self::new("BoxValidationError", message)
    }

    /// The data lacks a required key.
    pub(crate) fn missing(key: &str) -> Self {
        Self::new("KeyError", format!("'{key}'"))
    }

    pub(crate) fn unknown_action(action: &impl fmt::Display) -> Self {
        Self::new("ValueError", format!("Action {action} not found"))
    }

    pub fn class(&self) -> &'static str {
        self.class
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn into_message(self) -> String {
        self.message
    }
}

impl fmt::Display for ActionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

/// The class that clients expect for each error code.
pub(crate) fn class_of(code: ErrorCode) -> &'static str {
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

impl From<Denial> for ActionError {
    fn from(denial: Denial) -> Self {
        Self::new(
            class_of(denial.code()),
            with_hint(denial.to_string(), denial.hint()),
        )
    }
}

impl From<SessionError> for ActionError {
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
            // LangBot names the process even if it is `default`.
            SessionError::ProcessNotFound { session, process } => {
                format!("session {session} has no managed process with process_id={process}")
            }
            SessionError::ProcessNotRunning { session, process } => {
                format!("managed process {process} in session {session} is not running")
            }
            // LangBot Box begins its message in the same way.
            SessionError::Unavailable { .. } => format!(
                "LangBot Box backend unavailable. {}",
                with_hint(error.to_string(), error.hint())
            ),
            other => with_hint(other.to_string(), other.hint()),
        };
        Self::new(class_of(error.code()), text)
    }
}

impl From<SkillError> for ActionError {
    fn from(error: SkillError) -> Self {
        Self::new(class_of(error.code()), error.to_string())
    }
}

/// Clients show one line, so the hint is part of it.
fn with_hint(text: String, hint: Option<String>) -> String {
    match hint {
        Some(hint) => format!("{text} ({hint})"),
        None => text,
    }
}

/// Python's spelling of a value of the existing session.
fn python_value<'a>(field: &str, value: &'a str) -> &'a str {
    match (field, value) {
        ("host_path", "null") => "None",
        ("persistent" | "read_only_rootfs", "true") => "True",
        ("persistent" | "read_only_rootfs", "false") => "False",
        _ => value,
    }
}
