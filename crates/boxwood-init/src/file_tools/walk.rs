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

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::leash::{Leash, Wanted};
use super::listing::{Kind, Listing, Names, Room};
use super::open::{CALMLY, is_kernels};
use super::rules::{self, Chain, Signs};

/// More do not help: a search waits for memory and the kernel's locks.
const MOST_THREADS: usize = 4;
const STACK: usize = 1024 * 1024;
/// Parts of large directories that wait; each keeps its directory open.
const MOST_BATCHES: usize = 32;
/// Bytes of paths that wait. A tree that needs more is searched in part.
const MOST_WAITING: usize = 32 * 1024 * 1024;
/// How long a thread may go on after its time before nobody waits for it.
const GRACE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);
/// Files between two looks at the clock. Reading it costs as much as judging a name.
const BETWEEN_LOOKS: usize = 16;

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
    walk.push([Work::Directory(Directory {
        below: PathBuf::new(),
        opened: Some(top),
        chain,
    })]);
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
            chain = rules::within(&directory, path, Signs::ANY, &chain);
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
    files: Names,
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

    /// The last of these is done first.
    fn push(&self, works: impl IntoIterator<Item = Work>) {
        let mut queue = self.queue();
        for work in works {
            match &work {
                Work::Directory(directory) => {
                    let size = size_of::<Work>() + directory.below.as_os_str().len();
                    if queue.bytes + size > MOST_WAITING {
                        self.leash.leave_out();
                        continue;
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
        let mut room = Room::default();
        while let Some(work) = self.next() {
            match work {
                Work::Directory(directory) => self.list(&mut tools, &mut room, directory),
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
            // Ends it for all of them when its time has come.
            self.leash.is_over();
        }
        drop(queue);
        self.leash.end();
    }

    fn list(&self, tools: &mut V::Tools, room: &mut Room, directory: Directory) {
        let path = self.root.join(&directory.below);
        let opened = if let Some(opened) = directory.opened {
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
        let opened = Arc::new(opened);
        let below: Arc<Path> = directory.below.into();
        let mut rules = None;
        let mut full = path;
        let mut listing = Listing::new(opened.as_fd(), room);
        while listing.read_on(&self.leash) {
            let chain = rules.get_or_insert_with(|| {
                let within = || rules::within(&opened, &full, listing.signs(), &directory.chain);
                if self.ignored { None } else { within() }
            });
            let (mut files, mut directories) = (Names::default(), Vec::new());
            for (kind, name) in listing.names() {
                if let Some(rules) = chain {
                    full.push(OsStr::from_bytes(name));
                    let left_out = rules.leave_out(&full, kind == Kind::Directory);
                    full.pop();
                    if left_out {
                        continue;
                    }
                }
                match kind {
                    Kind::Directory => directories.push(Work::Directory(Directory {
                        below: below.join(OsStr::from_bytes(name)),
                        opened: None,
                        chain: chain.clone(),
                    })),
                    kind => files.push(kind, name),
                }
            }
            if !directories.is_empty() {
                self.push(directories.into_iter().rev());
            }
            if self.leash.is_over() {
                return;
            }
            if files.is_empty() {
                continue;
            }
            let batch = Batch {
                directory: Arc::clone(&opened),
                below: Arc::clone(&below),
                files,
            };
            if listing.is_over() {
                self.meet(tools, &batch);
            } else {
                self.hand_on(tools, batch);
            }
        }
    }

    /// To whoever has time, or to ourselves when enough wait already.
    fn hand_on(&self, tools: &mut V::Tools, batch: Batch) {
        if self.queue().batches < MOST_BATCHES {
            self.push([Work::Batch(batch)]);
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
        for (number, (kind, name)) in batch.files.iter().enumerate() {
            if self.leash.has_ended() || (number % BETWEEN_LOOKS == 0 && self.leash.is_over()) {
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
