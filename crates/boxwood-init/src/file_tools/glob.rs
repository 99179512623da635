//! Files whose path fits a pattern, those changed last first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use globset::{Candidate, GlobSet};
use rustix::fs::{AtFlags, statat};

use super::leash::{Leash, Wanted};
use super::open::{self, Opened};
use super::walk::{self, Kind, Met, Visit};
use super::words::{Found, ToolFailure, ToolFault};
use super::{MOST_TEXT, pattern};

pub(super) fn glob(
    pattern: &str,
    path: &str,
    limit: usize,
    ignored: bool,
    leash: Leash,
    wanted: &Wanted<'_>,
) -> Result<Found, ToolFailure> {
    let not_a_directory = || {
        let text = format!("Path is not a directory: {path}");
        ToolFailure::new(ToolFault::NotADirectory, text)
    };
    let top = match open::open(path, "Path is not a directory") {
        Ok(Opened::Directory(top)) => top,
        Ok(Opened::File(..)) => return Err(not_a_directory()),
        Err(failure) if failure.fault == ToolFault::NotFound => return Err(not_a_directory()),
        Err(failure) => return Err(failure),
    };
    let visit = Arc::new(Newest {
        pattern: pattern::compile(pattern, path)?,
        limit,
        found: Mutex::default(),
    });
    let leash = Arc::new(leash);
    walk::walk(Path::new(path), top, ignored, &visit, &leash, wanted);
    let kept = std::mem::take(&mut *visit.found());
    let mut truncated = leash.is_partial() || kept.total > kept.newest.len() as u64;
    let mut room = MOST_TEXT;
    let mut paths = Vec::with_capacity(kept.newest.len());
    // In the order of the heap the newest is the smallest.
    for Reverse((_, Reverse(below))) in kept.newest.into_sorted_vec() {
        let shown = walk::shown(Path::new(path), Path::new(&below));
        let Some(left) = room.checked_sub(shown.len()) else {
            truncated = true;
            break;
        };
        room = left;
        paths.push(shown);
    }
    Ok(Found {
        paths,
        total: kept.total,
        truncated,
    })
}

type Changed = (i64, i64);

/// The newest so far, the oldest of them on top.
#[derive(Default)]
struct Kept {
    newest: BinaryHeap<Reverse<(Changed, Reverse<std::ffi::OsString>)>>,
    total: u64,
}

struct Newest {
    pattern: GlobSet,
    limit: usize,
    found: Mutex<Kept>,
}

impl Newest {
    fn found(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit for Newest {
    type Tools = ();

    fn tools(&self) {}

    fn meet(&self, (): &mut (), met: &Met<'_>) {
        if !self.pattern.is_match_candidate(&Candidate::new(met.below)) {
            return;
        }
        // A link to a file is a file by another name; one to anything else is not.
        let follow = match met.kind {
            Kind::File => AtFlags::SYMLINK_NOFOLLOW,
            Kind::Link => AtFlags::empty(),
        };
        let Ok(stat) = statat(met.directory, met.name, follow) else {
            return;
        };
        if !open::is_file(&stat) {
            return;
        }
        #[allow(
            clippy::unnecessary_cast,
            clippy::cast_possible_wrap,
            reason = "the fields' types vary by machine; nanoseconds are few"
        )]
        let changed = (stat.st_mtime as i64, stat.st_mtime_nsec as i64);
        let mut found = self.found();
        found.total += 1;
        if found.newest.len() >= self.limit {
            let Some(Reverse((oldest, Reverse(below)))) = found.newest.peek() else {
                return;
            };
            if (changed, Reverse(met.below.as_os_str())) <= (*oldest, Reverse(below.as_os_str())) {
                return;
            }
            found.newest.pop();
        }
        let below = met.below.as_os_str().to_owned();
        found.newest.push(Reverse((changed, Reverse(below))));
    }
}
