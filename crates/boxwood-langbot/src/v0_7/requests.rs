//! Parses contexts, grants and revocations of SDK 0.7.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::admission::grants::Grant;
use super::placement::{Placement, Workspace};
use crate::models::{ActionContext, AdmissionRevocation};
use crate::{ActionError, models};

/// The context of a request.
pub(crate) fn context(value: &Value) -> Result<ActionContext, ActionError> {
    models::action_context(value).map_err(|text| ActionError::new("ValidationError", text))
}

/// The LangBot instance and its grant.
pub(crate) fn grant(data: &Map<String, Value>) -> Result<(String, Grant), ActionError> {
    let given = models::admission_grant(data).map_err(ActionError::validation)?;
    let workspace = Workspace::new(&given.instance_uuid, &given.workspace_uuid);
    let grant = Grant {
        placement: Placement::new(workspace, given.execution_generation),
        workspace_uuid: given.workspace_uuid,
        revision: given.entitlement_revision,
        expires_at: given.expires_at,
        max_sessions: given.max_sessions,
        max_managed_processes: given.max_managed_processes,
    };
    Ok((given.instance_uuid, grant))
}

pub(crate) fn revocation(data: &Map<String, Value>) -> Result<AdmissionRevocation, ActionError> {
    models::admission_revocation(data).map_err(ActionError::validation)
}

/// Like `isoformat` in Python: microseconds only if they are not zero.
pub(crate) fn isoformat(at: Timestamp) -> String {
    let format = if at.subsec_microsecond() == 0 && at.subsec_millisecond() == 0 {
        "%Y-%m-%dT%H:%M:%S+00:00"
    } else {
        "%Y-%m-%dT%H:%M:%S.%6f+00:00"
    };
    at.strftime(format).to_string()
}

/// Like `str(value or "")` in Python.
pub(crate) fn id_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.as_f64() != Some(0.0) => number.to_string(),
        Value::Bool(true) => "True".to_owned(),
        Value::Array(_) | Value::Object(_) if !is_empty(value) => value.to_string(),
        _ => String::new(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_formatted_like_in_python() {
        let check = |at: &str, expected: &str| {
            assert_eq!(isoformat(at.parse().expect("a time")), expected);
        };
        check("2026-06-09T11:30:17Z", "2026-06-09T11:30:17+00:00");
        check("2026-06-09T11:30:17.5Z", "2026-06-09T11:30:17.500000+00:00");
        check(
            "2026-06-09T11:30:17.000001Z",
            "2026-06-09T11:30:17.000001+00:00",
        );
        check("2026-06-09T11:30:17.0000001Z", "2026-06-09T11:30:17+00:00");
    }

    #[test]
    fn ids_are_converted_to_strings() {
        for (value, expected) in [
            (json!("a"), "a"),
            (json!(5), "5"),
            (json!(true), "True"),
            (json!(0), ""),
            (json!(null), ""),
            (json!(false), ""),
            (json!([]), ""),
        ] {
            assert_eq!(id_text(&value), expected, "{value}");
        }
    }
}
