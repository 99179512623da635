//! Copies a directory of the host for one server.
//!
//! Comes in: an open directory that was judged, and where the copy goes. Goes out: the copy. Never here:
//! a link that is followed. Everything is opened below what is open already, so whoever swaps a directory
//! for a link in the meantime gets an error and not a file of ours. What a mount of the directory would not
//! show is not copied either.

mod view;

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Statx, Timespec, Timestamps};
use rustix::io::Errno;

use self::view::View;
use super::LaunchError;
use crate::hosting::remove_tree::remove_tree;

pub(super) const MOST_FILES: usize = 200_000;
pub(super) const MOST_BYTES: u64 = 2 * 1024 * 1024 * 1024;
pub(super) const DEEPEST: usize = 128;

/// How much of a file is copied before somebody is asked whether to go on.
const CHUNK: u64 = 16 * 1024 * 1024;

/// What is left free of the disk when nobody says so, as it is for what boxes write themselves.
const MIN_FREE: u64 = 256 * 1024 * 1024;

const CACHES: [&str; 4] = ["__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"];
/// Every Python environment has it. One of the host is of no use in a box.
const VENV_MARK: &str = "pyvenv.cfg";

pub(super) const OPEN_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What is copied, and what is put beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Staging {
    pub(crate) from: PathBuf,
    /// Where in the whole copy; empty when it is the whole.
    pub(super) into: String,
    pub(super) contents: Contents,
    /// Where in the copy, and what the link says.
    pub(super) links: Vec<(PathBuf, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// A program to run: its history and its environments stay behind.
    Project,
    /// What a program works on: a repository without its history would be none.
    Data,
}

/// Makes one copy of everything at `to`, in place of an older one. Comes back with how many files and
/// directories were left out because a mount would not show them. On an error nothing is left there.
/// `min_free` of the disk is left, in bytes. Ends soon after `stop` is set. Nobody else works at `to` in the meantime: who calls this sees to it.
pub(crate) fn stage<Handle: AsFd>(
    parts: &[(Staging, Handle)],
    to: &Path,
    min_free: Option<u64>,
    stop: &AtomicBool,
) -> Result<usize, LaunchError> {
    let mut limits = Limits {
        files: MOST_FILES,
        bytes: MOST_BYTES,
        left_out: 0,
        min_free,
        stop,
    };
    remove(to)?;
    let copied = parts
        .iter()
        .try_for_each(|(staging, from)| make(staging, from.as_fd(), to, &mut limits));
    if copied.is_err() {
        remove(to)?;
    }
    copied.map(|()| limits.left_out)
}

fn remove(to: &Path) -> Result<(), LaunchError> {
    remove_tree(to).map_err(failed("remove the old copy at", to))
}

struct Limits<'a> {
    files: usize,
    bytes: u64,
    /// So far.
    left_out: usize,
    min_free: Option<u64>,
    /// Nobody waits for the copy any more.
    stop: &'a AtomicBool,
}

fn make(
    staging: &Staging,
    from: BorrowedFd<'_>,
    to: &Path,
    limits: &mut Limits<'_>,
) -> Result<(), LaunchError> {
    let to = &to.join(&staging.into);
    fs::create_dir_all(to).map_err(failed("make", to))?;
    let target = rustix::fs::open(to, OPEN_DIRECTORY, Mode::empty()).map_err(failed("open", to))?;
    let at_top = |error: Errno| failed("open", &staging.from)(error);
    // The judged directory may be held as a place alone, which cannot be read.
    let source = rustix::fs::openat(from, c".", OPEN_DIRECTORY, Mode::empty()).map_err(at_top)?;
    let mut copy = Copy {
        staging,
        limits,
        view: View::of(source.as_fd()).map_err(at_top)?,
        at: PathBuf::new(),
    };
    copy.directory(source.as_fd(), target.as_fd(), 0)?;
    for (place, says) in &staging.links {
        link(target.as_fd(), place, says).map_err(failed("put a link at", &to.join(place)))?;
    }
    Ok(())
}

/// Below `directory`, never through a link that was copied.
fn link(directory: BorrowedFd<'_>, place: &Path, says: &str) -> rustix::io::Result<()> {
    let name = place.file_name().ok_or(Errno::INVAL)?;
    let mut below: Option<OwnedFd> = None;
    for part in place.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(part) = part else {
            return Err(Errno::INVAL);
        };
        let here = below.as_ref().map_or(directory, AsFd::as_fd);
        below = Some(rustix::fs::openat(
            here,
            part,
            OPEN_DIRECTORY,
            Mode::empty(),
        )?);
    }
    let here = below.as_ref().map_or(directory, AsFd::as_fd);
    match rustix::fs::symlinkat(says, here, name) {
        Err(Errno::EXIST) => Ok(()),
        linked => linked,
    }
}

struct Copy<'a, 'stop> {
    staging: &'a Staging,
    limits: &'a mut Limits<'stop>,
    view: View,
    /// Where in the directory, for errors.
    at: PathBuf,
}

impl Copy<'_, '_> {
    fn directory(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        depth: usize,
    ) -> Result<(), LaunchError> {
        if depth > DEEPEST {
            return Err(self.too_much("128 directories in each other"));
        }
        let entries = Dir::read_from(from).map_err(|error| self.failed("read", error))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.failed("read", error))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let text = name.to_string_lossy().into_owned();
            if self.is_passed_over(&text) {
                continue;
            }
            self.limits.files = self
                .limits
                .files
                .checked_sub(1)
                .ok_or_else(|| self.too_much("200,000 files"))?;
            self.at.push(&text);
            self.is_wanted()?;
            self.entry(from, to, name, depth)?;
            self.at.pop();
        }
        Ok(())
    }

    fn entry(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &std::ffi::CStr,
        depth: usize,
    ) -> Result<(), LaunchError> {
        let facts = view::facts_at(from, name);
        let Some(facts) = self.unless_gone("look at", facts)? else {
            return Ok(());
        };
        // Not even opened: it may be a file system that answers no more.
        if !self.view.reaches(&facts) {
            return self.leave_out();
        }
        self.has_room(to)?;
        match view::kind(&facts) {
            FileType::Directory => self.subdirectory(from, to, name, depth),
            FileType::RegularFile => self.file(from, to, name),
            FileType::Symlink => {
                let says = rustix::fs::readlinkat(from, name, Vec::new());
                let Some(says) = self.unless_gone("read the link", says)? else {
                    return Ok(());
                };
                rustix::fs::symlinkat(says, to, name)
                    .map_err(|error| self.failed("copy the link", error))
            }
            // Sockets, pipes and devices mean nothing elsewhere.
            _ => Ok(()),
        }
    }

    fn subdirectory(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &std::ffi::CStr,
        depth: usize,
    ) -> Result<(), LaunchError> {
        let source = rustix::fs::openat(from, name, OPEN_DIRECTORY, Mode::empty());
        let Some(source) = self.unless_gone("open", source)? else {
            return Ok(());
        };
        let facts = view::facts(&source).map_err(|error| self.failed("look at", error))?;
        if !self.view.shows(&facts) {
            return self.leave_out();
        }
        let is_venv = self.staging.contents == Contents::Project
            && rustix::fs::statat(&source, VENV_MARK, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if is_venv {
            return Ok(());
        }
        rustix::fs::mkdirat(to, name, Mode::RWXU).map_err(|error| self.failed("copy", error))?;
        let target = rustix::fs::openat(to, name, OPEN_DIRECTORY, Mode::empty())
            .map_err(|error| self.failed("copy", error))?;
        self.directory(source.as_fd(), target.as_fd(), depth + 1)?;
        self.finish(target.as_fd(), &facts, Mode::RWXU)
    }

    fn file(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &std::ffi::CStr,
    ) -> Result<(), LaunchError> {
        // Should it have become a pipe by now, nobody waits for its other end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = rustix::fs::openat(from, name, flags, Mode::empty());
        let Some(source) = self.unless_gone("open", source)? else {
            return Ok(());
        };
        let facts = view::facts(&source).map_err(|error| self.failed("look at", error))?;
        if view::kind(&facts) != FileType::RegularFile {
            return Ok(());
        }
        if !self.view.shows(&facts) {
            return self.leave_out();
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let target = rustix::fs::openat(to, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| self.failed("copy", error))?;
        let mut source = File::from(source).take(self.limits.bytes.saturating_add(1));
        let mut target = File::from(target);
        let mut copied = 0;
        loop {
            self.is_wanted()?;
            self.has_room(target.as_fd())?;
            let chunk = io::copy(&mut source.by_ref().take(CHUNK), &mut target)
                .map_err(|error| self.failed("copy", error))?;
            if chunk == 0 {
                break;
            }
            copied += chunk;
        }
        self.limits.bytes = self
            .limits
            .bytes
            .checked_sub(copied)
            .ok_or_else(|| self.too_much("2 GiB"))?;
        self.finish(target.as_fd(), &facts, Mode::RUSR | Mode::WUSR)
    }

    /// Rights and time as they were. The server owns its copy, so it can always read and write it.
    fn finish(
        &self,
        copy: BorrowedFd<'_>,
        facts: &Statx,
        at_least: Mode,
    ) -> Result<(), LaunchError> {
        let mode = Mode::from_raw_mode(facts.stx_mode.into());
        let rights = mode & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
        rustix::fs::fchmod(copy, rights | at_least)
            .map_err(|error| self.failed("set the rights of", error))?;
        let time = Timespec {
            tv_sec: facts.stx_mtime.tv_sec,
            tv_nsec: facts.stx_mtime.tv_nsec.into(),
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::futimens(copy, &times).map_err(|error| self.failed("set the time of", error))
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "it is what becomes of an entry, like a copy of it"
    )]
    fn leave_out(&mut self) -> Result<(), LaunchError> {
        self.limits.left_out += 1;
        Ok(())
    }

    /// Something of the directory may go while it is copied. That the copy goes is a failure.
    fn unless_gone<T>(
        &self,
        operation: &'static str,
        found: rustix::io::Result<T>,
    ) -> Result<Option<T>, LaunchError> {
        match found {
            Err(Errno::NOENT) => Ok(None),
            found => found
                .map(Some)
                .map_err(|error| self.failed(operation, error)),
        }
    }

    fn is_wanted(&self) -> Result<(), LaunchError> {
        if self.limits.stop.load(Ordering::Relaxed) {
            let given_up =
                io::Error::new(io::ErrorKind::Interrupted, "nobody waits for it any more");
            return Err(self.failed("copy", given_up));
        }
        Ok(())
    }

    /// What a box writes is stopped by the host's floor of free space; what is written for it, too.
    fn has_room(&self, to: BorrowedFd<'_>) -> Result<(), LaunchError> {
        let sizes =
            rustix::fs::fstatvfs(to).map_err(|error| self.failed("find room for", error))?;
        let total = sizes.f_blocks.saturating_mul(sizes.f_frsize);
        let available = sizes.f_bavail.saturating_mul(sizes.f_frsize);
        let usual = MIN_FREE.min(total / 100);
        if available < self.limits.min_free.unwrap_or(usual) {
            let path = self.staging.from.clone();
            return Err(LaunchError::NoRoom { path });
        }
        Ok(())
    }

    fn is_passed_over(&self, name: &str) -> bool {
        CACHES.contains(&name) || (name == ".git" && self.staging.contents == Contents::Project)
    }

    fn failed(&self, operation: &'static str, error: impl Into<io::Error>) -> LaunchError {
        failed(operation, &self.staging.from.join(&self.at))(error.into())
    }

    fn too_much(&self, limit: &'static str) -> LaunchError {
        LaunchError::TooMuch {
            path: self.staging.from.clone(),
            limit,
        }
    }
}

fn failed<Error: Into<io::Error>>(
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(Error) -> LaunchError {
    let path = path.to_owned();
    move |error| LaunchError::Copy {
        operation,
        path,
        source: error.into(),
    }
}

#[cfg(test)]
mod tests;
