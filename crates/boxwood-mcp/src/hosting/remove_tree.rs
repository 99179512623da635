//! Removes directories that others have filled.
//!
//! Comes in: a path of the daemon's own. Goes out: nothing, and nothing is left there. Never here: a link
//! that is followed, or a call for each level. Whoever filled a tree decided how deep it is, so neither the
//! stack nor the descriptors that this takes depend on it.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Directories that are held open at once.
const MOST_OPEN: usize = 64;

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Servers and installers leave directories that even their owner may not write to, so those are
/// opened up first. That there is nothing is no failure.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match open(CWD, path) {
        Ok(directory) => empty(directory)?,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) if path.is_symlink() => return fs::remove_file(path),
        Err(error) => return Err(error.into()),
    }
    fs::remove_dir(path)
}

/// A directory whose files are gone.
struct Level {
    /// In the one above.
    name: CString,
    /// By which it is known again.
    id: (u64, u64),
    /// Directories in it that nobody has looked at yet.
    below: Vec<CString>,
}

/// Each directory is opened below the one that is open already. Whoever swaps one for a link in the
/// meantime changes nothing outside.
fn empty(root: OwnedFd) -> io::Result<()> {
    let mut here = Level::enter(&root, CString::default())?;
    let mut directory = root;
    let mut above: Vec<Level> = Vec::new();
    // Of those above, the nearest.
    let mut held: VecDeque<OwnedFd> = VecDeque::new();
    loop {
        if let Some(name) = here.below.pop() {
            let Some(inner) = open_below(&directory, &name)? else {
                continue;
            };
            above.push(std::mem::replace(&mut here, Level::enter(&inner, name)?));
            held.push_back(std::mem::replace(&mut directory, inner));
            if held.len() > MOST_OPEN {
                held.pop_front();
            }
            continue;
        }
        let Some(outer) = above.pop() else {
            return Ok(());
        };
        directory = match held.pop_back() {
            Some(held) => held,
            None => return_to(&outer, &directory)?,
        };
        unless_gone(rustix::fs::unlinkat(
            &directory,
            &here.name,
            AtFlags::REMOVEDIR,
        ))?;
        here = outer;
    }
}

impl Level {
    /// Removes what is no directory.
    fn enter(directory: &OwnedFd, name: CString) -> io::Result<Self> {
        let stat = rustix::fs::fstat(directory)?;
        if !Mode::from_raw_mode(stat.st_mode).contains(Mode::RWXU) {
            match rustix::fs::fchmod(directory, Mode::RWXU) {
                // Somebody else's. What cannot be removed from it says so itself.
                Err(Errno::PERM) => {}
                opened => opened?,
            }
        }
        let mut below = Vec::new();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if entry.file_type() == FileType::Directory || !remove_file(directory, name)? {
                below.push(name.to_owned());
            }
        }
        Ok(Self {
            name,
            id: (stat.st_dev, stat.st_ino),
            below,
        })
    }
}

/// `None` when there is no directory of that name any more.
fn open_below(directory: &OwnedFd, name: &CStr) -> io::Result<Option<OwnedFd>> {
    match open(directory, name) {
        Ok(inner) => Ok(Some(inner)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            remove_file(directory, name)?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn open(at: impl AsFd, name: impl Arg + Copy) -> rustix::io::Result<OwnedFd> {
    let opened = rustix::fs::openat(&at, name, OFlags::RDONLY | DIRECTORY, Mode::empty());
    if opened.as_ref().err() != Some(&Errno::ACCESS) {
        return opened;
    }
    // What may not be read can still be held, and what is held has a name that nobody can swap.
    let held = rustix::fs::openat(at, name, OFlags::PATH | DIRECTORY, Mode::empty())?;
    let place = format!("/proc/self/fd/{}", held.as_raw_fd());
    rustix::fs::chmod(place, Mode::RWXU)?;
    rustix::fs::openat(&held, c".", OFlags::RDONLY | DIRECTORY, Mode::empty())
}

/// The directory above, which was let go. It is another one if somebody has moved `from` since.
fn return_to(level: &Level, from: &OwnedFd) -> io::Result<OwnedFd> {
    let outer = rustix::fs::openat(from, c"..", OFlags::RDONLY | DIRECTORY, Mode::empty())?;
    let stat = rustix::fs::fstat(&outer)?;
    if (stat.st_dev, stat.st_ino) == level.id {
        return Ok(outer);
    }
    Err(io::Error::other(
        "a directory was moved while it was removed",
    ))
}

/// Whether it was none of a directory.
fn remove_file(directory: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => Ok(false),
        removed => unless_gone(removed).map(|()| true),
    }
}

fn unless_gone(removed: rustix::io::Result<()>) -> io::Result<()> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    }

    fn mode(path: &Path) -> u32 {
        let metadata = fs::metadata(path).expect("there");
        metadata.permissions().mode() & 0o777
    }

    #[test]
    fn a_tree_that_nobody_may_write_to_is_removed_all_the_same() {
        let dir = tempfile::tempdir().expect("a directory");
        let inner = dir.path().join("a/b");
        fs::create_dir_all(&inner).expect("made");
        fs::write(inner.join("file"), "x").expect("written");
        for path in [&inner, &dir.path().join("a")] {
            chmod(path, 0o500);
        }
        remove_tree(&dir.path().join("a")).expect("removed");
        remove_tree(&dir.path().join("a")).expect("nothing to do");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
    }

    #[test]
    fn what_nobody_may_read_is_opened_up_and_no_link_is_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let outside = dir.path().join("outside");
        let inner = dir.path().join("a/b/c");
        fs::create_dir_all(&inner).expect("made");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("kept"), "x").expect("written");
        symlink(&outside, inner.join("link")).expect("linked");
        symlink(&outside, dir.path().join("link")).expect("linked");
        fs::write(inner.join("file"), "x").expect("written");
        chmod(&outside, 0o510);
        for path in ["a/b/c", "a/b", "a"] {
            chmod(&dir.path().join(path), 0);
        }
        // As if it had been put in the place of a directory in the meantime.
        assert!(open(CWD, &dir.path().join("link")).is_err());
        let directory = open(CWD, dir.path()).expect("opened");
        let swapped = open_below(&directory, c"link").expect("looked at");
        assert!(swapped.is_none() && !dir.path().join("link").is_symlink());
        remove_tree(&dir.path().join("a")).expect("removed");
        assert!(!dir.path().join("a").exists());
        symlink(&outside, dir.path().join("a")).expect("linked");
        remove_tree(&dir.path().join("a")).expect("the link alone is removed");
        assert!(!dir.path().join("a").is_symlink());
        assert_eq!(mode(&outside), 0o510);
        chmod(&outside, 0o700);
        assert!(outside.join("kept").exists());
    }

    /// Far deeper than any path can name.
    fn dig(top: &Path, depth: usize, outside: &Path) {
        let mut at = open(CWD, top).expect("opened");
        for level in 0..depth {
            // On the way up these are still to be looked at.
            if level % 1000 == 7 {
                rustix::fs::mkdirat(&at, c"side", Mode::RWXU).expect("made");
                rustix::fs::symlinkat(outside, &at, c"link").expect("linked");
            }
            rustix::fs::mkdirat(&at, c"d", Mode::RWXU).expect("made");
            let next = open(&at, c"d").expect("opened");
            if level % 1000 == 8 {
                rustix::fs::fchmod(&at, Mode::empty()).expect("closed");
            }
            at = next;
        }
    }

    #[test]
    fn a_tree_however_deep_is_removed_with_little_stack_and_few_descriptors() {
        let dir = tempfile::tempdir().expect("a directory");
        let (top, outside) = (dir.path().join("top"), dir.path().join("outside"));
        fs::create_dir(&top).expect("made");
        fs::create_dir(&outside).expect("made");
        fs::write(outside.join("kept"), "x").expect("written");
        dig(&top, 20_000, &outside);
        let deep = top.clone();
        let small = std::thread::Builder::new().stack_size(256 * 1024);
        let removing = small.spawn(move || remove_tree(&deep)).expect("begun");
        removing.join().expect("ended").expect("removed");
        assert!(!top.exists());
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn whoever_moves_a_directory_leads_nowhere_else() {
        let dir = tempfile::tempdir().expect("a directory");
        for path in ["a/b", "other"] {
            fs::create_dir_all(dir.path().join(path)).expect("made");
        }
        let outer = open(CWD, &dir.path().join("a")).expect("opened");
        let level = Level::enter(&outer, CString::default()).expect("entered");
        let inner = open(&outer, c"b").expect("opened");
        return_to(&level, &inner).expect("found again");
        fs::rename(dir.path().join("a/b"), dir.path().join("other/b")).expect("moved");
        assert!(return_to(&level, &inner).is_err());
    }
}
