//! What is stored about a running server, so that the next daemon can adopt it.

use boxwood_api::{McpServerSpec, McpToolInfo, ProcessId, ProcessSpec};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::hosting::definitions::secret_args;
use crate::hosting::launch::{Program, hex};
use crate::wire::Handshake;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    /// Fingerprint of all settings whose change requires a restart.
    pub(crate) fingerprint: String,
    /// Incarnation of the box in which the handshake happened.
    #[serde(default)]
    pub(crate) incarnation: Option<u64>,
    #[serde(default)]
    pub(crate) cache_key: Option<String>,
    /// Without the values of the server's variables.
    pub(crate) launched: Program,
    #[serde(rename = "greeting")]
    pub(crate) handshake: Handshake,
    /// The tools at the start. They are listed again after adoption.
    #[serde(default)]
    pub(crate) tools: Vec<McpToolInfo>,
    /// How the box differs from the request.
    #[serde(default)]
    pub(crate) notices: Vec<String>,
}

impl Program {
    /// Omits the server's own variables, and replaces their values in arguments by placeholders.
    pub(crate) fn without_secrets(mut self, spec: &McpServerSpec) -> Self {
        self.env
            .retain(|key, value| spec.env.get(key) != Some(value));
        for word in self.args.iter_mut().chain(self.env.values_mut()) {
            *word = secret_args::with_placeholders(std::mem::take(word), &spec.env);
        }
        self
    }

    /// Adds the server's variables, and their values in arguments.
    pub(crate) fn process(&self, id: ProcessId, spec: &McpServerSpec) -> ProcessSpec {
        let fill = |word: &String| secret_args::fill(word, &spec.env);
        let mut env = spec.env.clone();
        env.retain(|name, _| !secret_args::is_name(name));
        env.extend(
            self.env
                .iter()
                .map(|(name, value)| (name.clone(), fill(value))),
        );
        ProcessSpec {
            process_id: id,
            command: self.command.clone(),
            args: self.args.iter().map(fill).collect(),
            env,
            cwd: self.cwd.clone(),
        }
    }
}

/// Equal for definitions that result in the same process in the same box.
pub(crate) fn fingerprint(spec: &McpServerSpec) -> String {
    let mut settings = spec.settings.clone();
    settings.startup_timeout_sec = 0;
    let parts = (
        &spec.command,
        &spec.args,
        &spec.env,
        &spec.cwd,
        &settings,
        &spec.with,
    );
    // Maps are sorted, so equal parts serialize equally.
    let text = serde_json::to_vec(&parts).unwrap_or_default();
    hex(&Sha256::digest(&text))
}

pub(crate) fn needs_restart(old: &McpServerSpec, new: &McpServerSpec) -> bool {
    fingerprint(old) != fingerprint(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(change: impl FnOnce(&mut serde_json::Value)) -> McpServerSpec {
        let mut document = serde_json::json!({"name": "time", "command": "uvx", "args": ["a"]});
        change(&mut document);
        serde_json::from_value(document).expect("a spec")
    }

    #[test]
    fn only_settings_of_the_process_require_a_restart() {
        let old = spec(|_| {});
        let restarts = [
            serde_json::json!({"command": "npx"}),
            serde_json::json!({"args": ["b"]}),
            serde_json::json!({"env": {"K": "v"}}),
            serde_json::json!({"cwd": "/srv"}),
            serde_json::json!({"with": ["mcp<2"]}),
            serde_json::json!({"box": {"memory_mb": 64}}),
            serde_json::json!({"box": {"network": "off"}}),
        ];
        let quiet = [
            serde_json::json!({"enabled": false}),
            serde_json::json!({"tools": {"deny": ["x"]}}),
            serde_json::json!({"idle_stop_sec": 5}),
            serde_json::json!({"box": {"startup_timeout_sec": 5}}),
        ];
        let changed = |change: &serde_json::Value| {
            let fields = change.as_object().expect("an object").clone();
            spec(|document| document.as_object_mut().expect("an object").extend(fields))
        };
        for change in &restarts {
            assert!(needs_restart(&old, &changed(change)), "{change}");
        }
        for change in &quiet {
            assert!(!needs_restart(&old, &changed(change)), "{change}");
        }
    }

    #[test]
    fn variable_values_reach_the_process_and_are_not_stored() {
        let spec = spec(|document| {
            document["env"] = serde_json::json!({"TOKEN": "secret", "PATH": "/theirs"});
        });
        let program = Program {
            command: "/opt/mcp/bin/x".to_owned(),
            args: vec![],
            cwd: "/workspace".to_owned(),
            env: [("TOKEN", "secret"), ("PATH", "/opt/mcp/bin:/theirs")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        };
        let launched = program.clone().without_secrets(&spec);
        let process = launched.process(ProcessId::default(), &spec);
        assert_eq!(process.env, program.env);
        let stored = serde_json::to_string(&launched).expect("JSON");
        assert!(!stored.contains("secret"), "{stored}");
    }

    #[test]
    fn secret_arguments_reach_the_process_and_are_not_stored() {
        let spec = spec(|document| {
            document["args"] = serde_json::json!(["--key=${input:key}"]);
            document["env"] = serde_json::json!({"input:key": "hunter2"});
        });
        let program = Program {
            command: "/opt/mcp/bin/x".to_owned(),
            args: secret_args::filled(&spec).args,
            cwd: "/workspace".to_owned(),
            env: [("input:key", "hunter2"), ("SAID", "hunter2!")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        };
        let launched = program.without_secrets(&spec);
        let process = launched.process(ProcessId::default(), &spec);
        assert_eq!(process.args, ["--key=hunter2"]);
        let variables = [("SAID".to_owned(), "hunter2!".to_owned())];
        assert_eq!(process.env, variables.into());
        let stored = serde_json::to_string(&launched).expect("JSON");
        assert!(!stored.contains("hunter2"), "{stored}");
    }
}
