//! Where in a box something may be mounted.
//!
//! Comes in: mount paths as asked. Goes out: normal ones that collide neither with the box's own
//! system nor with each other. Never here: the host's side of a mount.

use std::path::Path;

use crate::Denial;
use crate::path::{is_within, normalize_text};

/// The box's own system: nothing is mounted on these or below them. `/var/run` and `/var/lock` are
/// symlinks to `/run` on most systems.
const SYSTEM_TREES: [&str; 15] = [
    // Where init begins in a container.
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

/// Directories the box needs for itself. Mounting below them is fine.
const SYSTEM_DIRECTORIES: [&str; 7] = [
    "/",
    "/tmp",
    "/home",
    "/home/box",
    "/var",
    "/var/tmp",
    "/opt",
];

/// The normal form of a mount path that the box can have.
pub(crate) fn target(field: &str, asked: &str) -> Result<String, Denial> {
    let refuse = |target: &str| Denial::SystemTarget {
        field: field.to_owned(),
        target: target.to_owned(),
    };
    // Relative paths were refused before; should one come this far, it is refused here as well.
    let target = normalize_text(asked).ok_or_else(|| refuse(asked))?;
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

/// The targets taken so far, the workspace first.
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

    pub(crate) fn take(&mut self, field: &str, asked: &str) -> Result<String, Denial> {
        let target = target(field, asked)?;
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
