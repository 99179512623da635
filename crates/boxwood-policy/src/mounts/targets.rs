//! Checks mount targets inside a box: they must not collide with system directories or with each
//! other.

use std::path::Path;

use crate::Denial;
use crate::mounts::path::{is_within, normalize_text};

/// System directories of the box: no mounts on or below them. `/var/run` and `/var/lock` are
/// symlinks to `/run` on most systems.
const SYSTEM_TREES: [&str; 15] = [
    // Start directory of init in a container.
    "/.boxwood",
    "/proc",
    "/dev",
    "/sys",
    "/etc",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/run",
    "/var/run",
    "/var/lock",
];

/// Directories that the box needs. Mounting below them is allowed.
const SYSTEM_DIRECTORIES: [&str; 7] = [
    "/",
    "/tmp",
    "/home",
    "/home/box",
    "/var",
    "/var/tmp",
    "/opt",
];

/// The normalised mount path, if it is allowed.
pub(crate) fn target(field: &str, mount_path: &str) -> Result<String, Denial> {
    let refuse = |target: &str| Denial::SystemTarget {
        field: field.to_owned(),
        target: target.to_owned(),
    };
    // Relative paths have been denied before.
    let target = normalize_text(mount_path).ok_or_else(|| refuse(mount_path))?;
    let path = Path::new(&target);
    let is_system = SYSTEM_DIRECTORIES.contains(&target.as_str())
        || SYSTEM_TREES
            .iter()
            .any(|tree| is_within(path, Path::new(tree)));
    if is_system {
        return Err(refuse(&target));
    }
    Ok(target)
}

/// The targets in use, starting with the workspace.
pub(crate) struct Targets {
    workspace: String,
    taken: Vec<String>,
}

impl Targets {
    pub(crate) fn new(workspace: &str) -> Self {
        Self {
            workspace: workspace.to_owned(),
            taken: vec![workspace.to_owned()],
        }
    }

    pub(crate) fn take(&mut self, field: &str, mount_path: &str) -> Result<String, Denial> {
        let target = target(field, mount_path)?;
        if self.taken.contains(&target) {
            return Err(Denial::SameTarget {
                field: field.to_owned(),
                target,
            });
        }
        if is_within(Path::new(&self.workspace), Path::new(&target)) {
            return Err(Denial::HidesWorkspace {
                field: field.to_owned(),
                target,
                workspace: self.workspace.clone(),
            });
        }
        self.taken.push(target.clone());
        Ok(target)
    }
}
