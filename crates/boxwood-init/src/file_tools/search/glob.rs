//! Finds files whose path matches a pattern, the newest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, statat};

use super::pattern::{self, Pattern};
use super::walk::{self, Entry, Kind, Visit};
use super::{IsCallerWaiting, SearchControl};
use crate::file_tools::MAX_TEXT_BYTES;
use crate::file_tools::open::{self, Opened};
use crate::file_tools::types::{FileToolError, FileToolErrorKind, Found};

pub(in crate::file_tools) fn glob(
    pattern: &str,
    path: &str,
    limit: usize,
    ignored: bool,
    control: SearchControl,
    is_caller_waiting: &IsCallerWaiting<'_>,
) -> Result<Found, FileToolError> {
    let not_a_directory = || {
        let text = format!("Path is not a directory: {path}");
        FileToolError::new(FileToolErrorKind::NotADirectory, text)
    };
    let top = match open::open(path, "Path is not a directory") {
        Ok(Opened::Directory(top)) => top,
        Ok(Opened::File(..)) => return Err(not_a_directory()),
        Err(failure) if failure.fault == FileToolErrorKind::NotFound => {
            return Err(not_a_directory());
        }
        Err(failure) => return Err(failure),
    };
    let visit = Arc::new(GlobSearch {
        pattern: pattern::compile(pattern, path)?,
        limit,
        found: Mutex::default(),
    });
    let control = Arc::new(control);
    walk::walk(
        Path::new(path),
        top,
        ignored,
        &visit,
        &control,
        is_caller_waiting,
    );
    let found = std::mem::take(&mut *visit.found());
    let mut truncated = control.is_partial() || found.total > found.newest.len() as u64;
    let mut remaining_bytes = MAX_TEXT_BYTES;
    let mut paths = Vec::with_capacity(found.newest.len());
    // The heap is reversed, so the newest comes first.
    for Reverse((_, Reverse(below))) in found.newest.into_sorted_vec() {
        let shown = walk::shown(Path::new(path), Path::new(&below));
        let Some(rest) = remaining_bytes.checked_sub(shown.len()) else {
            truncated = true;
            break;
        };
        remaining_bytes = rest;
        paths.push(shown);
    }
    Ok(Found {
        paths,
        total: found.total,
        truncated,
    })
}

type Changed = (i64, i64);

/// The newest files so far, the oldest of them on top.
#[derive(Default)]
pub(super) struct NewestFiles {
    newest: BinaryHeap<Reverse<(Changed, Reverse<OsString>)>>,
    total: u64,
    /// Older files are only counted.
    floor: Option<Changed>,
}

impl NewestFiles {
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

struct GlobSearch {
    pattern: Pattern,
    limit: usize,
    found: Mutex<NewestFiles>,
}

impl GlobSearch {
    fn found(&self) -> std::sync::MutexGuard<'_, NewestFiles> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit for GlobSearch {
    /// Files that one thread found since the last directory.
    type ThreadState = NewestFiles;

    fn thread_state(&self) -> NewestFiles {
        NewestFiles::default()
    }

    fn on_entry(&self, state: &mut NewestFiles, entry: &Entry<'_>) {
        if !self.pattern.fits(entry.below) {
            return;
        }
        // A symlink to a file counts as a file.
        let follow = match entry.kind {
            Kind::Link => AtFlags::empty(),
            _ => AtFlags::SYMLINK_NOFOLLOW,
        };
        let Ok(stat) = statat(entry.directory, entry.name, follow) else {
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
        state.total += 1;
        if state.floor.is_none_or(|floor| changed >= floor) {
            state.take(self.limit, changed, entry.below.as_os_str());
        }
    }

    fn after_directory(&self, state: &mut NewestFiles) {
        let mut found = self.found();
        found.total += std::mem::take(&mut state.total);
        for Reverse((changed, Reverse(below))) in state.newest.drain() {
            found.take(self.limit, changed, &below);
        }
        if found.newest.len() >= self.limit {
            state.floor = found.newest.peek().map(|Reverse((oldest, _))| *oldest);
        }
    }
}
