//! A skill that is a Python project brings its own environment.

use boxwood_api::ErrorCode;

use super::context::CallContext;
use crate::error::ToolError;
use crate::paths::SKILLS;
use crate::python_env::{wants_python_env, with_python_env};

/// The command as it has to be run in the skill's package.
pub(super) async fn prepared(
    context: &CallContext<'_>,
    skill: &str,
    command: String,
) -> Result<String, ToolError> {
    context.open().await?;
    let mount = format!("{SKILLS}/{skill}");
    let listed = match context.boxes.list(&context.session, &mount).await {
        Ok(listed) => listed,
        // The command will say so itself.
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
