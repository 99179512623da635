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

const UNFINISHED: &str = ".new-";

#[derive(Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
    /// One file per install. It contains the size, and its modification time is the last use.
    sizes: PathBuf,
    locks: Locks,
    /// Directories being created or removed. Every other partial directory is a leftover.
    under_way: Mutex<HashSet<PathBuf>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
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
            under_way: Mutex::default(),
        })
    }

    /// Held while an install of the key is created or removed.
    pub(crate) async fn hold(&self, key: &str) -> Held {
        self.locks.hold(key).await
    }

    /// Takes the name of an install. `None` while its key is held.
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
    pub(crate) fn fresh(&self) -> io::Result<PathBuf> {
        // Locked before the directory exists, so that it is never mistaken for a leftover.
        let mut under_way = self.under_way();
        let fresh = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempdir_in(&self.directory)?
            .keep();
        under_way.insert(fresh.clone());
        Ok(fresh)
    }

    pub(crate) fn discard(&self, fresh: &Path) -> io::Result<()> {
        let removed = boxwood_sys::tree::remove(fresh);
        // A failed removal is repeated by the cleanup.
        self.under_way().remove(fresh);
        removed
    }

    /// Leaves the directory to the cleanup, because its box still exists and may be writing.
    pub(crate) fn leave(&self, fresh: &Path) {
        self.under_way().remove(fresh);
    }

    /// Turns a complete install into a cache entry and returns its name. The caller holds the key.
    pub(crate) fn keep(&self, fresh: &Path, key: &str, bytes: u64) -> io::Result<String> {
        // After a power failure, an entry must not contain empty files.
        rustix::fs::syncfs(fs::File::open(fresh)?)?;
        let newest = self.find(key)?.map(|kept| number_of(&kept));
        let name = match newest {
            None => key.to_owned(),
            Some(number) => format!("{key}.{}", number.saturating_add(1)),
        };
        fs::rename(fresh, self.place(&name))?;
        self.under_way().remove(fresh);
        fs::File::open(&self.directory)?.sync_all()?;
        fs::write(self.sizes.join(&name), bytes.to_string())?;
        Ok(name)
    }

    /// Records a use.
    pub(crate) fn touch(&self, name: &str) -> io::Result<()> {
        let noted = fs::File::options().write(true).open(self.sizes.join(name));
        match noted {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.cost(name).map(drop),
            noted => noted?.set_modified(SystemTime::now()),
        }
    }

    /// The caller holds the key.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        // Renamed first, so that a partially removed install does not look complete.
        let doomed = self.fresh()?;
        let renamed = fs::rename(self.place(name), doomed.join("old"));
        let removed = self.discard(&doomed);
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
        let under_way = self.under_way();
        let mut names = self.entries()?;
        names.retain(|name| name.starts_with(UNFINISHED));
        let mut leftovers: Vec<_> = names.iter().map(|name| self.place(name)).collect();
        leftovers.retain(|path| !under_way.contains(path));
        Ok(leftovers)
    }

    /// All entries, least recently used first.
    pub(crate) fn costs(&self) -> io::Result<Vec<Cost>> {
        let mut costs = self
            .names()?
            .iter()
            .map(|name| self.cost(name))
            .collect::<io::Result<Vec<_>>>()?;
        costs.sort_by_key(|cost| cost.last_use);
        Ok(costs)
    }

    fn cost(&self, name: &str) -> io::Result<Cost> {
        let path = self.sizes.join(name);
        let noted = fs::read_to_string(&path).ok();
        let bytes = if let Some(bytes) = noted.and_then(|text| text.parse().ok()) {
            bytes
        } else {
            let bytes = boxwood_sys::tree::measure(&self.place(name), u64::MAX)?;
            fs::write(&path, bytes.to_string())?;
            bytes
        };
        Ok(Cost {
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

    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn under_way(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Continues after a failed removal.
pub(crate) fn clear_unfinished(leftovers: &[PathBuf]) {
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
