//! Takes single values out of an action's data, with the words Python has for what is missing.

use boxwood_api::{ProcessId, SessionId};
use serde_json::{Map, Value};

use super::Fault;

pub(super) fn required<'a>(data: &'a Map<String, Value>, key: &str) -> Result<&'a Value, Fault> {
    data.get(key).ok_or_else(|| Fault::missing(key))
}

pub(super) fn text<'a>(data: &'a Map<String, Value>, key: &str) -> Result<&'a str, Fault> {
    required(data, key)?
        .as_str()
        .ok_or_else(|| Fault::new("TypeError", format!("{key} must be text")))
}

/// The value, or what stands for it when it is absent or null.
pub(super) fn text_or<'a>(
    data: &'a Map<String, Value>,
    key: &str,
    otherwise: &'a str,
) -> Result<&'a str, Fault> {
    match data.get(key) {
        None | Some(Value::Null) => Ok(otherwise),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Fault::new("TypeError", format!("{key} must be text"))),
    }
}

/// A session that may exist. An id that no session can have is simply not found.
pub(super) fn session_id(data: &Map<String, Value>) -> Result<SessionId, Fault> {
    let given = text(data, "session_id")?;
    known_session(given)
}

pub(super) fn known_session(given: &str) -> Result<SessionId, Fault> {
    // Ids are trimmed when a session is made, so only a trimmed one can be meant.
    let exact = SessionId::new(given).ok().filter(|id| id.as_str() == given);
    exact.ok_or_else(|| {
        Fault::new(
            "BoxSessionNotFoundError",
            format!("session {given} not found"),
        )
    })
}

/// `default` when it is left out.
pub(super) fn process_id(
    data: &Map<String, Value>,
    session: &SessionId,
) -> Result<ProcessId, Fault> {
    let given = text_or(data, "process_id", "default")?;
    ProcessId::new(given)
        .ok()
        .filter(|id| id.as_str() == given)
        .ok_or_else(|| {
            Fault::new(
                "BoxManagedProcessNotFoundError",
                format!("session {session} has no managed process with process_id={given}"),
            )
        })
}
