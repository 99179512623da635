//! Partial updates of MCP server definitions.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::{McpServerSpec, MountMode, Network};

/// One setting of an update. Absent keeps it, null resets it to its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Change<T> {
    #[default]
    Stay,
    Reset,
    To(T),
}

impl<T> Change<T> {
    pub const fn stays(&self) -> bool {
        matches!(self, Self::Stay)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Option::deserialize(deserializer)?;
        Ok(value.map_or(Self::Reset, Self::To))
    }
}

/// An update. Absent fields are kept, in `box` and `tools` too. `env` names that map to null are
/// removed, others are set. An empty `cwd` and an `idle_stop_sec` of 0 remove the setting.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EditMcpServerRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(rename = "box", skip_serializing_if = "Option::is_none")]
    pub settings: Option<EditMcpBoxSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<EditMcpToolFilter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_stop_sec: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<Vec<String>>,
}

impl EditMcpServerRequest {
    /// Returns the changed definition: a JSON merge patch (RFC 7396).
    pub fn applied_to(&self, spec: &McpServerSpec) -> Result<McpServerSpec, serde_json::Error> {
        let mut document = serde_json::to_value(spec)?;
        merge(&mut document, serde_json::to_value(self)?);
        let mut edited: McpServerSpec = serde_json::from_value(document)?;
        edited.cwd = edited.cwd.filter(|cwd| !cwd.is_empty());
        edited.idle_stop_sec = edited.idle_stop_sec.filter(|&seconds| seconds > 0);
        Ok(edited)
    }
}

fn merge(document: &mut Value, patch: Value) {
    let Value::Object(changes) = patch else {
        *document = patch;
        return;
    };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    for (name, change) in changes {
        if change.is_null() {
            document.as_object_mut().map(|fields| fields.remove(&name));
        } else {
            merge(&mut document[&name], change);
        }
    }
}

/// Without values of the environment, because they may be secrets.
impl fmt::Debug for EditMcpServerRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EditMcpServerRequest")
            .field("command", &self.command)
            .field("args", &self.args)
            .field("env_keys", &self.env.keys().collect::<Vec<_>>())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Changes of a server's box. Absent fields are kept, null resets to the default.
// `default` is set on each field: on the struct, the schema would claim that null is the same as
// absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EditMcpBoxSettings {
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<String>)]
    pub profile: Change<String>,
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<String>)]
    pub backend: Change<String>,
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<String>)]
    pub image: Change<String>,
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<Network>)]
    pub network: Change<Network>,
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<String>)]
    pub host_path: Change<String>,
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<MountMode>)]
    pub host_path_mode: Change<MountMode>,
    /// Names that map to null are removed, others are set; null removes all.
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>)]
    pub env: Change<BTreeMap<String, Option<String>>>,
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub startup_timeout_sec: Change<u64>,
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<f64>)]
    pub cpus: Change<f64>,
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<u64>)]
    pub memory_mb: Change<u64>,
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<u64>)]
    pub pids_limit: Change<u64>,
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<bool>)]
    pub read_only_rootfs: Change<bool>,
}

/// Changes of the tool filter. Absent lists are kept, null empties them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EditMcpToolFilter {
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<Vec<String>>)]
    pub allow: Change<Vec<String>>,
    #[serde(default, skip_serializing_if = "Change::stays")]
    #[schema(value_type = Option<Vec<String>>)]
    pub deny: Change<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(changes: Value) -> McpServerSpec {
        let mut whole = json!({"name": "a", "command": "uvx"});
        if let (Some(whole), Value::Object(changes)) = (whole.as_object_mut(), changes) {
            whole.extend(changes);
        }
        serde_json::from_value(whole).expect("a spec")
    }

    #[track_caller]
    fn check(before: Value, edit: Value, after: Value) {
        let edit: EditMcpServerRequest = serde_json::from_value(edit).expect("an edit");
        let edited = edit.applied_to(&spec(before)).expect("a spec");
        assert_eq!(edited, spec(after));
    }

    #[test]
    fn an_edit_changes_only_the_fields_it_contains() {
        let before = json!({
            "args": ["a"], "env": {"KEEP": "1", "DROP": "2"}, "cwd": "/x", "idle_stop_sec": 9,
            "box": {"network": "off"}, "tools": {"deny": ["x"]},
        });
        check(before.clone(), json!({}), before.clone());
        check(
            before.clone(),
            json!({"box": {}, "tools": {}}),
            before.clone(),
        );
        check(
            before,
            json!({
                "env": {"DROP": null, "NEW": "3"}, "cwd": "", "idle_stop_sec": 0, "enabled": false,
            }),
            json!({
                "args": ["a"], "env": {"KEEP": "1", "NEW": "3"}, "enabled": false,
                "box": {"network": "off"}, "tools": {"deny": ["x"]},
            }),
        );
    }

    #[test]
    fn a_box_keeps_its_other_settings() {
        let whole = json!({
            "profile": "p", "backend": "b", "image": "i", "network": "off", "host_path": "/h",
            "host_path_mode": "rw", "env": {"A": "1", "B": "2"}, "startup_timeout_sec": 7,
            "cpus": 0.5, "memory_mb": 64, "pids_limit": 9, "read_only_rootfs": true,
        });
        let with = |key: &str, value: &Value| {
            let mut changed = whole.clone();
            changed[key] = value.clone();
            json!({"box": changed})
        };
        for (key, value) in [
            ("profile", json!("q")),
            ("backend", json!("c")),
            ("image", json!("j")),
            ("network", json!("on")),
            ("host_path", json!("/i")),
            ("host_path_mode", json!("ro")),
            ("startup_timeout_sec", json!(8)),
            ("cpus", json!(2.0)),
            ("memory_mb", json!(1024)),
            ("pids_limit", json!(10)),
            ("read_only_rootfs", json!(false)),
        ] {
            let before = json!({"box": whole});
            check(
                before.clone(),
                json!({"box": {key: value}}),
                with(key, &value),
            );
            let mut without = whole.clone();
            without.as_object_mut().expect("an object").remove(key);
            check(before, json!({"box": {key: null}}), json!({"box": without}));
        }
        let before = json!({"box": whole});
        let one_less = json!({"A": "1", "C": "3"});
        let edit = json!({"box": {"env": {"B": null, "C": "3"}}});
        check(before.clone(), edit, with("env", &one_less));
        check(
            before,
            json!({"box": {"env": null}}),
            with("env", &json!({})),
        );
    }

    #[test]
    fn editing_one_tool_list_keeps_the_other() {
        let before = json!({"tools": {"allow": ["a"], "deny": ["d"]}});
        let check = |edit, after| {
            check(
                before.clone(),
                json!({"tools": edit}),
                json!({"tools": after}),
            );
        };
        check(
            json!({"allow": ["b"]}),
            json!({"allow": ["b"], "deny": ["d"]}),
        );
        check(json!({"deny": null}), json!({"allow": ["a"]}));
    }

    #[test]
    fn an_edit_with_an_unknown_setting_is_refused() {
        for edit in [
            json!({"box": {"memroy_mb": 1}}),
            json!({"box": {"memroy_mb": null}}),
            json!({"tools": {"alow": null}}),
        ] {
            serde_json::from_value::<EditMcpServerRequest>(edit).expect_err("refused");
        }
    }

    #[test]
    fn an_edit_is_read_as_it_was_written() {
        for edit in [
            json!({}),
            json!({"box": {"network": null, "memory_mb": 1, "env": {"A": null}}}),
            json!({"tools": {"allow": null, "deny": ["x"]}}),
        ] {
            let read: EditMcpServerRequest = serde_json::from_value(edit.clone()).expect("an edit");
            assert_eq!(serde_json::to_value(read).expect("JSON"), edit);
        }
    }
}
