//! Wraps the command of a Python project so that it runs in a virtual environment, which is created once.
//!
//! The environment is stored in the home directory of the box under the hash of the project's manifests, because the project
//! may be read-only. The helper contains no single quote, so that it can be quoted with them.

use boxwood_api::ErrorCode;

use crate::error::ToolError;
use crate::paths::SKILLS;
use crate::tools::context::CallContext;

/// The files that list the dependencies of a Python project, in the order in which they are hashed.
const MANIFESTS: [&str; 4] = [
    "requirements.txt",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
];

/// How long a command waits for another that builds the same environment.
const MAX_WAIT_SEC: u32 = 120;

const PREAMBLE: &str = include_str!("python_env.sh");
const HELPER: &str = include_str!("python_env.py");

/// The command, wrapped if the skill is a Python project.
pub(super) async fn prepared(
    context: &CallContext<'_>,
    skill: &str,
    command: String,
) -> Result<String, ToolError> {
    context.open().await?;
    let mount = format!("{SKILLS}/{skill}");
    let listed = match context.boxes.list(&context.session, &mount).await {
        Ok(listed) => listed,
        // The command will report it.
        Err(error) if error.reached && error.code == ErrorCode::NotFound => return Ok(command),
        Err(error) => return Err(context.agent.refusal(error).await),
    };
    if !wants_python_env(listed.entries.iter().map(|entry| entry.name.as_str())) {
        return Ok(command);
    }
    context
        .progress
        .step("the command runs in the skill's own Python environment");
    Ok(with_python_env(&command, &mount))
}

/// Returns true for the names in the directory of a Python project.
fn wants_python_env<'a>(names: impl IntoIterator<Item = &'a str>) -> bool {
    names
        .into_iter()
        .any(|name| name == ".venv" || MANIFESTS.contains(&name))
}

/// The command, run in the environment of the project at `project` in the box.
fn with_python_env(command: &str, project: &str) -> String {
    waiting(command, project, MAX_WAIT_SEC)
}

fn waiting(command: &str, project: &str, wait_sec: u32) -> String {
    let preamble = PREAMBLE
        .replace("@WAIT@", &wait_sec.to_string())
        .replace("@HELPER@", HELPER.trim_end())
        // Last, because the name of a project could contain a placeholder.
        .replacen("@PROJECT@", &quoted(project), 1);
    format!("{preamble}{command}")
}

/// Quotes a text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
