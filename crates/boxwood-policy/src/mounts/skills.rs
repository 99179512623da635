//! Mounts skills by name, read-only, below the workspace.
//!
//! Mount roots and the blocked list do not apply: callers name skills, and the store opens the
//! directories.

use boxwood_api::{MountMode, SpecRequest};

use crate::admit::same_path;
use crate::mounts::targets::Targets;
use crate::{AdmittedMount, Denial, Facts, Joining};

/// A hidden directory, so that listings of the workspace show only the caller's files.
const DIRECTORY: &str = ".skills";

pub(crate) fn admit(
    request: &SpecRequest,
    workspace: &str,
    facts: &Facts,
    targets: &mut Targets,
    admitted: &mut Vec<AdmittedMount>,
) -> Result<(), Denial> {
    let mut opened = facts.skills.iter();
    for (index, name) in request.skills.iter().enumerate() {
        let field = format!("skills[{index}]");
        let source = opened
            .next()
            .filter(|source| source.is_dir)
            .ok_or_else(|| Denial::SkillNotFound { name: name.clone() })?;
        same_path(&field, name, source)?;
        let below = format!("{DIRECTORY}/{name}");
        let mount_path = targets.take(&field, &format!("{workspace}/{below}"))?;
        admitted.push(AdmittedMount {
            joining: Joining::WhileRunning,
            below_workspace: Some(below),
            ..AdmittedMount::new(source.clone(), mount_path, MountMode::Ro)
        });
    }
    Ok(())
}
