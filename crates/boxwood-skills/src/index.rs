//! Caches the skills of the store and detects changes.
//!
//! Each call lists the directories and compares the timestamps of every known entry file. Only changed files are read
//! again. Timestamps do not show a change within their resolution, so files younger than [`SETTLED`] are always read.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::Stat;

use crate::beneath::{self, Links};
use crate::loading::discovery::{self, STORE_DEPTH, Seen};
use crate::loading::rules;
use crate::store::below;
use crate::{Limits, Problem, Skill, SkillError, loading};

/// Longer than the coarsest timestamp resolution of any file system (2 seconds on FAT).
const SETTLED: Duration = Duration::from_secs(3);

/// Text limit of all skills below one top-level directory, as a multiple of the limit for one skill. The text is kept
/// in memory, and a thousand links to one file are easy to create.
const TEXTS_PER_DIRECTORY: u64 = 16;

/// Minimum that each skill counts, for its other fields.
const MIN_TEXT: u64 = 32 << 10;

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

    fn problem(&mut self, path: PathBuf, reason: impl Into<String>) {
        let reason = reason.into();
        self.problems.push(Problem { path, reason });
    }

    pub(crate) fn at(&self, path: &Path) -> Option<&Located> {
        self.skills.iter().find(|item| item.path == path)
    }
}

type CachedSkill = (Option<Stamp>, Arc<Skill>);

#[derive(Debug, Default)]
pub(crate) struct Index {
    /// By path, with the metadata of the entry file when it was read.
    loaded: HashMap<PathBuf, CachedSkill>,
}

/// Metadata that changes with a file. The ctime cannot be set by programs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Stamp {
    /// `None` if the timestamps are too young to detect every later change.
    fn settled(stat: &Stat, now: SystemTime) -> Option<Self> {
        let changed = Duration::from_secs(u64::try_from(stat.st_ctime).ok()?);
        let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        (changed.checked_add(SETTLED)? < now).then_some(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        })
    }
}

impl Index {
    pub(crate) fn clear(&mut self) {
        self.loaded.clear();
    }

    /// Updates the index and returns the contents of the store.
    pub(crate) fn contents(
        &mut self,
        root: BorrowedFd<'_>,
        root_path: &Path,
        limits: &Limits,
    ) -> io::Result<Contents> {
        let mut known = std::mem::take(&mut self.loaded);
        let mut contents = Contents::default();
        // Path, depth and index of the search cost, which is limited below each top-level directory: one package with
        // many directories must not hide the others.
        let mut queue = VecDeque::from([(PathBuf::new(), 0, 0)]);
        let mut costs = vec![SearchCost::default()];
        let max_text = limits
            .max_skill_md_bytes
            .saturating_mul(TEXTS_PER_DIRECTORY);
        while let Some((path, depth, cost_index)) = queue.pop_front() {
            let cost = &mut costs[cost_index];
            cost.directories += 1;
            let exceeded = if cost.directories > limits.max_searched_directories {
                Some("more directories than `max_searched_directories`")
            } else if cost.text > max_text {
                Some("more text in skills than the limit")
            } else {
                None
            };
            if let Some(exceeded) = exceeded.filter(|_| depth > 0) {
                if !std::mem::replace(&mut cost.is_reported, true) {
                    let reason = format!(
                        "not searched, like the directories after it: its top-level directory has {exceeded}"
                    );
                    contents.problem(below(root_path, &path), reason);
                }
                continue;
            }
            let full = below(root_path, &path);
            // Every top-level directory is searched: each may be a skill.
            let max_children = match depth {
                0 => usize::MAX,
                _ => limits.max_searched_directories,
            };
            let examined = beneath::open_dir(root, &path, Links::Never)
                .and_then(|dir| Ok((discovery::examine(dir.as_fd(), max_children)?, dir)));
            let ((seen, unusable_entry), dir) = match examined {
                Ok(examined) => examined,
                Err(error) if depth == 0 => return Err(error),
                Err(error) if beneath::is_missing(&error) => continue,
                Err(error) => {
                    contents.problem(full, format!("failed to open the directory: {error}"));
                    continue;
                }
            };
            if let Some(name) = unusable_entry {
                let reason = "it is neither a file nor a link to a file of the package";
                contents.problem(full.join(name), reason);
            }
            match seen {
                Seen::Skill { entry } => {
                    match load(known.remove(&path), dir.as_fd(), entry, &full, limits) {
                        Ok((stamp, skill)) => {
                            let text = &mut costs[cost_index].text;
                            *text = text.saturating_add(counted_text(&skill));
                            self.loaded
                                .insert(path.clone(), (stamp, Arc::clone(&skill)));
                            contents.skills.push(Located { skill, path });
                        }
                        Err(error) => contents.problem(full, reason(&error, entry)),
                    }
                }
                Seen::Branch { children, complete } if depth < STORE_DEPTH => {
                    for child in children {
                        let cost_index = if depth == 0 {
                            costs.push(SearchCost::default());
                            costs.len() - 1
                        } else {
                            cost_index
                        };
                        queue.push_back((path.join(child), depth + 1, cost_index));
                    }
                    if !complete {
                        contents.problem(
                            full,
                            "it has too many subdirectories; only some of them were searched",
                        );
                    }
                }
                Seen::Branch { .. } => {}
            }
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
struct SearchCost {
    directories: usize,
    text: u64,
    /// The limit was already reported.
    is_reported: bool,
}

fn counted_text(skill: &Skill) -> u64 {
    let texts = [
        &skill.name,
        &skill.display_name,
        &skill.description,
        &skill.instructions,
    ];
    let length: usize = texts.into_iter().map(String::len).sum();
    (length as u64).max(MIN_TEXT)
}

/// Why a skill cannot be read. Without the path, which is on the host.
fn reason(error: &SkillError, entry: &str) -> String {
    match error {
        SkillError::Io {
            operation, source, ..
        } => format!("failed to {operation} {entry}: {source}"),
        error => error.to_string(),
    }
}

/// Reads a skill, unless the one that was read before is still current.
fn load(
    known: Option<CachedSkill>,
    dir: BorrowedFd<'_>,
    entry: &'static str,
    full: &Path,
    limits: &Limits,
) -> Result<CachedSkill, SkillError> {
    // Taken before reading, so that a file that changes meanwhile counts as young.
    let now = SystemTime::now();
    // The timestamps of a link do not change with its target, so its target is always read.
    if let Some((Some(stamp), skill)) = known
        && skill.entry_file == entry
        && let Ok(stat) = beneath::stat_entry(dir, Path::new(entry))
        && beneath::is_regular(&stat)
        && Stamp::settled(&stat, now).as_ref() == Some(&stamp)
    {
        return Ok((Some(stamp), skill));
    }
    let loaded = loading::load(dir, entry, full, limits)?;
    Ok((Stamp::settled(&loaded.stat, now), Arc::new(loaded.skill)))
}

fn mark_shared_names(skills: &mut [Located]) {
    let mut owners: HashMap<String, Vec<usize>> = HashMap::new();
    for (position, item) in skills.iter().enumerate() {
        let name = item.skill.name.clone();
        owners.entry(name).or_default().push(position);
    }
    for positions in owners.into_values() {
        let [first, second, ..] = positions[..] else {
            continue;
        };
        for position in positions {
            let other = if position == first { second } else { first };
            let other = skills[other].path.display();
            let message = format!("another skill has the same name: {other}");
            let skill = Arc::make_mut(&mut skills[position].skill);
            skill.warnings.push(rules::warning("name_shared", message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_has_the_cause_and_no_host_path() {
        let error = SkillError::io(
            "read",
            "/srv/skills/pdf/SKILL.md",
            io::Error::other("bad disk"),
        );
        assert_eq!(
            reason(&error, "SKILL.md"),
            "failed to read SKILL.md: bad disk"
        );
    }
}
