//! What today's clients send beside specs: who is meant, and grants.
//!
//! Comes in: values as they were sent. Goes out: our types. Never here: whether it is allowed.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::grants::Grant;
use super::tenancy::{Placement, Workspace};
use crate::langbot::{Fault, pydantic};

/// Who a request is for, and which platform says so.
pub(super) struct Context {
    pub(super) instance: String,
    pub(super) placement: Placement,
}

impl Context {
    pub(super) fn read(value: &Value) -> Result<Self, Fault> {
        let given =
            pydantic::action_context(value).map_err(|text| Fault::new("ValidationError", text))?;
        let workspace = Workspace::new(&given.instance_uuid, &given.workspace_uuid);
        Ok(Self {
            placement: Placement::new(workspace, given.placement_generation),
            instance: given.instance_uuid,
        })
    }
}

/// A grant, and the platform it speaks of.
pub(super) fn grant(data: &Map<String, Value>) -> Result<(String, Grant), Fault> {
    let given = pydantic::admission_grant(data).map_err(Fault::validation)?;
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

pub(super) struct Revocation {
    pub(super) instance: String,
    pub(super) workspace: Workspace,
    pub(super) workspace_uuid: String,
    pub(super) revision: u64,
}

pub(super) fn revocation(data: &Map<String, Value>) -> Result<Revocation, Fault> {
    let given = pydantic::admission_revocation(data).map_err(Fault::validation)?;
    Ok(Revocation {
        workspace: Workspace::new(&given.instance_uuid, &given.workspace_uuid),
        instance: given.instance_uuid,
        workspace_uuid: given.workspace_uuid,
        revision: given.entitlement_revision,
    })
}

/// As Python's `isoformat` writes it: microseconds only where there are some.
pub(super) fn isoformat(at: Timestamp) -> String {
    let format = if at.subsec_microsecond() == 0 && at.subsec_millisecond() == 0 {
        "%Y-%m-%dT%H:%M:%S+00:00"
    } else {
        "%Y-%m-%dT%H:%M:%S.%6f+00:00"
    };
    at.strftime(format).to_string()
}

/// What `str(value or "")` makes of a session's id that need not be text.
pub(super) fn id_text(value: &Value) -> String {
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
    fn times_are_written_as_python_writes_them() {
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
    fn ids_need_not_be_text() {
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
