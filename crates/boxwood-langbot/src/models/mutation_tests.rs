//! Validates ten thousand mutated requests: no panic, and accepted requests can be run.

use serde_json::{Map, Value, json};

use crate::WireFormat;

/// A small deterministic random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or_default() % sides
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    fn text(&mut self) -> String {
        let fragments = [
            "",
            " ",
            "/",
            "..",
            "x",
            "workspace",
            "\0",
            "\u{1c}",
            "é",
            "\u{1f600}",
            "'",
            "\"",
            "\\",
            "0",
            "9",
            "-",
            "+",
            ".",
            "_",
            "e",
            "inf",
            "nan",
            "C:\\",
            "sha256:",
            "off",
            "\n",
            "2026-",
            "T",
            ":",
            "Z",
        ];
        let length = match self.below(50) {
            0 => 300,
            few => few % 8,
        };
        (0..length).map(|_| *self.pick(&fragments)).collect()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 8 } else { 11 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.below(200)),
            3 => json!(*self.pick(&[i64::MIN, -1, i64::MAX])),
            4 => json!(*self.pick(&[u64::MAX, 1 << 63, 1 << 31])),
            5 => json!(*self.pick(&[-0.0, 1e300, -1e300, 5e-324, 1.5, 9.3e18, 1e16])),
            6 | 7 => json!(self.text()),
            8 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            9 => {
                // About the depth limit of the JSON parser.
                let deep = |inner, _| Value::Array(vec![inner]);
                (0..self.below(120)).fold(Value::Null, deep)
            }
            _ => {
                let members: Map<String, Value> = (0..self.below(4))
                    .map(|_| (self.text(), self.value(depth - 1)))
                    .collect();
                members.into()
            }
        }
    }

    /// Replaces, removes or adds a value, at any depth.
    fn mutate(&mut self, value: &mut Value) {
        let enter = self.below(3) > 0;
        match value {
            Value::Object(members) if enter && !members.is_empty() => {
                let names: Vec<String> = members.keys().cloned().collect();
                let name = self.pick(&names).clone();
                match self.below(8) {
                    0 => {
                        members.remove(&name);
                    }
                    1 => {
                        members.insert(self.text(), self.value(2));
                    }
                    _ => {
                        if let Some(member) = members.get_mut(&name) {
                            self.mutate(member);
                        }
                    }
                }
            }
            Value::Array(items) if enter && !items.is_empty() => {
                let index = self.below(items.len());
                self.mutate(&mut items[index]);
            }
            other => *other = self.value(2),
        }
    }
}

fn whole_spec() -> Value {
    let digest = "0123456789abcdef".repeat(4);
    json!({
        "session_id": "s", "cmd": "true", "workdir": "/workspace/x", "timeout_sec": 5,
        "network": "on", "env": {"A": "b", "C": "d"}, "image": "i", "host_path": "/h",
        "host_path_mode": "ro", "mount_path": "/workspace", "persistent": true, "cpus": 0.5,
        "memory_mb": "64", "pids_limit": 9, "read_only_rootfs": "no", "workspace_quota_mb": 1,
        "extra_mounts": [
            {"host_path": "/a", "mount_path": "/b", "mode": "ro"},
            {
                "host_path": "/a", "mount_path": format!("/opt/langbot-artifacts/{digest}"),
                "mode": "ro", "content_digest": format!("sha256:{digest}"),
                "manifest_path": "/a/m.json",
            },
        ],
    })
}

/// Applies one to three mutations each.
fn each_mutation(whole: &Value, mut check: impl FnMut(&Value)) {
    let mut random = Random(0x0b0c_5eed);
    for _ in 0..10_000 {
        let mut value = whole.clone();
        for _ in 0..=random.below(3) {
            random.mutate(&mut value);
        }
        check(&value);
    }
}

#[test]
fn a_mutated_spec_is_rejected_or_can_be_run() {
    let mut accepted = 0;
    each_mutation(&whole_spec(), |value| {
        let empty = Map::new();
        let data = value.as_object().unwrap_or(&empty);
        for version in [WireFormat::V0_4, WireFormat::V0_7] {
            match super::box_spec(data, version) {
                Ok(given) => {
                    accepted += 1;
                    assert_eq!(given.request.validate(), Ok(()), "{value}");
                    assert!(given.request.session_id.is_some() && given.request.cpus.is_some());
                    assert_eq!(given.request.extra_mounts.len(), given.mount_proofs.len());
                }
                Err(text) => assert!(text.contains(" for BoxSpec\n"), "{text}"),
            }
        }
    });
    // Otherwise the mutations are too strong or too weak to test anything.
    assert!((1000..19_000).contains(&accepted), "{accepted}");
}

#[test]
fn other_mutated_models_are_rejected_or_valid() {
    let process = json!({
        "process_id": "p", "command": "cat", "args": ["a"], "env": {"A": "b"}, "cwd": "/",
        "memory_mb": 64,
    });
    each_mutation(&process, |value| {
        for version in [WireFormat::V0_4, WireFormat::V0_7] {
            if let Ok(given) = super::process_spec(value, version) {
                let spec = given.spec;
                assert_eq!(spec.clone().validate().as_ref(), Ok(&spec), "{value}");
            }
        }
    });
    let grant = json!({
        "instance_uuid": "i", "workspace_uuid": "w", "execution_generation": 1,
        "entitlement_revision": 2, "expires_at": "2026-06-09T11:30:17Z", "max_sessions": 1,
        "max_managed_processes": 0, "placement_generation": 1, "installation_uuid": null,
    });
    each_mutation(&grant, |value| {
        if let Ok(context) = super::action_context(value) {
            assert!(context.placement_generation > 0);
        }
        if let Value::Object(data) = value {
            if let Ok(grant) = super::admission_grant(data) {
                assert!(grant.execution_generation > 0 && grant.entitlement_revision > 0);
            }
            if let Ok(revocation) = super::admission_revocation(data) {
                assert!(revocation.entitlement_revision > 0);
            }
        }
    });
}
