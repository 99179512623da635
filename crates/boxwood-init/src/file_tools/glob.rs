//! Files whose path fits a pattern, those changed last first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, statat};

use super::MOST_TEXT;
use super::leash::{Leash, Wanted};
use super::listing::Kind;
use super::open::{self, Opened};
use super::pattern::{self, Pattern};
use super::walk::{self, Met, Visit};
use super::words::{Found, ToolFailure, ToolFault};

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
pub(super) struct Kept {
    newest: BinaryHeap<Reverse<(Changed, Reverse<OsString>)>>,
    total: u64,
    /// Enough were changed after this; what is older only counts.
    floor: Option<Changed>,
}

impl Kept {
    fn take(&mut self, limit: usize, changed: Changed, below: &OsStr) {
        if self.newest.len() >= limit {
            let Some(Reverse((oldest, Reverse(last)))) = self.newest.peek() else {
                return;
            };
            if (changed, Reverse(below)) <= (*oldest, Reverse(last.as_os_str())) {
                return;
            }
            self.newest.pop();
        }
        self.newest
            .push(Reverse((changed, Reverse(below.to_owned()))));
    }
}

struct Newest {
    pattern: Pattern,
    limit: usize,
    found: Mutex<Kept>,
}

impl Newest {
    fn found(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit for Newest {
    /// What one thread found since it handed in what it had.
    type Tools = Kept;

    fn tools(&self) -> Kept {
        Kept::default()
    }

    fn meet(&self, kept: &mut Kept, met: &Met<'_>) {
        if !self.pattern.fits(met.below) {
            return;
        }
        // A link to a file is a file by another name; one to anything else is not.
        let follow = match met.kind {
            Kind::Link => AtFlags::empty(),
            _ => AtFlags::SYMLINK_NOFOLLOW,
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
        kept.total += 1;
        if kept.floor.is_none_or(|floor| changed >= floor) {
            kept.take(self.limit, changed, met.below.as_os_str());
        }
    }

    fn pause(&self, kept: &mut Kept) {
        let mut found = self.found();
        found.total += std::mem::take(&mut kept.total);
        for Reverse((changed, Reverse(below))) in kept.newest.drain() {
            found.take(self.limit, changed, &below);
        }
        if found.newest.len() >= self.limit {
            kept.floor = found.newest.peek().map(|Reverse((oldest, _))| *oldest);
        }
    }
}
