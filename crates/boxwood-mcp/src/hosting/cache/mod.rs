//! Finished installs, shared by all servers with the same key.
//!
//! An install is created under a temporary name and renamed to its key when it is complete, so that a box never
//! sees a partial one. A repeated install gets a number appended to the key, and servers that run from the older
//! one keep it.

pub(crate) mod install;
mod install_error;
pub(crate) mod usage;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::boxes::keyed_locks::{Held, Locks};

const PARTIAL_PREFIX: &str = ".new-";

#[derive(Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
    /// One file per install. It contains the size, and its modification time is the last use.
    sizes: PathBuf,
    locks: Locks,
    /// Partial directories that this daemon is creating or removing. All others are leftovers.
    in_progress: Mutex<HashSet<PathBuf>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CachedInstall {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) last_use: SystemTime,
}

impl Cache {
    pub(crate) fn open(directory: &Path, sizes: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        fs::create_dir_all(sizes)?;
        Ok(Self {
            directory: directory.to_owned(),
            sizes: sizes.to_owned(),
            locks: Locks::default(),
            in_progress: Mutex::default(),
        })
    }

    /// Held while an install of the key is created or removed.
    pub(crate) async fn hold(&self, key: &str) -> Held {
        self.locks.hold(key).await
    }

    /// Holds the key of the install `name`. `None` while it is held elsewhere.
    pub(crate) fn try_hold(&self, name: &str) -> Option<Held> {
        self.locks.try_hold(key_of(name))
    }

    /// The name of the newest complete install of a key: the key, or the key and a number.
    pub(crate) fn find(&self, key: &str) -> io::Result<Option<String>> {
        let mut names = self.names()?;
        names.retain(|name| key_of(name) == key);
        Ok(names.into_iter().max_by_key(|name| number_of(name)))
    }

    /// Creates an empty directory to install into.
    pub(crate) fn create_directory(&self) -> io::Result<PathBuf> {
        // Locked before the directory exists, so that it is never mistaken for a leftover.
        let mut in_progress = self.in_progress();
        let directory = tempfile::Builder::new()
            .prefix(PARTIAL_PREFIX)
            .tempdir_in(&self.directory)?
            .keep();
        in_progress.insert(directory.clone());
        Ok(directory)
    }

    pub(crate) fn discard(&self, directory: &Path) -> io::Result<()> {
        let removed = boxwood_sys::tree::remove(directory);
        // A failed removal is repeated by the cleanup.
        self.in_progress().remove(directory);
        removed
    }

    /// Leaves the directory to the cleanup, because its box still exists and may be writing.
    pub(crate) fn leave(&self, directory: &Path) {
        self.in_progress().remove(directory);
    }

    /// Turns a complete install into a cache entry and returns its name. The caller holds the key.
    pub(crate) fn keep(&self, directory: &Path, key: &str, bytes: u64) -> io::Result<String> {
        // After a power failure, an entry must not contain empty files.
        rustix::fs::syncfs(fs::File::open(directory)?)?;
        let newest = self.find(key)?.map(|name| number_of(&name));
        let name = match newest {
            None => key.to_owned(),
            Some(number) => format!("{key}.{}", number.saturating_add(1)),
        };
        fs::rename(directory, self.path(&name))?;
        self.in_progress().remove(directory);
        fs::File::open(&self.directory)?.sync_all()?;
        fs::write(self.sizes.join(&name), bytes.to_string())?;
        Ok(name)
    }

    /// Records a use.
    pub(crate) fn touch(&self, name: &str) -> io::Result<()> {
        let opened = fs::File::options().write(true).open(self.sizes.join(name));
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.read_install(name).map(drop)
            }
            opened => opened?.set_modified(SystemTime::now()),
        }
    }

    /// The caller holds the key.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        // Renamed first, so that a partially removed install does not look complete.
        let trash = self.create_directory()?;
        let renamed = fs::rename(self.path(name), trash.join("old"));
        let removed = self.discard(&trash);
        match renamed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => removed?,
        }
        match fs::remove_file(self.sizes.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Partial directories of an earlier daemon, and those that could not be removed before.
    pub(crate) fn partial(&self) -> io::Result<Vec<PathBuf>> {
        // Listed under the lock, so that a directory just created is not mistaken for a leftover.
        let in_progress = self.in_progress();
        let mut names = self.entries()?;
        names.retain(|name| name.starts_with(PARTIAL_PREFIX));
        let mut leftovers: Vec<_> = names.iter().map(|name| self.path(name)).collect();
        leftovers.retain(|path| !in_progress.contains(path));
        Ok(leftovers)
    }

    /// All entries, least recently used first.
    pub(crate) fn installs(&self) -> io::Result<Vec<CachedInstall>> {
        let mut installs = self
            .names()?
            .iter()
            .map(|name| self.read_install(name))
            .collect::<io::Result<Vec<_>>>()?;
        installs.sort_by_key(|install| install.last_use);
        Ok(installs)
    }

    fn read_install(&self, name: &str) -> io::Result<CachedInstall> {
        let path = self.sizes.join(name);
        let recorded = fs::read_to_string(&path).ok();
        let bytes = if let Some(bytes) = recorded.and_then(|text| text.parse().ok()) {
            bytes
        } else {
            let bytes = boxwood_sys::tree::measure(&self.path(name), u64::MAX)?;
            fs::write(&path, bytes.to_string())?;
            bytes
        };
        Ok(CachedInstall {
            name: name.to_owned(),
            bytes,
            last_use: fs::metadata(&path)?.modified()?,
        })
    }

    /// Names of complete installs.
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = self.entries()?;
        names.retain(|name| !name.starts_with('.'));
        Ok(names)
    }

    fn entries(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn in_progress(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.in_progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Continues after a failed removal.
pub(crate) fn remove_partial(leftovers: &[PathBuf]) {
    for path in leftovers {
        if let Err(error) = boxwood_sys::tree::remove(path) {
            tracing::warn!(path = %path.display(), %error, "failed to remove a partial install");
        }
    }
}

fn key_of(name: &str) -> &str {
    name.split_once('.').map_or(name, |(key, _)| key)
}

/// The number after the key.
fn number_of(name: &str) -> u64 {
    name.split_once('.')
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
