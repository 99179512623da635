//! Finished installs, shared by all servers that need the same.
//!
//! Comes in: directories that an installer has filled. Goes out: whole installs, how large they are and
//! when each was last wanted. Never here: who uses them. An install is made under a name of its own and
//! gets its key's name once it is whole, so a failed one leaves nothing and a running box never sees half
//! of one. One that is made again gets a number behind its key: who runs from the older one keeps it.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::locks::{Held, Locks};
use super::measure::measure;
use super::remove_tree::remove_tree;

const UNFINISHED: &str = ".new-";

#[derive(Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
    /// A file for each install: in it stands its size, and its time is that of the last use.
    sizes: PathBuf,
    locks: Locks,
    /// What is being made or removed now. Everything else that is unfinished is nobody's.
    under_way: Mutex<HashSet<PathBuf>>,
}

/// A whole install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Its key, or its key and a number.
    pub(crate) name: String,
    pub(crate) place: PathBuf,
}

/// What an install costs, and since when nobody has asked for it.
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

    /// Held by whoever installs or removes what a key stands for.
    pub(crate) async fn hold(&self, key: &str) -> Held {
        self.locks.hold(key).await
    }

    /// By the name of an install. `None` while somebody works on it or makes it again.
    pub(crate) fn try_hold(&self, name: &str) -> Option<Held> {
        self.locks.try_hold(key_of(name))
    }

    /// The newest whole install of a key.
    pub(crate) fn find(&self, key: &str) -> io::Result<Option<Kept>> {
        let newest = self
            .names()?
            .into_iter()
            .filter(|name| key_of(name) == key)
            .max_by_key(|name| number_of(name));
        Ok(newest.map(|name| Kept {
            place: self.place(&name),
            name,
        }))
    }

    /// An empty directory to install into. Afterwards it is kept or discarded.
    pub(crate) fn fresh(&self) -> io::Result<PathBuf> {
        // Held before it is made, so that it is never taken for something that was left.
        let mut under_way = self.under_way();
        let fresh = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempdir_in(&self.directory)?
            .keep();
        under_way.insert(fresh.clone());
        Ok(fresh)
    }

    pub(crate) fn discard(&self, fresh: &Path) -> io::Result<()> {
        let removed = remove_tree(fresh);
        // What could not be removed is tried again by whoever clears up.
        self.under_way().remove(fresh);
        removed
    }

    /// For whoever clears up: its box still stands, and may be writing.
    pub(crate) fn leave(&self, fresh: &Path) {
        self.under_way().remove(fresh);
    }

    /// It is whole. Whoever calls this holds the key.
    pub(crate) fn keep(&self, fresh: &Path, key: &str, bytes: u64) -> io::Result<Kept> {
        // After a power cut there must be no whole install with empty files in it.
        rustix::fs::syncfs(fs::File::open(fresh)?)?;
        let newest = self.find(key)?.map(|kept| number_of(&kept.name));
        let name = match newest {
            None => key.to_owned(),
            Some(number) => format!("{key}.{}", number.saturating_add(1)),
        };
        let place = self.place(&name);
        fs::rename(fresh, &place)?;
        self.under_way().remove(fresh);
        fs::File::open(&self.directory)?.sync_all()?;
        fs::write(self.sizes.join(&name), bytes.to_string())?;
        Ok(Kept { name, place })
    }

    /// Somebody wants it now.
    pub(crate) fn touch(&self, name: &str) -> io::Result<()> {
        let noted = fs::File::options().write(true).open(self.sizes.join(name));
        match noted {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.cost(name).map(drop),
            noted => noted?.set_modified(SystemTime::now()),
        }
    }

    /// Whoever calls this holds the key.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        // A new name first: half of an install must not look like a whole one.
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

    /// What nobody finishes any more: an earlier daemon's, or what could not be removed before.
    pub(crate) fn unfinished(&self) -> io::Result<Vec<PathBuf>> {
        // Looked for under the lock, or one that was just made would seem left over.
        let under_way = self.under_way();
        let mut names = self.entries()?;
        names.retain(|name| name.starts_with(UNFINISHED));
        let mut left_over: Vec<_> = names.iter().map(|name| self.place(name)).collect();
        left_over.retain(|path| !under_way.contains(path));
        Ok(left_over)
    }

    /// Every install, the one that was wanted longest ago first.
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
            let bytes = measure(&self.place(name), u64::MAX)?;
            fs::write(&path, bytes.to_string())?;
            bytes
        };
        Ok(Cost {
            name: name.to_owned(),
            bytes,
            last_use: fs::metadata(&path)?.modified()?,
        })
    }

    /// Of whole installs.
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

    fn place(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn under_way(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that stays does not save the others.
pub(crate) fn clear_unfinished(left_over: &[PathBuf]) {
    for path in left_over {
        if let Err(error) = remove_tree(path) {
            tracing::warn!(path = %path.display(), %error, "an unfinished install could not be removed");
        }
    }
}

fn key_of(name: &str) -> &str {
    name.split_once('.').map_or(name, |(key, _)| key)
}

/// How often it was made before.
fn number_of(name: &str) -> u64 {
    name.split_once('.')
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
