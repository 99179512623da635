//! Checks the working directory and the skill of a command.

use crate::error::ToolError;
use crate::paths::{self, PathError, SkillAccess, ToolPath};
use crate::tools::context::CallContext;

/// Where a command runs.
pub(super) struct Workdir {
    pub(super) path: String,
    /// The skill whose package contains it.
    pub(super) skill: Option<String>,
}

/// Anywhere in the box; in a skill's package only where that skill is active.
pub(super) fn workdir(context: &CallContext<'_>, path: &str) -> Result<Workdir, ToolError> {
    // Double slashes must not hide a path.
    let path = &squeezed(path);
    match paths::resolve(path) {
        Ok(ToolPath::Skill { name, path, .. }) => {
            context.check_skill(&name, SkillAccess::Use)?;
            Ok(Workdir {
                path,
                skill: Some(name),
            })
        }
        Ok(ToolPath::Workspace { path } | ToolPath::KeptOutput { path }) => {
            Ok(Workdir { path, skill: None })
        }
        // `..` could lead into a package.
        Err(PathError::Outside) if !path.split('/').any(|name| name == "..") => Ok(Workdir {
            path: path.to_owned(),
            skill: None,
        }),
        Err(PathError::Outside) => Err(PathError::Escapes.into()),
        Err(error) => Err(error.into()),
    }
}

/// With single slashes.
fn squeezed(path: &str) -> String {
    let mut last = '\0';
    let follows = |letter: &char| std::mem::replace(&mut last, *letter) != '/' || *letter != '/';
    path.chars().filter(follows).collect()
}

/// The skill whose package the command uses.
pub(super) fn target(
    context: &CallContext<'_>,
    workdir: Option<String>,
    command: &str,
) -> Result<Option<String>, ToolError> {
    let mentioned = paths::mentioned_skills(command);
    if let Some(name) = workdir {
        if mentioned.iter().any(|other| *other != name) {
            return Err(ToolError::rule(
                "exec can reference files from only one activated skill package per call.",
            ));
        }
        return Ok(Some(name));
    }
    if mentioned.len() > 1 {
        return Err(ToolError::rule(
            "exec can target at most one activated skill package per call.",
        ));
    }
    let Some(name) = mentioned.into_iter().next() else {
        return Ok(None);
    };
    if !context.skills.activated.contains(&name) {
        return Err(ToolError::rule(format!(
            "Skill \"{name}\" must be activated before exec can run in its package."
        ))
        .with_hint("call activate with this skill's name first"));
    }
    Ok(Some(name))
}
