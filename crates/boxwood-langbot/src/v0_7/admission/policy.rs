//! The `admission` part of the `box:` section: the policy for managed sandboxes.
//!
//! An invalid part does not mean "no policy": no sandbox is admitted until it is corrected.

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use crate::models::coerce;

/// Upper limits of every grant, and the limits of the one box that a grant allows.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AdmissionPolicy {
    #[serde(deserialize_with = "boolean")]
    pub(crate) required: bool,
    pub(crate) logical_session_id: String,
    pub(crate) required_backend: String,
    pub(crate) max_sessions: u64,
    pub(crate) max_managed_processes: u64,
    pub(crate) max_grant_ttl_sec: u64,
    pub(crate) max_timeout_sec: u64,
    pub(crate) cpus: f64,
    pub(crate) memory_mb: u64,
    pub(crate) pids_limit: u64,
    #[serde(deserialize_with = "boolean")]
    pub(crate) read_only_rootfs: bool,
    pub(crate) workspace_quota_mb: u64,
    pub(crate) readiness_cache_sec: u64,
    /// Why the part is invalid. No sandbox is admitted then.
    #[serde(skip)]
    pub(crate) error: Option<String>,
}

/// The only session of a workspace under a policy.
pub(crate) const MANAGED_SESSION: &str = "global";

impl Default for AdmissionPolicy {
    fn default() -> Self {
        Self {
            required: false,
            logical_session_id: MANAGED_SESSION.to_owned(),
            required_backend: "nsjail".to_owned(),
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

impl AdmissionPolicy {
    pub(crate) fn read(part: Option<&Value>) -> Self {
        let part = match part {
            None | Some(Value::Null) => return Self::default(),
            Some(part) if !part.is_object() => Err("it must be an object".to_owned()),
            Some(part) => Self::deserialize(part).map_err(|error| error.to_string()),
        };
        // An invalid policy is enforced, and admits nothing.
        part.and_then(Self::checked).unwrap_or_else(|error| Self {
            required: true,
            error: Some(format!("admission: {error}")),
            ..Self::default()
        })
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

    fn checked(self) -> Result<Self, String> {
        // Boxes of both backends have the same isolation; `readiness` checks it.
        let is_backend = matches!(self.required_backend.as_str(), "nsjail" | "native");
        let rule = if self.max_grant_ttl_sec == 0 {
            "max_grant_ttl_sec must be at least 1"
        } else if self.max_timeout_sec == 0 {
            "max_timeout_sec must be at least 1"
        } else if self.cpus <= 0.0 {
            "cpus must be a number greater than 0"
        } else if self.memory_mb < 32 {
            "memory_mb must be at least 32"
        } else if self.pids_limit == 0 {
            "pids_limit must be at least 1"
        } else if self.max_sessions > 1 {
            "max_sessions must be 0 or 1"
        } else if self.max_managed_processes > 0 {
            "max_managed_processes must be 0"
        } else if !is_backend {
            "required_backend must be `nsjail` or `native`"
        } else if self.logical_session_id != MANAGED_SESSION {
            "logical_session_id must be `global`"
        } else {
            return Ok(self);
        };
        Err(rule.to_owned())
    }
}

/// A boolean in one of the spellings of LangBot.
fn boolean<'de, D: Deserializer<'de>>(input: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(input)?;
    coerce::boolean(&value).map_err(|_| D::Error::custom(format!("{value} is not true or false")))
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
