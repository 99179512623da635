//! Reads what the clients send the way their own models do.

use boxwood_api::{ProcessSpec, SpecRequest};
use serde_json::{Map, Value, json};

use super::Era;

/// A box and perhaps a command, with every default of the era filled in.
pub(in crate::langbot) struct GivenSpec {
    pub(in crate::langbot) request: SpecRequest,
}

/// A process, and what it may use of the box's memory (0: all of it).
pub(in crate::langbot) struct GivenProcess {
    pub(in crate::langbot) spec: ProcessSpec,
}

pub(in crate::langbot) fn box_spec(
    data: &Map<String, Value>,
    _era: Era,
) -> Result<GivenSpec, String> {
    let mut all = json!({
        "network": "off", "image": "rockchin/langbot-sandbox:latest", "timeout_sec": 30, "cpus": 1.0,
        "memory_mb": 512, "pids_limit": 128, "read_only_rootfs": true, "workspace_quota_mb": 0,
        "persistent": false, "host_path_mode": "rw", "mount_path": "/workspace",
    });
    for (key, value) in data {
        if SpecRequest::FIELDS.contains(&key.as_str()) && key != "profile" && key != "skills" {
            all[key] = value.clone();
        }
    }
    let request: SpecRequest = serde_json::from_value(all)
        .map_err(|e| format!("1 validation error for BoxSpec\n  {e}"))?;
    if request.session_id.is_none() {
        return Err("1 validation error for BoxSpec\nsession_id\n  Field required".to_owned());
    }
    Ok(GivenSpec { request })
}

pub(in crate::langbot) fn process_spec(data: &Value, _era: Era) -> Result<GivenProcess, String> {
    let mut data = data.clone();
    if let Some(map) = data.as_object_mut() {
        map.retain(|key, _| ProcessSpec::FIELDS.contains(&key.as_str()));
    }
    let spec = serde_json::from_value(data)
        .map_err(|e| format!("1 validation error for BoxManagedProcessSpec\n  {e}"))?;
    Ok(GivenProcess { spec })
}
