//! The directory of one run of engines.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::leftovers;

/// Short, because a socket's path has 107 bytes at most; on a disk, because images go there.
const PARENT: &str = "/var/tmp";
const PREFIX: &str = "boxwood-engines-";
/// The libpod groups are made by every Podman of root, so they are removed only when empty.
const PODMAN_GROUPS: [&str; 2] = ["libpod_parent/conmon", "libpod_parent"];

pub(crate) struct RunDirectory {
    path: PathBuf,
    name: String,
    /// Held until this process ends. A directory without the lock is a leftover.
    _lock: File,
}

impl RunDirectory {
    pub(crate) fn create() -> Result<Self> {
        remove_abandoned()?;
        let name = format!("{PREFIX}{}", std::process::id());
        let path = Path::new(PARENT).join(&name);
        // Under another name until it is locked, so that it is not taken for a leftover.
        let unlocked = Path::new(PARENT).join(format!(".{name}"));
        fs::create_dir(&unlocked)
            .with_context(|| format!("`{}` could not be created", unlocked.display()))?;
        // The user of the rootless engine needs access to its directory inside.
        fs::set_permissions(&unlocked, fs::Permissions::from_mode(0o755))?;
        let lock = File::create(unlocked.join("lock"))?;
        lock.lock()?;
        fs::rename(&unlocked, &path)
            .with_context(|| format!("`{}` could not be created", path.display()))?;
        Ok(Self {
            path,
            name,
            _lock: lock,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A new directory in it.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// The parent of the cgroups of this run, for engines that have a setting for it.
    pub(crate) fn cgroup(&self) -> &str {
        &self.name
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if let Err(error) = clear(&self.path, &self.name) {
            eprintln!("warning: an engine left something behind: {error:#}");
        }
        if others().is_ok_and(|others| others.is_empty()) {
            for group in PODMAN_GROUPS {
                leftovers::remove_empty_cgroup(group);
            }
        }
    }
}

fn clear(path: &Path, cgroup: &str) -> Result<()> {
    leftovers::kill_processes(path, cgroup)?;
    leftovers::unmount(path)?;
    leftovers::remove_cgroup(cgroup)?;
    leftovers::remove_dead_sockets();
    fs::remove_dir_all(path).with_context(|| format!("`{}` could not be removed", path.display()))
}

/// A run that was killed could not clean up; the next one does.
fn remove_abandoned() -> Result<()> {
    for path in others()? {
        let Ok(lock) = File::open(path.join("lock")) else {
            continue;
        };
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        eprintln!(
            "removing what an earlier, killed run left in {}",
            path.display()
        );
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        clear(&path, &name)?;
    }
    Ok(())
}

/// The directories of all runs, without directories that another user has created.
fn others() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(PARENT)? {
        let entry = entry?;
        let is_engine_directory = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // All users may create directories there; root removes only its own.
        if is_engine_directory
            && let Ok(metadata) = fs::symlink_metadata(entry.path())
            && metadata.is_dir()
            && metadata.uid() == 0
        {
            found.push(entry.path());
        }
    }
    Ok(found)
}
