//! Limits of all workspaces together: `box.limits`.

use std::ops::RangeInclusive;

use serde::Serialize;
use serde_json::Value;

use crate::ActionError;
use crate::error::value_error;

/// Serialized as in `box_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Limits {
    pub(crate) max_sessions: u64,
    pub(crate) max_managed_processes: u64,
    pub(crate) max_completed_processes: u64,
    pub(crate) max_admission_records: u64,
    pub(crate) max_rpc_file_bytes: u64,
    #[serde(skip)]
    pub(crate) completed_process_retention_sec: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_sessions: 64,
            max_managed_processes: 64,
            max_completed_processes: 256,
            max_admission_records: 100_000,
            max_rpc_file_bytes: 20 * 1024 * 1024,
            completed_process_retention_sec: 300,
        }
    }
}

impl Limits {
    /// Replaces the given limits. With an invalid value, no limit changes.
    pub(crate) fn updated(self, part: Option<&Value>) -> Result<Self, ActionError> {
        let part = match part {
            None | Some(Value::Null | Value::Bool(false)) => return Ok(self),
            Some(Value::Object(part)) => part,
            Some(_) => return Err(value_error("box.limits must be an object")),
        };
        let mut limits = self;
        let replace = |limit: &mut u64, name: &str, allowed: RangeInclusive<u64>| {
            let Some(value) = part.get(name) else {
                return Ok(());
            };
            if !value.is_u64() && !value.is_i64() {
                let message = format!("box.limits.{name} must be an integer");
                return Err(value_error(message));
            }
            let number = value.as_u64().filter(|number| allowed.contains(number));
            *limit = number.ok_or_else(|| {
                let (min, max) = allowed.into_inner();
                value_error(format!("box.limits.{name} must be between {min} and {max}"))
            })?;
            Ok(())
        };
        replace(&mut limits.max_sessions, "max_sessions", 0..=5_000)?;
        let limit = &mut limits.max_managed_processes;
        replace(limit, "max_managed_processes", 0..=1_024)?;
        let limit = &mut limits.max_completed_processes;
        replace(limit, "max_completed_processes", 0..=10_000)?;
        let limit = &mut limits.max_admission_records;
        replace(limit, "max_admission_records", 1..=250_000)?;
        let limit = &mut limits.max_rpc_file_bytes;
        replace(limit, "max_rpc_file_bytes", 1..=100 * 1024 * 1024)?;
        let limit = &mut limits.completed_process_retention_sec;
        replace(limit, "completed_process_retention_sec", 0..=86_400)?;
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_given_limits_are_replaced() {
        let limits = Limits::default()
            .updated(Some(&json!({"max_sessions": 2, "unknown": []})))
            .expect("fine");
        assert_eq!(limits.max_sessions, 2);
        let limits = limits
            .updated(Some(&json!({"max_managed_processes": 0})))
            .expect("fine");
        assert_eq!((limits.max_sessions, limits.max_managed_processes), (2, 0));
        assert_eq!(limits.updated(Some(&Value::Null)), Ok(limits));
        assert_eq!(limits.updated(None), Ok(limits));
    }

    #[test]
    fn invalid_limits_are_named() {
        let check = |part: Value, expected: &str| {
            let error = Limits::default().updated(Some(&part)).expect_err("wrong");
            assert_eq!(error.to_string(), format!("ValueError: {expected}"));
        };
        check(json!([1]), "box.limits must be an object");
        check(
            json!({"max_sessions": "8"}),
            "box.limits.max_sessions must be an integer",
        );
        check(
            json!({"max_sessions": 8.0}),
            "box.limits.max_sessions must be an integer",
        );
        check(
            json!({"max_sessions": true}),
            "box.limits.max_sessions must be an integer",
        );
        check(
            json!({"max_sessions": -1}),
            "box.limits.max_sessions must be between 0 and 5000",
        );
        check(
            json!({"max_admission_records": 0}),
            "box.limits.max_admission_records must be between 1 and 250000",
        );
    }
}
