//! `activate`: a skill's instructions, and the right to work in its package.

use boxwood_api::SkillDetail;
use serde_json::{Map, Value};

use super::arguments::ActivateArgs;
use super::context::CallContext;
use super::object;
use crate::error::ToolError;
use crate::paths::{SKILLS, listed};

pub(super) async fn run(
    context: &CallContext<'_>,
    args: ActivateArgs,
) -> Result<Map<String, Value>, ToolError> {
    let name = args.skill_name.trim();
    if name.is_empty() {
        return Err(ToolError::rule("skill_name is required"));
    }
    // The model must not learn whether a hidden skill exists.
    if !context.skills.visible.contains(name) {
        return Err(unknown(context, name));
    }
    let found = match context.boxes.skill(name).await {
        Ok(found) => found,
        Err(error) => return Err(context.agent.refusal(error).await),
    };
    let skill = found.ok_or_else(|| unknown(context, name))?;
    context
        .agent
        .inner
        .activations
        .add(&context.session, context.query, name);
    let mount = format!("{SKILLS}/{name}");
    Ok(object([
        ("ok", true.into()),
        ("activated", true.into()),
        ("skill_name", name.into()),
        ("content", content(&skill, &mount).into()),
        ("mount_path", mount.into()),
    ]))
}

fn unknown(context: &CallContext<'_>, name: &str) -> ToolError {
    let names = listed(&context.skills.visible);
    ToolError::rule(format!(
        "Skill \"{name}\" not found. Available skills: {names}"
    ))
}

/// The text for the model: how to use the package, then the instructions of the skill.
fn content(skill: &SkillDetail, mount: &str) -> String {
    let info = &skill.skill;
    format!(
        "The skill \"{}\" is active. Its package is at {mount}; its instructions are below.\n\
         - Paths in the instructions are relative to {mount}.\n\
         - exec: set workdir to {mount}, or name files below it. One call may use one skill.\n\
         - read, glob, grep: give paths below {mount}.\n\
         - write, edit: change the skill itself, for every later conversation. The package is \
         read-only for commands; put results under /workspace.\n\n\
         # {}\n\n{}",
        info.name, info.display_name, skill.instructions
    )
}
