//! `register_skill`: a directory of the workspace becomes a skill of the store.

use boxwood_api::CreateSkillRequest;
use serde_json::{Map, Value, json};

use super::arguments::RegisterSkillArgs;
use super::context::CallContext;
use super::object;
use crate::error::ToolError;
use crate::paths::{self, PathError, ToolPath};

pub(super) async fn run(
    context: &CallContext<'_>,
    args: RegisterSkillArgs,
) -> Result<Map<String, Value>, ToolError> {
    let path = directory(&args.path)?;
    let request = CreateSkillRequest {
        // Default: the name in `SKILL.md`, or that of the directory.
        name: given(args.name).unwrap_or_default(),
        display_name: given(args.display_name),
        description: given(args.description),
        instructions: given(args.instructions),
    };
    context.open().await?;
    let skill = match context
        .boxes
        .register_skill(&context.session, &path, request)
        .await
    {
        Ok(skill) => skill,
        Err(error) => return Err(context.agent.refusal(error).await),
    };
    Ok(object([
        ("ok", true.into()),
        ("registered", true.into()),
        ("skill_name", skill.skill.name.clone().into()),
        ("source_path", path.into()),
        ("skill", json!(skill)),
    ]))
}

/// The error texts differ from those of the file tools.
fn directory(path: &str) -> Result<String, ToolError> {
    match paths::resolve(path) {
        Ok(ToolPath::Workspace { path }) => Ok(path),
        // It is a skill already.
        Ok(ToolPath::Skill { .. } | ToolPath::KeptOutput { .. }) | Err(PathError::NoSkillName) => {
            Err(ToolError::rule("path must not be under /workspace/.skills"))
        }
        Err(PathError::Outside) => Err(ToolError::rule("path must be under /workspace")),
        Err(PathError::Escapes) => Err(ToolError::rule("path escapes the workspace boundary")),
        Err(other) => Err(other.into()),
    }
}

fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_the_workspace_become_skills() {
        let check = |path: &str, expected: Result<&str, &str>| {
            let got = directory(path).map_err(|error| error.message);
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{path}");
        };
        check("/workspace/csv/", Ok("/workspace/csv"));
        check("/workspace", Ok("/workspace"));
        check("/etc", Err("path must be under /workspace"));
        check("/workspaces/x", Err("path must be under /workspace"));
        check(
            "/workspace/../etc",
            Err("path escapes the workspace boundary"),
        );
        check(
            "/workspace/.skills/csv",
            Err("path must not be under /workspace/.skills"),
        );
    }
}
