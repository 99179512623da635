//! Skills of the store, mounted by name.
//!
//! Comes in: names, and the directories that the store opened for them. Goes out: read-only mounts
//! below the workspace. Never here: the mount roots and the blocked list. Those judge paths that a
//! caller wrote down; a skill is a name, and the store vouches for the directory behind it.

use boxwood_api::{MountMode, SpecRequest};

use crate::admit::same_path;
use crate::targets::Targets;
use crate::{AdmittedMount, Denial, Facts, Joining};

/// Below the workspace; a hidden directory, so that a listing shows the caller's own files.
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
            source: source.clone(),
            mount_path,
            mode: MountMode::Ro,
            joining: Joining::Living,
            below_workspace: Some(below),
        });
    }
    Ok(())
}
