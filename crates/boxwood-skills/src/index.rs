//! Caches the skills of the store and detects changes.
//!
//! Each call compares the timestamps of every known directory and entry file (one `stat` each) and reads again only
//! what changed. Timestamps do not show a change within their resolution, so entries younger than [`SETTLED`] are
//! always read again.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::Stat;

use crate::beneath::{self, Links};
use crate::discovery::{self, STORE_DEPTH, Seen};
use crate::store::below;
use crate::{Limits, Problem, Skill, Warning, loading};

/// Longer than the coarsest timestamp resolution of any file system (2 seconds on FAT).
const SETTLED: Duration = Duration::from_secs(3);

/// Text limit of all skills below one top-level directory, as a multiple of the limit for one skill. The text is kept
/// in memory, and a thousand links to one file are easy to create.
const TEXTS_PER_DIRECTORY: u64 = 16;

/// Minimum that each skill counts, for its other fields.
const LEAST_TEXT: u64 = 32 << 10;

/// One package and its path.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) skill: Arc<Skill>,
    /// Relative to the store's root; empty for the root itself.
    pub(crate) path: PathBuf,
}

/// The store's contents, newest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) skills: Vec<Located>,
    pub(crate) problems: Vec<Problem>,
}

impl Contents {
    /// If two packages have the same name, the one whose directory has that name wins. Otherwise a
    /// box with one writable skill could replace any other skill.
    pub(crate) fn find(&self, name: &str) -> Option<&Located> {
        let mut named = self.skills.iter().filter(|item| item.skill.name == name);
        let first = named.clone().next()?;
        let own = named.find(|item| item.path == Path::new(name));
        Some(own.unwrap_or(first))
    }

    pub(crate) fn at(&self, path: &Path) -> Option<&Located> {
        self.skills.iter().find(|item| item.path == path)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    directories: HashMap<PathBuf, Directory>,
}

#[derive(Debug)]
struct Directory {
    stamp: Stamp,
    seen: Seen,
    unusable_entry: Option<&'static str>,
    entry: Option<Entry>,
}

#[derive(Debug)]
struct Entry {
    stamp: Stamp,
    result: Result<Arc<Skill>, String>,
}

/// Metadata that changes with a file or a directory. The ctime cannot be set by programs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
    /// The timestamps were old enough when they were read to detect any later change.
    settled: bool,
}

impl Stamp {
    fn new(stat: &Stat, now: SystemTime) -> Self {
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        let settled = u64::try_from(changed.0).is_ok_and(|seconds| {
            let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
            changed
                .and_then(|changed| changed.checked_add(SETTLED))
                .is_some_and(|believed_from| believed_from < now)
        });
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed,
            settled,
        }
    }

    /// Returns true if what was read under this stamp is still current.
    fn holds(&self, stat: &Stat, now: SystemTime) -> bool {
        self.settled && *self == Self::new(stat, now)
    }
}

impl Index {
    pub(crate) fn clear(&mut self) {
        self.directories.clear();
    }

    /// Updates the index and returns the contents of the store.
    pub(crate) fn contents(
        &mut self,
        root: BorrowedFd<'_>,
        root_path: &Path,
        limits: &Limits,
    ) -> io::Result<Contents> {
        let mut known = std::mem::take(&mut self.directories);
        let mut contents = Contents::default();
        // Depth, and the cost below each top-level directory: one package with many
        // directories must not hide the others.
        let mut queue = VecDeque::from([(PathBuf::new(), 0, 0)]);
        let mut spent = vec![Spent::default()];
        let most_text = limits
            .max_skill_md_bytes
            .saturating_mul(TEXTS_PER_DIRECTORY);
        while let Some((path, depth, account)) = queue.pop_front() {
            let account_spent = &mut spent[account];
            account_spent.directories += 1;
            if depth > 0 && account_spent.directories > limits.max_searched_directories {
                continue;
            }
            if depth > 0 && account_spent.text > most_text {
                if !std::mem::replace(&mut account_spent.is_reported, true) {
                    contents.problems.push(Problem {
                        path: below(root_path, &path),
                        reason: "is left out, as what follows it is: there are too many skills beside it"
                            .to_owned(),
                    });
                }
                continue;
            }
            let old = known.remove(&path);
            let full = below(root_path, &path);
            let directory = match refresh(root, &path, &full, old, limits) {
                Ok(directory) => directory,
                Err(error) if depth == 0 => return Err(error),
                Err(error) => {
                    if !beneath::is_missing(&error) {
                        contents.problems.push(Problem {
                            path: full,
                            reason: format!("cannot be opened: {error}"),
                        });
                    }
                    continue;
                }
            };
            if let Some(name) = directory.unusable_entry {
                contents.problems.push(Problem {
                    path: full.join(name),
                    reason: "is neither a file nor a link inside the package".to_owned(),
                });
            }
            match (&directory.seen, &directory.entry) {
                (Seen::Skill { .. }, Some(entry)) => match &entry.result {
                    Ok(skill) => {
                        let text = &mut spent[account].text;
                        *text = text.saturating_add(weight(skill));
                        contents.skills.push(Located {
                            skill: Arc::clone(skill),
                            path: path.clone(),
                        });
                    }
                    Err(reason) => contents.problems.push(Problem {
                        path: full,
                        reason: reason.clone(),
                    }),
                },
                (Seen::Branch { children, complete }, _) if depth < STORE_DEPTH => {
                    for child in children {
                        let account = if depth == 0 {
                            spent.push(Spent::default());
                            spent.len() - 1
                        } else {
                            account
                        };
                        queue.push_back((path.join(child), depth + 1, account));
                    }
                    if !complete {
                        contents.problems.push(Problem {
                            path: full,
                            reason: "has too many directories to look into".to_owned(),
                        });
                    }
                }
                _ => {}
            }
            self.directories.insert(path, directory);
        }
        // Stable sort: equal times keep the order of discovery.
        contents
            .skills
            .sort_by_key(|item| std::cmp::Reverse(item.skill.updated_at));
        mark_shared_names(&mut contents.skills);
        Ok(contents)
    }
}

/// Cost of the search below one top-level directory.
#[derive(Default)]
struct Spent {
    directories: usize,
    text: u64,
    /// The limit was already reported.
    is_reported: bool,
}

fn weight(skill: &Skill) -> u64 {
    let texts = [
        &skill.name,
        &skill.display_name,
        &skill.description,
        &skill.instructions,
    ];
    let length: usize = texts.into_iter().map(String::len).sum();
    (length as u64).max(LEAST_TEXT)
}

fn refresh(
    root: BorrowedFd<'_>,
    path: &Path,
    full: &Path,
    old: Option<Directory>,
    limits: &Limits,
) -> io::Result<Directory> {
    // Taken before reading, so that a change during the read makes the entry young.
    let now = SystemTime::now();
    let dir = beneath::open_dir(root, path, Links::Never)?;
    let stat = rustix::fs::fstat(&dir)?;
    let mut directory = match old {
        Some(old) if old.stamp.holds(&stat, now) => old,
        old => {
            // Every top-level directory is searched: each may be a skill.
            let max_children = if path.as_os_str().is_empty() {
                usize::MAX
            } else {
                limits.max_searched_directories
            };
            let examined = discovery::examine(dir.as_fd(), max_children)?;
            Directory {
                stamp: Stamp::new(&stat, now),
                seen: examined.seen,
                unusable_entry: examined.unusable_entry,
                entry: old.and_then(|old| old.entry),
            }
        }
    };
    if let Seen::Skill { entry: name } = directory.seen {
        // The timestamps of a link do not change with its target, so the target is always read.
        let stat = beneath::stat_entry(dir.as_fd(), Path::new(name))?;
        let holds = directory.entry.as_ref().is_some_and(|entry| {
            beneath::is_regular(&stat)
                && entry.stamp.holds(&stat, now)
                && entry
                    .result
                    .as_ref()
                    .is_ok_and(|skill| skill.entry_file == name)
        });
        if !holds {
            let loaded = loading::load(dir.as_fd(), name, full, limits);
            directory.entry = Some(match loaded {
                Ok(loaded) => Entry {
                    stamp: Stamp::new(&loaded.stat, now),
                    result: Ok(Arc::new(loaded.skill)),
                },
                Err(error) => Entry {
                    stamp: Stamp::new(&stat, now),
                    result: Err(error.to_string()),
                },
            });
        }
    } else {
        directory.entry = None;
    }
    Ok(directory)
}

fn mark_shared_names(skills: &mut [Located]) {
    let mut owners: HashMap<String, Vec<usize>> = HashMap::new();
    for (position, item) in skills.iter().enumerate() {
        owners
            .entry(item.skill.name.clone())
            .or_default()
            .push(position);
    }
    for positions in owners.into_values().filter(|positions| positions.len() > 1) {
        for &position in &positions {
            let other = if position == positions[0] {
                positions[1]
            } else {
                positions[0]
            };
            let other = skills[other].skill.package_root.clone();
            Arc::make_mut(&mut skills[position].skill)
                .warnings
                .push(Warning::NameShared { other });
        }
    }
}
