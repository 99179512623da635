//! The paths that tools accept: in the workspace, in a skill or among saved outputs.
//!
//! Paths are normalised without access to a file system. The box is the boundary for symbolic links.

use std::collections::BTreeSet;

use boxwood_api::KEPT_OUTPUT;

/// Where the agent's files are, inside every box.
pub const WORKSPACE: &str = "/workspace";

/// Where skills are mounted, below the workspace.
pub const SKILLS: &str = "/workspace/.skills";

/// The kernel's limits.
const MAX_PATH_BYTES: usize = 4_095;
const MAX_NAME_BYTES: usize = 255;

/// What a path refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolPath {
    Workspace {
        path: String,
    },
    /// `tail` is relative to the package, empty for the package itself.
    Skill {
        name: String,
        tail: String,
        path: String,
    },
    /// An output that was too long to show.
    KeptOutput {
        path: String,
    },
}

impl ToolPath {
    /// Absolute, inside the box, without `.`, `..` and double slashes.
    pub fn path(&self) -> &str {
        match self {
            Self::Workspace { path } | Self::Skill { path, .. } | Self::KeptOutput { path } => path,
        }
    }
}

/// The access to a skill's package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkillAccess {
    /// `read`, `glob`, `grep`: the skill must be visible.
    Read,
    /// `write`, `edit`, `exec`: the skill must be activated.
    Use,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("Path must be under /workspace.")]
    Outside,
    #[error("Path escapes the workspace boundary.")]
    Escapes,
    #[error("Path must include a skill name under /workspace/.skills/<skill-name>.")]
    NoSkillName,
    #[error("Path must not contain a NUL character.")]
    Nul,
    #[error(
        "Path must be at most {MAX_PATH_BYTES} bytes, and each name in it at most {MAX_NAME_BYTES}."
    )]
    TooLong,
    #[error(
        "Skill \"{name}\" is not available at this path. Activated skills: {}. Visible skills: {}",
        listed(activated),
        listed(visible)
    )]
    SkillNotAvailable {
        name: String,
        activated: BTreeSet<String>,
        visible: BTreeSet<String>,
    },
}

/// A path in the workspace or in a skill's package.
pub fn resolve(path: &str) -> Result<ToolPath, PathError> {
    let path = bounded(path)?;
    let tail = below(WORKSPACE, path).ok_or(PathError::Outside)?;
    let names = names(tail)?;
    if names.first() != Some(&".skills") {
        return Ok(ToolPath::Workspace {
            path: joined(WORKSPACE, &names),
        });
    }
    let name = names.get(1).ok_or(PathError::NoSkillName)?;
    Ok(ToolPath::Skill {
        name: (*name).to_owned(),
        tail: names[2..].join("/"),
        path: joined(WORKSPACE, &names),
    })
}

/// As [`resolve`], or a saved output.
pub fn resolve_readable(path: &str) -> Result<ToolPath, PathError> {
    let bounded = bounded(path)?;
    let Some(tail) = below(KEPT_OUTPUT, bounded) else {
        return resolve(path);
    };
    Ok(ToolPath::KeptOutput {
        path: joined(KEPT_OUTPUT, &names(tail)?),
    })
}

/// Checks whether the conversation has this access to a skill.
pub fn check_skill(
    name: &str,
    access: SkillAccess,
    activated: &BTreeSet<String>,
    visible: &BTreeSet<String>,
) -> Result<(), PathError> {
    let allowed = activated.contains(name)
        || match access {
            SkillAccess::Read => visible.contains(name),
            SkillAccess::Use => false,
        };
    if allowed {
        return Ok(());
    }
    Err(PathError::SkillNotAvailable {
        name: name.to_owned(),
        activated: activated.clone(),
        visible: visible.clone(),
    })
}

/// The skills whose packages a command names by their mount.
pub fn mentioned_skills(command: &str) -> BTreeSet<String> {
    let named = |character: &char| character.is_alphanumeric() || matches!(character, '_' | '-');
    command
        .split("/workspace/.skills/")
        .skip(1)
        .map(|command_tail| command_tail.chars().take_while(named).collect::<String>())
        .filter(|name| !name.is_empty())
        .collect()
}

fn bounded(path: &str) -> Result<&str, PathError> {
    if path.contains('\0') {
        return Err(PathError::Nul);
    }
    if path.len() > MAX_PATH_BYTES || path.split('/').any(|name| name.len() > MAX_NAME_BYTES) {
        return Err(PathError::TooLong);
    }
    Ok(path)
}

/// The path below a directory; `/workspaces` is not below `/workspace`.
fn below<'a>(directory: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(directory)
        .filter(|tail| tail.is_empty() || tail.starts_with('/'))
}

/// The components of a path, with `..` resolved. A path that leaves the directory is refused even if it returns.
fn names(tail: &str) -> Result<Vec<&str>, PathError> {
    let mut names = Vec::new();
    for name in tail.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop().ok_or(PathError::Escapes)?;
            }
            name => names.push(name),
        }
    }
    Ok(names)
}

fn joined(directory: &str, names: &[&str]) -> String {
    let mut path = directory.to_owned();
    for name in names {
        path.push('/');
        path.push_str(name);
    }
    path
}

pub(crate) fn listed(names: &BTreeSet<String>) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}
