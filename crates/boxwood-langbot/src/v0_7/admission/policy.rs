//! The `admission` part of the `box:` section: the policy for managed sandboxes.
//!
//! An invalid part does not mean "no policy": no sandbox is admitted until it is corrected.

use serde_json::{Map, Value};

/// Upper limits of every grant, and the limits of the one box that a grant allows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdmissionPolicy {
    pub(crate) required: bool,
    pub(crate) max_sessions: u64,
    pub(crate) max_managed_processes: u64,
    pub(crate) max_grant_ttl_sec: u64,
    pub(crate) max_timeout_sec: u64,
    pub(crate) cpus: f64,
    pub(crate) memory_mb: u64,
    pub(crate) pids_limit: u64,
    pub(crate) read_only_rootfs: bool,
    pub(crate) workspace_quota_mb: u64,
    pub(crate) readiness_cache_sec: u64,
    /// Why the part is invalid. No sandbox is admitted then.
    pub(crate) error: Option<String>,
}

/// The only session of a workspace under a policy.
pub(crate) const MANAGED_SESSION: &str = "global";

impl Default for AdmissionPolicy {
    fn default() -> Self {
        Self {
            required: false,
            max_sessions: 1,
            max_managed_processes: 0,
            max_grant_ttl_sec: 300,
            max_timeout_sec: 120,
            cpus: 1.0,
            memory_mb: 512,
            pids_limit: 128,
            read_only_rootfs: true,
            workspace_quota_mb: 0,
            readiness_cache_sec: 15,
            error: None,
        }
    }
}

const KEYS: [&str; 13] = [
    "required",
    "logical_session_id",
    "required_backend",
    "max_sessions",
    "max_managed_processes",
    "max_grant_ttl_sec",
    "max_timeout_sec",
    "cpus",
    "memory_mb",
    "pids_limit",
    "read_only_rootfs",
    "workspace_quota_mb",
    "readiness_cache_sec",
];

impl AdmissionPolicy {
    pub(crate) fn read(part: Option<&Value>) -> Self {
        let part = match part {
            None | Some(Value::Null) => return Self::default(),
            Some(Value::Object(part)) => part,
            Some(_) => return Self::invalid("admission must be an object".to_owned()),
        };
        Self::from_keys(part).unwrap_or_else(Self::invalid)
    }

    /// The policy of an invalid part: enforced, and admits nothing.
    fn invalid(error: String) -> Self {
        Self {
            required: true,
            error: Some(error),
            ..Self::default()
        }
    }

    /// The policy after a new configuration. Enforcement ends only with the daemon: otherwise a client could disable
    /// it for all workspaces.
    pub(crate) fn succeeded_by(self, next: Self) -> Self {
        if self.required && !next.required {
            return Self {
                error: Some(
                    "Sandbox admission enforcement cannot be disabled without restarting the \
                     Box Runtime"
                        .to_owned(),
                ),
                ..self
            };
        }
        next
    }

    fn from_keys(part: &Map<String, Value>) -> Result<Self, String> {
        if let Some(unknown) = part.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("admission has no `{unknown}`"));
        }
        fixed(part, "logical_session_id", &[MANAGED_SESSION])?;
        // Boxes of this daemon have the same isolation; `readiness` checks it.
        fixed(part, "required_backend", &["nsjail", "native"])?;
        let default = Self::default();
        let policy = Self {
            required: truth(part, "required", default.required)?,
            max_sessions: integer(part, "max_sessions", 0, default.max_sessions)?,
            max_managed_processes: integer(
                part,
                "max_managed_processes",
                0,
                default.max_managed_processes,
            )?,
            max_grant_ttl_sec: integer(part, "max_grant_ttl_sec", 1, default.max_grant_ttl_sec)?,
            max_timeout_sec: integer(part, "max_timeout_sec", 1, default.max_timeout_sec)?,
            cpus: cpus(part, default.cpus)?,
            memory_mb: integer(part, "memory_mb", 32, default.memory_mb)?,
            pids_limit: integer(part, "pids_limit", 1, default.pids_limit)?,
            read_only_rootfs: truth(part, "read_only_rootfs", default.read_only_rootfs)?,
            workspace_quota_mb: integer(part, "workspace_quota_mb", 0, default.workspace_quota_mb)?,
            readiness_cache_sec: integer(
                part,
                "readiness_cache_sec",
                0,
                default.readiness_cache_sec,
            )?,
            error: None,
        };
        if policy.max_sessions > 1 {
            return Err("max_sessions must be between 0 and 1".to_owned());
        }
        if policy.max_managed_processes != 0 {
            return Err("max_managed_processes must be 0".to_owned());
        }
        Ok(policy)
    }
}

fn fixed(part: &Map<String, Value>, key: &str, allowed: &[&str]) -> Result<(), String> {
    match part.get(key) {
        None => Ok(()),
        Some(Value::String(text)) if allowed.contains(&text.as_str()) => Ok(()),
        Some(_) => Err(format!("{key} must be `{}`", allowed.join("` or `"))),
    }
}

/// Strings are not converted: a limit as text is a mistake.
fn integer(part: &Map<String, Value>, key: &str, least: u64, default: u64) -> Result<u64, String> {
    match part.get(key) {
        None => Ok(default),
        Some(value) => value
            .as_u64()
            .filter(|number| *number >= least)
            .ok_or_else(|| format!("{key} must be an integer of at least {least}")),
    }
}

fn cpus(part: &Map<String, Value>, default: f64) -> Result<f64, String> {
    match part.get("cpus") {
        None => Ok(default),
        Some(value) => value
            .as_f64()
            .filter(|number| number.is_finite() && *number > 0.0)
            .ok_or_else(|| "cpus must be a number greater than 0".to_owned()),
    }
}

fn truth(part: &Map<String, Value>, key: &str, default: bool) -> Result<bool, String> {
    let wrong = || format!("{key} must be true or false");
    match part.get(key) {
        None => Ok(default),
        Some(Value::Bool(truth)) => Ok(*truth),
        Some(Value::Number(number)) if number.as_f64() == Some(1.0) => Ok(true),
        Some(Value::Number(number)) if number.as_f64() == Some(0.0) => Ok(false),
        Some(Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" | "t" | "y" => Ok(true),
            "0" | "false" | "no" | "off" | "f" | "n" => Ok(false),
            _ => Err(wrong()),
        },
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_keys_have_the_defaults_of_langbot() {
        assert_eq!(AdmissionPolicy::read(None), AdmissionPolicy::default());
        assert_eq!(
            AdmissionPolicy::read(Some(&Value::Null)),
            AdmissionPolicy::default()
        );
        let policy = AdmissionPolicy::read(Some(&json!({
            "required": "yes", "memory_mb": 64, "cpus": 2, "required_backend": "nsjail",
        })));
        assert_eq!(policy.error, None);
        assert!(policy.required);
        assert_eq!((policy.memory_mb, policy.cpus), (64, 2.0));
        assert_eq!(policy.max_grant_ttl_sec, 300);
    }

    #[test]
    fn an_invalid_part_admits_nothing() {
        for part in [
            json!([]),
            json!("off"),
            json!({"require": true}),
            json!({"required": "maybe"}),
            json!({"required": 2}),
            json!({"required_backend": "host"}),
            json!({"logical_session_id": "mine"}),
            json!({"max_sessions": 2}),
            json!({"max_managed_processes": 1}),
            json!({"max_grant_ttl_sec": 0}),
            json!({"max_timeout_sec": "9"}),
            json!({"cpus": 0}),
            json!({"cpus": true}),
            json!({"memory_mb": 31}),
            json!({"pids_limit": -1}),
            json!({"pids_limit": 1.5}),
        ] {
            let policy = AdmissionPolicy::read(Some(&part));
            assert!(policy.required && policy.error.is_some(), "{part}");
        }
    }

    #[test]
    fn enforcement_ends_only_with_the_daemon() {
        let on = AdmissionPolicy::read(Some(&json!({"required": true, "pids_limit": 9})));
        let still = on.clone().succeeded_by(AdmissionPolicy::read(None));
        assert!(still.required && still.error.is_some());
        assert_eq!(still.pids_limit, 9);
        let changed = on.succeeded_by(AdmissionPolicy::read(Some(
            &json!({"required": true, "pids_limit": 7}),
        )));
        assert_eq!((changed.pids_limit, changed.error), (7, None));
    }
}
