//! Validates definitions, however they were added. All sizes are bounded here.

use std::collections::BTreeMap;

use boxwood_api::{McpBoxSettings, McpServerSpec};

use super::secret_args;
use crate::hosting::HostingError;
use crate::hosting::boxes::ids;

const MAX_PATH_BYTES: usize = 4096;
const MAX_ARGUMENTS: usize = 1000;
/// Limit of the kernel for one argument or variable.
const MAX_TEXT_BYTES: usize = 128 << 10;
const MAX_TOTAL_BYTES: usize = 1 << 20;
const MAX_VARIABLES: usize = 500;
const MAX_PATTERNS: usize = 500;
const MAX_PATTERN_BYTES: usize = 256;
const MAX_PACKAGES: usize = 64;
const MAX_PACKAGE_BYTES: usize = 500;
const MAX_STARTUP_SECONDS: u64 = 3600;

pub(crate) fn check(spec: &McpServerSpec) -> Result<(), HostingError> {
    if ids::is_reserved(&spec.name) {
        let message = format!("`{}` is reserved; choose another name", spec.name);
        return Err(HostingError::invalid("name", message));
    }
    if spec.command.trim().is_empty() {
        let message = "a command is required, such as `npx` or `uvx`";
        return Err(HostingError::invalid("command", message));
    }
    text("command", &spec.command, MAX_PATH_BYTES)?;
    texts("args", &spec.args, MAX_ARGUMENTS, MAX_TEXT_BYTES)?;
    filled_arguments(spec)?;
    variables("env", &spec.env)?;
    texts("cwd", &spec.cwd, 1, MAX_PATH_BYTES)?;
    let patterns = [
        ("tools.allow", &spec.tools.allow),
        ("tools.deny", &spec.tools.deny),
    ];
    for (field, patterns) in patterns {
        texts(field, patterns, MAX_PATTERNS, MAX_PATTERN_BYTES)?;
    }
    if spec.idle_stop_sec == Some(0) {
        let message = "must be at least 1; omit it to never stop the server";
        return Err(HostingError::invalid("idle_stop_sec", message));
    }
    texts("with", &spec.with, MAX_PACKAGES, MAX_PACKAGE_BYTES)?;
    let is_option = |package: &String| {
        package.starts_with('-') || package.chars().any(char::is_control) || package.is_empty()
    };
    if spec.with.iter().any(is_option) {
        let message = "must be packages or constraints such as `mcp<2`, not options";
        return Err(HostingError::invalid("with", message));
    }
    box_settings(&spec.settings)
}

/// Measures the arguments with their secrets inserted.
fn filled_arguments(spec: &McpServerSpec) -> Result<(), HostingError> {
    let mut total = 0_usize;
    for argument in &spec.args {
        let bytes = secret_args::filled_bytes(argument, &spec.env);
        limit("args", bytes, MAX_TEXT_BYTES, "bytes")?;
        total = total.saturating_add(bytes);
    }
    limit("args", total, MAX_TOTAL_BYTES, "bytes in total")
}

fn box_settings(settings: &McpBoxSettings) -> Result<(), HostingError> {
    variables("box.env", &settings.env)?;
    if !(1..=MAX_STARTUP_SECONDS).contains(&settings.startup_timeout_sec) {
        let message = format!("must be 1 to {MAX_STARTUP_SECONDS}");
        return Err(HostingError::invalid("box.startup_timeout_sec", message));
    }
    for (field, value) in [
        ("box.profile", &settings.profile),
        ("box.backend", &settings.backend),
        ("box.image", &settings.image),
        ("box.host_path", &settings.host_path),
    ] {
        texts(field, value, 1, MAX_PATH_BYTES)?;
    }
    let is_positive = |cpus: f64| cpus.is_finite() && cpus > 0.0;
    if !settings.cpus.is_none_or(is_positive) {
        return Err(HostingError::invalid("box.cpus", "must be more than 0"));
    }
    for (field, value) in [
        ("box.memory_mb", settings.memory_mb),
        ("box.pids_limit", settings.pids_limit),
    ] {
        if value == Some(0) {
            return Err(HostingError::invalid(field, "must be at least 1"));
        }
    }
    Ok(())
}

/// Values may be secrets, so errors contain only names.
fn variables(field: &str, variables: &BTreeMap<String, String>) -> Result<(), HostingError> {
    limit(field, variables.len(), MAX_VARIABLES, "entries")?;
    for (name, value) in variables {
        if name.is_empty() || name.contains(['=', '\0']) || name.len() > MAX_PATTERN_BYTES {
            let message = "names must have 1 to 256 bytes and no `=`";
            return Err(HostingError::invalid(field, message));
        }
        text(&format!("{field}.{name}"), value, MAX_TEXT_BYTES)?;
    }
    let lengths = variables
        .iter()
        .map(|(name, value)| name.len() + value.len());
    limit(field, lengths.sum(), MAX_TOTAL_BYTES, "bytes in total")
}

fn texts<'a>(
    field: &str,
    values: impl IntoIterator<Item = &'a String>,
    max_values: usize,
    max_bytes: usize,
) -> Result<(), HostingError> {
    let mut count = 0;
    for value in values {
        count += 1;
        text(field, value, max_bytes)?;
    }
    limit(field, count, max_values, "entries")
}

fn text(field: &str, value: &str, max: usize) -> Result<(), HostingError> {
    if value.contains('\0') {
        return Err(HostingError::invalid(field, "must not contain a NUL byte"));
    }
    limit(field, value.len(), max, "bytes")
}

fn limit(field: &str, value: usize, max: usize, unit: &str) -> Result<(), HostingError> {
    if value > max {
        let message = format!("{value} {unit}; the limit is {max}");
        return Err(HostingError::invalid(field, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(changes: Value) -> McpServerSpec {
        let mut whole = json!({"name": "a", "command": "uvx"});
        if let (Some(whole), Value::Object(changes)) = (whole.as_object_mut(), changes) {
            whole.extend(changes);
        }
        serde_json::from_value(whole).expect("a spec")
    }

    #[track_caller]
    fn refused(changes: Value, field: &str) {
        match check(&spec(changes)) {
            Err(HostingError::Invalid {
                field: found,
                message,
            }) => {
                assert_eq!(found, field);
                assert!(!message.contains("hunter2"), "{message}");
            }
            other => panic!("`{field}` should be refused, not {other:?}"),
        }
    }

    #[test]
    fn a_typical_definition_is_valid() {
        let ordinary = json!({
            "args": ["mcp-server-time", "--local-timezone=UTC"],
            "env": {"TOKEN": "x"}, "with": ["mcp<2"], "tools": {"deny": ["*delete*"]},
            "box": {"memory_mb": 256, "cpus": 0.5}, "idle_stop_sec": 60,
        });
        check(&spec(ordinary)).expect("fine");
    }

    #[test]
    fn invalid_definitions_name_the_field() {
        refused(json!({"name": "shared"}), "name");
        refused(json!({"command": " "}), "command");
        refused(json!({"command": "a\0b"}), "command");
        refused(json!({"args": vec!["x"; 1001]}), "args");
        refused(json!({"args": ["x".repeat(200_000)]}), "args");
        refused(json!({"args": vec!["x".repeat(100_000); 11]}), "args");
        let secret = json!({"input:key": "x".repeat(100_000)});
        let args = ["${input:key}${input:key}"];
        refused(json!({"args": args, "env": secret}), "args");
        let args = ["${input:key}"; 11];
        refused(json!({"args": args, "env": secret}), "args");
        refused(json!({"env": {"": "hunter2"}}), "env");
        refused(json!({"env": {"A=B": "hunter2"}}), "env");
        refused(json!({"env": {"A": "hunter2\u{0}"}}), "env.A");
        refused(json!({"cwd": "x".repeat(5000)}), "cwd");
        refused(
            json!({"tools": {"allow": ["x".repeat(300)]}}),
            "tools.allow",
        );
        refused(json!({"idle_stop_sec": 0}), "idle_stop_sec");
        refused(json!({"with": ["--index-url=x"]}), "with");
        refused(json!({"with": ["a\nb"]}), "with");
        refused(json!({"with": vec!["a"; 65]}), "with");
        refused(
            json!({"box": {"startup_timeout_sec": 0}}),
            "box.startup_timeout_sec",
        );
        refused(json!({"box": {"cpus": -1.0}}), "box.cpus");
        refused(json!({"box": {"memory_mb": 0}}), "box.memory_mb");
        refused(json!({"box": {"env": {"": "x"}}}), "box.env");
    }
}
