//! The error of an action, with the Python class name that LangBot's clients match.
//!
//! Clients find the class by its name at the start of the text (`BoxValidationError: …`), so the class is
//! part of the protocol. The message after it is for people.

use std::fmt;

use boxwood_api::{ErrorCode, with_causes};
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

    /// The data lacks a required key, with Python's text for it.
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
}

pub(crate) fn value_error(message: impl Into<String>) -> ActionError {
    ActionError::new("ValueError", message)
}

pub(crate) fn permission(message: impl Into<String>) -> ActionError {
    ActionError::new("PermissionError", message)
}

/// An admission grant is missing or does not cover the request.
pub(crate) fn denied(message: impl Into<String>) -> ActionError {
    ActionError::new("BoxAdmissionError", message)
}

/// The host or the configuration does not meet the requirements of managed sandboxes.
pub(crate) fn not_ready(message: impl Into<String>) -> ActionError {
    ActionError::new("BoxReadinessError", message)
}

pub(crate) fn capacity_exceeded(message: impl Into<String>) -> ActionError {
    ActionError::new("BoxCapacityExceededError", message)
}

pub(crate) fn internal(message: impl Into<String>) -> ActionError {
    ActionError::new("BoxError", message)
}

/// Runs work that blocks on a thread of its own. A panic becomes an error with the text of `failure`.
pub(crate) async fn blocking<T: Send + 'static>(
    failure: &'static str,
    work: impl FnOnce() -> Result<T, ActionError> + Send + 'static,
) -> Result<T, ActionError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        tracing::error!(%error, "{failure}");
        Err(internal(failure))
    })
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
        if error.code() == ErrorCode::InternalError {
            tracing::error!(error = %with_causes(&error), "internal error in a LangBot action");
        }
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
        Self::new(class_of(error.code()), with_causes(&error))
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
