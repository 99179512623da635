//! Reads single fields of an action's data, with Python's errors for missing ones.

use boxwood_api::{ProcessId, SessionId};
use boxwood_session::Sessions;
use serde_json::{Map, Value};

use crate::ActionError;

pub(crate) fn required<'a>(
    data: &'a Map<String, Value>,
    key: &str,
) -> Result<&'a Value, ActionError> {
    data.get(key).ok_or_else(|| ActionError::missing(key))
}

pub(crate) fn text<'a>(data: &'a Map<String, Value>, key: &str) -> Result<&'a str, ActionError> {
    let value = required(data, key)?;
    value.as_str().ok_or_else(|| not_text(key))
}

/// The value, or a default if it is absent or null.
pub(crate) fn text_or<'a>(
    data: &'a Map<String, Value>,
    key: &str,
    default: &'a str,
) -> Result<&'a str, ActionError> {
    match data.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(not_text(key)),
    }
}

fn not_text(key: &str) -> ActionError {
    ActionError::new("TypeError", format!("{key} must be text"))
}

/// The id of an existing session. An id that no session can have is reported as not found.
pub(crate) fn session_id(data: &Map<String, Value>) -> Result<SessionId, ActionError> {
    known_session(text(data, "session_id")?)
}

pub(crate) fn known_session(requested_id: &str) -> Result<SessionId, ActionError> {
    // Ids are trimmed when a session is created, so an untrimmed id matches no session.
    let exact = SessionId::new(requested_id)
        .ok()
        .filter(|id| id.as_str() == requested_id);
    exact.ok_or_else(|| {
        ActionError::new(
            "BoxSessionNotFoundError",
            format!("session {requested_id} not found"),
        )
    })
}

/// The id of a process in an existing session. `default` if the field is missing.
pub(crate) fn process_id(
    data: &Map<String, Value>,
    sessions: &Sessions,
    session: &SessionId,
) -> Result<ProcessId, ActionError> {
    // A missing session is reported before a missing process.
    sessions.detail(session)?;
    let requested_id = text_or(data, "process_id", "default")?;
    ProcessId::new(requested_id)
        .ok()
        .filter(|id| id.as_str() == requested_id)
        .ok_or_else(|| {
            ActionError::new(
                "BoxManagedProcessNotFoundError",
                format!("session {session} has no managed process with process_id={requested_id}"),
            )
        })
}

/// Returns true if all characters are lower-case hexadecimal digits.
pub(crate) fn is_lower_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// White space for Python's `strip`: Unicode's, and four separators.
pub(crate) fn is_python_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}
