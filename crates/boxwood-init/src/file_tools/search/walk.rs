//! Visits all files below a directory with a few threads, in bounded memory and time.
//!
//! Symlinks are not followed, so there are no cycles. Pipes, devices and pseudo file systems are skipped. If no thread
//! can be started because the box has reached its process limit, the calling thread does the work.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RawDirEntry, statat};
use rustix::io::Errno;

use super::ignore_rules::{self, Chain};
use super::{IsCallerWaiting, SearchControl};
use crate::file_tools::open::{OPEN_FLAGS, is_on_pseudo_filesystem};

/// More threads do not help: a search is limited by memory and the locks of the kernel.
const MAX_THREADS: usize = 4;
const STACK_BYTES: usize = 1024 * 1024;
/// Bytes of the paths of queued directories. A tree that needs more is searched in part.
const MAX_QUEUED_BYTES: usize = 32 * 1024 * 1024;
/// Size of the buffer for directory entries.
const LISTING_BYTES: usize = 32 * 1024;
/// How long after the deadline the search still waits for its threads.
const GRACE: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Entries between two checks of the deadline. Reading the clock costs as much as matching a name.
const ENTRIES_PER_CHECK: usize = 16;

/// Names that are skipped at every depth.
const SKIPPED: [&[u8]; 10] = [
    b".",
    b"..",
    b".git",
    b"node_modules",
    b"__pycache__",
    b".venv",
    b"venv",
    b".tox",
    b"dist",
    b"build",
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Link,
    Directory,
}

/// A file or symlink found by the walk.
pub(super) struct Entry<'a> {
    pub(super) directory: BorrowedFd<'a>,
    pub(super) name: &'a OsStr,
    pub(super) kind: Kind,
    /// Relative to the root of the walk.
    pub(super) below: &'a Path,
}

/// Handles each file. Shared by all threads; each has its own `ThreadState`.
pub(super) trait Visit: Send + Sync + 'static {
    type ThreadState;
    fn thread_state(&self) -> Self::ThreadState;
    fn on_entry(&self, state: &mut Self::ThreadState, entry: &Entry<'_>);
    /// Called after each directory, to move results from the thread's state to the shared one.
    fn after_directory(&self, _: &mut Self::ThreadState) {}
}

/// Walks until everything was visited or the control ends. The results are in `visit`.
pub(super) fn walk<V: Visit>(
    root: &Path,
    top: OwnedFd,
    ignored: bool,
    visit: &Arc<V>,
    control: &Arc<SearchControl>,
    is_caller_waiting: &IsCallerWaiting<'_>,
) {
    let chain = if ignored { None } else { above(root) };
    let walk = Arc::new(Walk {
        root: root.to_owned(),
        ignored,
        control: Arc::clone(control),
        visit: Arc::clone(visit),
        queue: Mutex::default(),
        more: Condvar::new(),
        done: Condvar::new(),
    });
    walk.push(Directory {
        below: PathBuf::new(),
        opened: Some(top),
        chain,
    });
    let started = (0..threads()).map_while(|_| {
        let walk = Arc::clone(&walk);
        std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || walk.work())
            .ok()
    });
    if started.count() == 0 {
        walk.work();
    }
    walk.wait(is_caller_waiting);
}

fn threads() -> usize {
    rustix::thread::sched_getaffinity(None)
        .map_or(1, |set| usize::try_from(set.count()).unwrap_or(1))
        .clamp(1, MAX_THREADS)
}

/// The rules of the directories above the root, the outermost first.
fn above(root: &Path) -> Chain {
    let mut chain = None;
    let outer: Vec<&Path> = root.ancestors().skip(1).collect();
    for path in outer.into_iter().rev() {
        let flags = OPEN_FLAGS | OFlags::DIRECTORY;
        if let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()) {
            chain = ignore_rules::within(&directory, path, &chain);
        }
    }
    chain
}

struct Directory {
    below: PathBuf,
    opened: Option<OwnedFd>,
    chain: Chain,
}

impl Directory {
    fn queued_bytes(&self) -> usize {
        size_of::<Self>() + self.below.as_os_str().len()
    }
}

#[derive(Default)]
struct Queue {
    directories: Vec<Directory>,
    bytes: usize,
    working: usize,
    idle: usize,
    over: bool,
}

struct Walk<V: Visit> {
    root: PathBuf,
    ignored: bool,
    control: Arc<SearchControl>,
    visit: Arc<V>,
    queue: Mutex<Queue>,
    /// Notifies idle threads.
    more: Condvar,
    /// Notifies the thread that waits for all others.
    done: Condvar,
}

impl<V: Visit> Walk<V> {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, directory: Directory) {
        let mut queue = self.queue();
        let bytes = directory.queued_bytes();
        if queue.bytes + bytes > MAX_QUEUED_BYTES {
            return self.control.leave_out();
        }
        queue.bytes += bytes;
        queue.directories.push(directory);
        if queue.idle > 0 {
            self.more.notify_one();
        }
    }

    fn next(&self) -> Option<Directory> {
        let mut queue = self.queue();
        loop {
            if queue.over || self.control.is_over() {
                break;
            }
            if let Some(directory) = queue.directories.pop() {
                queue.bytes -= directory.queued_bytes();
                queue.working += 1;
                return Some(directory);
            }
            if queue.working == 0 {
                break;
            }
            queue.idle += 1;
            queue = self
                .more
                .wait_timeout(queue, POLL_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            queue.idle -= 1;
        }
        queue.over = true;
        self.more.notify_all();
        self.done.notify_all();
        None
    }

    fn work(&self) {
        let mut state = self.visit.thread_state();
        let mut buffer = Vec::with_capacity(LISTING_BYTES);
        while let Some(directory) = self.next() {
            self.list(&mut state, &mut buffer, directory);
            self.visit.after_directory(&mut state);
            let mut queue = self.queue();
            queue.working -= 1;
            if queue.working == 0 && queue.over {
                self.done.notify_all();
            }
        }
    }

    /// Waits until all threads are done, the time is over, or the caller has stopped waiting.
    fn wait(&self, is_caller_waiting: &IsCallerWaiting<'_>) {
        let given_up = self.control.until() + GRACE;
        let mut queue = self.queue();
        while queue.working > 0 || !queue.over {
            if Instant::now() > given_up {
                self.control.leave_out();
                break;
            }
            queue = self
                .done
                .wait_timeout(queue, POLL_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if !is_caller_waiting() {
                break;
            }
            // Ends the search for all threads at the deadline.
            self.control.is_over();
        }
        drop(queue);
        self.control.end();
    }

    fn list(&self, state: &mut V::ThreadState, buffer: &mut Vec<u8>, directory: Directory) {
        let mut path = self.root.join(&directory.below);
        let opened = if let Some(opened) = directory.opened {
            opened
        } else {
            let flags = OPEN_FLAGS | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            match rustix::fs::open(&path, flags, Mode::empty()) {
                Ok(opened) => opened,
                // Removed meanwhile, or not readable.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return,
                Err(_) => return self.control.leave_out(),
            }
        };
        if is_on_pseudo_filesystem(&opened).unwrap_or(true) {
            return;
        }
        let chain = if self.ignored {
            None
        } else {
            ignore_rules::within(&opened, &path, &directory.chain)
        };
        let mut below = directory.below.into_os_string().into_vec();
        if !below.is_empty() {
            below.push(b'/');
        }
        let stem = below.len();
        let mut entries = RawDir::new(opened.as_fd(), buffer.spare_capacity_mut());
        let mut number = 0;
        while let Some(entry) = entries.next() {
            let check_clock = number % ENTRIES_PER_CHECK == 0;
            if self.control.has_ended() || (check_clock && self.control.is_over()) {
                return;
            }
            number += 1;
            let Ok(entry) = entry else {
                return self.control.leave_out();
            };
            let Some(kind) = kind(opened.as_fd(), &entry) else {
                continue;
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if let Some(rules) = &chain {
                path.push(name);
                let left_out = rules.leave_out(&path, kind == Kind::Directory);
                path.pop();
                if left_out {
                    continue;
                }
            }
            below.truncate(stem);
            below.extend_from_slice(name.as_bytes());
            let below = Path::new(OsStr::from_bytes(&below));
            if kind == Kind::Directory {
                self.push(Directory {
                    below: below.to_owned(),
                    opened: None,
                    chain: chain.clone(),
                });
            } else {
                let found = Entry {
                    directory: opened.as_fd(),
                    name,
                    kind,
                    below,
                };
                self.visit.on_entry(state, &found);
            }
        }
    }
}

/// `None` for skipped names and for what is neither a file, a symlink nor a directory.
fn kind(directory: BorrowedFd<'_>, entry: &RawDirEntry<'_>) -> Option<Kind> {
    let name = entry.file_name();
    if SKIPPED.contains(&name.to_bytes()) {
        return None;
    }
    let kind = match entry.file_type() {
        FileType::Unknown => {
            let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            FileType::from_raw_mode(stat.st_mode)
        }
        kind => kind,
    };
    match kind {
        FileType::RegularFile => Some(Kind::File),
        FileType::Symlink => Some(Kind::Link),
        FileType::Directory => Some(Kind::Directory),
        _ => None,
    }
}

/// The path in the form of the request.
pub(super) fn shown(root: &Path, below: &Path) -> String {
    let path = root.join(below).into_os_string().into_vec();
    String::from_utf8(path)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
