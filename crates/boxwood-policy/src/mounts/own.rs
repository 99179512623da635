//! Directories that Boxwood created for a hosted server.
//!
//! Mount roots and the blocked list do not apply, because no caller chose these paths. They must be
//! below the hosting directory.

use boxwood_api::MountMode;

use crate::mounts::path::{is_within, normalize};
use crate::mounts::targets::{Targets, target};
use crate::{AdmittedMount, Denial, Facts, Origin, OwnDirectory, PolicyRules};

const FIELD: &str = "own";

/// Denies directories for other origins, and directories outside the hosting directory.
pub(crate) fn check(origin: Origin, facts: &Facts, rules: &PolicyRules) -> Result<(), Denial> {
    let hosting_dir = rules.hosting_dir.as_deref().and_then(normalize);
    let is_in_hosting_dir = |own: &OwnDirectory| {
        let (Some(hosting_dir), Some(real)) = (&hosting_dir, normalize(&own.source.real_path))
        else {
            return false;
        };
        own.source.is_dir && real != *hosting_dir && is_within(&real, hosting_dir)
    };
    if facts.own.is_empty()
        || (origin == Origin::Hosting && facts.own.iter().all(is_in_hosting_dir))
    {
        return Ok(());
    }
    Err(Denial::ForeignFacts {
        field: FIELD.to_owned(),
    })
}

/// The directory that is mounted as the workspace.
pub(crate) fn workspace(facts: &Facts, mount_path: &str) -> Option<AdmittedMount> {
    let own = facts.own.iter().find(|own| is_at(own, mount_path))?;
    (own.mode != MountMode::None)
        .then(|| AdmittedMount::new(own.source.clone(), mount_path.to_owned(), own.mode))
}

/// All other directories.
pub(crate) fn admit(
    facts: &Facts,
    workspace: &str,
    targets: &mut Targets,
    admitted: &mut Vec<AdmittedMount>,
) -> Result<(), Denial> {
    let others = facts.own.iter().filter(|own| !is_at(own, workspace));
    for own in others.filter(|own| own.mode != MountMode::None) {
        let mount_path = targets.take(FIELD, &own.mount_path)?;
        admitted.push(AdmittedMount::new(own.source.clone(), mount_path, own.mode));
    }
    Ok(())
}

fn is_at(own: &OwnDirectory, mount_path: &str) -> bool {
    target(FIELD, &own.mount_path).is_ok_and(|target| target == mount_path)
}
