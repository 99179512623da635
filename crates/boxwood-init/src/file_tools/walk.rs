//! All files below a directory, by a few threads, in bounded room and time.
//!
//! Symlinks are never followed, so that there is no circle; pipes, devices and the kernel's own file
//! systems are passed by. A thread that cannot be had is done without: a box may have used up its
//! processes, and is searched all the same.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, statat};
use rustix::io::Errno;

use super::leash::{Leash, Wanted};
use super::open::{CALMLY, is_kernels};
use super::rules::{self, Chain};

/// More do not help: a search waits for memory and the kernel's locks.
const MOST_THREADS: usize = 4;
const STACK: usize = 1024 * 1024;
/// Files of one directory that are handed on together.
const BATCH: usize = 128;
/// Batches that wait; each keeps its directory open.
const MOST_BATCHES: usize = 32;
/// Bytes of paths that wait. A tree that needs more is searched in part.
const MOST_WAITING: usize = 32 * 1024 * 1024;
/// How long a thread may go on after its time before nobody waits for it.
const GRACE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);
const LISTING: usize = 32 * 1024;

/// What is never looked into, nor shown, at whatever depth.
const SKIPPED: [&[u8]; 8] = [
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
}

/// One file that the walk came by.
pub(super) struct Met<'a> {
    pub(super) directory: BorrowedFd<'a>,
    pub(super) name: &'a OsStr,
    pub(super) kind: Kind,
    /// From where the walk began, without a slash in front.
    pub(super) below: &'a Path,
}

/// What is done with each file. Shared by all threads; each has `Tools` of its own.
pub(super) trait Visit: Send + Sync + 'static {
    type Tools;
    fn tools(&self) -> Self::Tools;
    fn meet(&self, tools: &mut Self::Tools, met: &Met<'_>);
    /// Some files of one directory were met; what the tools hold back can be handed in.
    fn pause(&self, _: &mut Self::Tools) {}
}

/// Walks until everything was met or the leash ends. What was met stands in `visit`.
pub(super) fn walk<V: Visit>(
    root: &Path,
    top: OwnedFd,
    ignored: bool,
    visit: &Arc<V>,
    leash: &Arc<Leash>,
    wanted: &Wanted<'_>,
) {
    let chain = if ignored { None } else { above(root) };
    let walk = Arc::new(Walk {
        root: root.to_owned(),
        ignored,
        leash: Arc::clone(leash),
        visit: Arc::clone(visit),
        queue: Mutex::default(),
        more: Condvar::new(),
        done: Condvar::new(),
    });
    walk.push(Work::Directory(Directory {
        below: PathBuf::new(),
        opened: Some(top),
        chain,
    }));
    let started = (0..threads()).map_while(|_| {
        let walk = Arc::clone(&walk);
        std::thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || walk.work())
            .ok()
    });
    if started.count() == 0 {
        walk.work();
    }
    walk.wait(wanted);
}

fn threads() -> usize {
    rustix::thread::sched_getaffinity(None)
        .map_or(1, |set| usize::try_from(set.count()).unwrap_or(1))
        .clamp(1, MOST_THREADS)
}

/// The rules of the directories above the root, the outermost first.
fn above(root: &Path) -> Chain {
    let mut chain = None;
    let outer: Vec<&Path> = root.ancestors().skip(1).collect();
    for path in outer.into_iter().rev() {
        let flags = CALMLY | OFlags::DIRECTORY;
        if let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()) {
            chain = rules::within(&directory, path, &chain);
        }
    }
    chain
}

struct Directory {
    below: PathBuf,
    opened: Option<OwnedFd>,
    chain: Chain,
}

struct Batch {
    directory: Arc<OwnedFd>,
    below: Arc<Path>,
    files: Files,
}

/// Names one behind the other: a piece of memory for each would cost more than the names.
#[derive(Default)]
struct Files {
    names: Vec<u8>,
    /// Where each ends.
    ends: Vec<(Kind, usize)>,
}

impl Files {
    fn push(&mut self, kind: Kind, name: &[u8]) {
        self.names.extend_from_slice(name);
        self.ends.push((kind, self.names.len()));
    }

    fn iter(&self) -> impl Iterator<Item = (Kind, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(kind, end)| {
            let name = &self.names[start..end];
            start = end;
            (kind, name)
        })
    }
}

enum Work {
    Directory(Directory),
    Batch(Batch),
}

#[derive(Default)]
struct Queue {
    work: Vec<Work>,
    /// Bytes of the directories' paths.
    bytes: usize,
    batches: usize,
    working: usize,
    idle: usize,
    over: bool,
}

struct Walk<V: Visit> {
    root: PathBuf,
    ignored: bool,
    leash: Arc<Leash>,
    visit: Arc<V>,
    queue: Mutex<Queue>,
    /// For threads that have nothing to do.
    more: Condvar,
    /// For the one that waits for all of them.
    done: Condvar,
}

impl<V: Visit> Walk<V> {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, work: Work) {
        let mut queue = self.queue();
        match &work {
            Work::Directory(directory) => {
                let size = size_of::<Work>() + directory.below.as_os_str().len();
                if queue.bytes + size > MOST_WAITING {
                    self.leash.leave_out();
                    return;
                }
                queue.bytes += size;
            }
            Work::Batch(_) => queue.batches += 1,
        }
        queue.work.push(work);
        if queue.idle > 0 {
            self.more.notify_one();
        }
    }

    fn next(&self) -> Option<Work> {
        let mut queue = self.queue();
        loop {
            if queue.over || self.leash.is_over() {
                break;
            }
            if let Some(work) = queue.work.pop() {
                match &work {
                    Work::Directory(directory) => {
                        queue.bytes -= size_of::<Work>() + directory.below.as_os_str().len();
                    }
                    Work::Batch(_) => queue.batches -= 1,
                }
                queue.working += 1;
                return Some(work);
            }
            if queue.working == 0 {
                break;
            }
            queue.idle += 1;
            queue = self
                .more
                .wait_timeout(queue, LOOK)
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
        let mut tools = self.visit.tools();
        let mut listing = Vec::with_capacity(LISTING);
        while let Some(work) = self.next() {
            match work {
                Work::Directory(directory) => self.list(&mut tools, &mut listing, directory),
                Work::Batch(batch) => self.meet(&mut tools, &batch),
            }
            let mut queue = self.queue();
            queue.working -= 1;
            if queue.working == 0 && queue.over {
                self.done.notify_all();
            }
        }
    }

    /// Until all threads are done, or have had their time and do not come to an end.
    fn wait(&self, wanted: &Wanted<'_>) {
        let given_up = self.leash.until() + GRACE;
        let mut queue = self.queue();
        while queue.working > 0 || !queue.over {
            if Instant::now() > given_up {
                self.leash.leave_out();
                break;
            }
            queue = self
                .done
                .wait_timeout(queue, LOOK)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if !wanted() {
                break;
            }
        }
        drop(queue);
        self.leash.end();
    }

    fn list(&self, tools: &mut V::Tools, listing: &mut Vec<u8>, directory: Directory) {
        let Directory {
            below,
            opened,
            chain,
        } = directory;
        let path = self.root.join(&below);
        let opened = if let Some(opened) = opened {
            opened
        } else {
            let flags = CALMLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            match rustix::fs::open(&path, flags, Mode::empty()) {
                Ok(opened) => opened,
                // Gone, or not ours to read.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return,
                Err(_) => return self.leash.leave_out(),
            }
        };
        if is_kernels(&opened).unwrap_or(true) {
            return;
        }
        let chain = if self.ignored {
            None
        } else {
            rules::within(&opened, &path, &chain)
        };
        let directory = Arc::new(opened);
        let below: Arc<Path> = below.into();
        let (mut files, mut since_look) = (Files::default(), 0);
        let mut full = path;
        listing.clear();
        let mut entries = RawDir::new(&*directory, listing.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else {
                self.leash.leave_out();
                break;
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." || SKIPPED.contains(&name) {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let stat = statat(&*directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                    stat.map_or(FileType::Unknown, |stat| {
                        FileType::from_raw_mode(stat.st_mode)
                    })
                }
                kind => kind,
            };
            let kind = match kind {
                FileType::RegularFile => Some(Kind::File),
                FileType::Symlink => Some(Kind::Link),
                FileType::Directory => None,
                _ => continue,
            };
            if let Some(rules) = &chain {
                full.push(OsStr::from_bytes(name));
                let left_out = rules.leave_out(&full, kind.is_none());
                full.pop();
                if left_out {
                    continue;
                }
            }
            match kind {
                None => self.push(Work::Directory(Directory {
                    below: below.join(OsStr::from_bytes(name)),
                    opened: None,
                    chain: chain.clone(),
                })),
                Some(kind) => files.push(kind, name),
            }
            since_look += 1;
            if since_look >= BATCH {
                since_look = 0;
                if self.leash.is_over() {
                    return;
                }
            }
            if files.ends.len() >= BATCH {
                self.hand_on(tools, &directory, &below, std::mem::take(&mut files));
            }
        }
        if !files.ends.is_empty() {
            self.meet(
                tools,
                &Batch {
                    directory,
                    below,
                    files,
                },
            );
        }
    }

    /// To whoever has time, or to ourselves when enough wait already.
    fn hand_on(
        &self,
        tools: &mut V::Tools,
        directory: &Arc<OwnedFd>,
        below: &Arc<Path>,
        files: Files,
    ) {
        let batch = Batch {
            directory: Arc::clone(directory),
            below: Arc::clone(below),
            files,
        };
        if self.queue().batches < MOST_BATCHES {
            self.push(Work::Batch(batch));
        } else {
            self.meet(tools, &batch);
        }
    }

    fn meet(&self, tools: &mut V::Tools, batch: &Batch) {
        let mut below = batch.below.as_os_str().as_bytes().to_vec();
        if !below.is_empty() {
            below.push(b'/');
        }
        let stem = below.len();
        for (kind, name) in batch.files.iter() {
            if self.leash.is_over() {
                break;
            }
            below.truncate(stem);
            below.extend_from_slice(name);
            self.visit.meet(
                tools,
                &Met {
                    directory: batch.directory.as_fd(),
                    name: OsStr::from_bytes(name),
                    kind,
                    below: Path::new(OsStr::from_bytes(&below)),
                },
            );
        }
        self.visit.pause(tools);
    }
}

/// The path as its caller would write it.
pub(super) fn shown(root: &Path, below: &Path) -> String {
    let path = root.join(below).into_os_string().into_vec();
    String::from_utf8(path)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
