//! Stops the commands of a box where they stand, and lets them go on.
//!
//! Comes in: nothing. Goes out: whether every command stands still. Never here: init. It is in the
//! box's own group and not in a command's, so it goes on waiting for the next daemon and answering
//! this one.
//!
//! Only the v2 freezer is used: what it stops notices nothing, and can still be killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::kill_all::is_populated;
use super::{Group, Version};

/// For every command to stand still. A task deep in the kernel takes until it comes out of there.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// What is known of one box.
#[derive(Debug)]
pub(crate) struct Frost {
    /// Whether a group of a command may be frozen. Set before the first one is, and at first: an
    /// earlier daemon may have made the box, and only the kernel knows what it did.
    maybe: AtomicBool,
    /// Number of freezes begun, from 1. 0 marks groups of an earlier daemon.
    freezes: AtomicU64,
    /// Whether it stands still for a look only, and goes on by itself.
    held: AtomicBool,
    /// Held by the one who freezes or thaws.
    alone: tokio::sync::Mutex<()>,
}

impl Default for Frost {
    fn default() -> Self {
        Self {
            maybe: AtomicBool::new(true),
            freezes: AtomicU64::new(1),
            held: AtomicBool::new(false),
            alone: tokio::sync::Mutex::default(),
        }
    }
}

impl Frost {
    pub(super) fn freezes(&self) -> u64 {
        self.freezes.load(Ordering::SeqCst)
    }
}

impl Group {
    /// False where no hierarchy can do it. An error leaves every command running.
    pub(crate) async fn freeze(&self) -> io::Result<bool> {
        let Some(parent) = self.kill.as_deref() else {
            return Ok(false);
        };
        let _alone = self.frost.alone.lock().await;
        self.frost.maybe.store(true, Ordering::Release);
        self.frost.freezes.fetch_add(1, Ordering::SeqCst);
        let outcome = match command_groups(parent) {
            Ok(groups) => freeze_all(&groups).await,
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            // Half a box that stands still is worse than none.
            self.let_run()?;
        }
        outcome.map(|()| true)
    }

    /// The same for a moment, for as long as this daemon has the box.
    pub(crate) async fn hold(&self, is_let_go: impl Fn() -> bool) -> io::Result<bool> {
        self.frost.held.store(true, Ordering::SeqCst);
        let outcome = self.freeze().await;
        if is_let_go() {
            // The next daemon may have thawed it already.
            self.let_run()?;
        }
        outcome
    }

    /// Who is to stand still for a look.
    pub(crate) fn told_to_stop(&self) -> Vec<i32> {
        let Some(parent) = self.kill.as_deref() else {
            return Vec::new();
        };
        if !self.frost.held.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let groups = command_groups(parent).unwrap_or_default();
        let pids = groups.iter().flat_map(|group| {
            let pids = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            let pids = pids.lines().filter_map(|pid| pid.parse::<i32>().ok());
            pids.collect::<Vec<_>>()
        });
        pids.collect()
    }

    /// What stands still for a look must not do so until the next daemon comes.
    pub(crate) fn let_go(&self) {
        if self.frost.held.load(Ordering::SeqCst)
            && let Err(error) = self.let_run()
        {
            tracing::warn!(%error, "a box that was held does not go on");
        }
    }

    pub(crate) async fn thaw(&self) -> io::Result<()> {
        if !self.frost.maybe.load(Ordering::Acquire) {
            return Ok(());
        }
        let _alone = self.frost.alone.lock().await;
        self.let_run()
    }

    fn let_run(&self) -> io::Result<()> {
        let Some(parent) = self.kill.as_deref() else {
            return Ok(());
        };
        let mut failed = None;
        for group in command_groups(parent)? {
            // One that does not thaw must not keep the others.
            if let Err(error) = set(&group, "0") {
                failed = Some(error);
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        self.frost.maybe.store(false, Ordering::Release);
        self.frost.held.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Gives back what the kernel can take from a box that stands still: file pages, and what may be
    /// swapped. Slow, so not for a thread that others wait for. Bytes that went.
    pub(crate) fn give_memory_back(&self) -> u64 {
        let Some((version, path)) = &self.memory else {
            return 0;
        };
        let (usage, file) = match version {
            Version::One => ("memory.usage_in_bytes", "memory.force_empty"),
            Version::Two => ("memory.current", "memory.reclaim"),
        };
        let used = || {
            let text = fs::read_to_string(path.join(usage)).unwrap_or_default();
            text.trim().parse::<u64>().unwrap_or(0)
        };
        let before = used();
        let wanted = match version {
            Version::One => "0".to_owned(),
            Version::Two => before.to_string(),
        };
        // The kernel says no when it got less than was asked for, which is usual; older ones have no
        // such file.
        let _ = fs::write(path.join(file), wanted);
        before.saturating_sub(used())
    }
}

/// The groups of commands that are there now. A box that is going away has none.
pub(super) fn command_groups(parent: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut groups = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) if entry.file_type().is_ok_and(|kind| kind.is_dir()) => {
                groups.push(entry.path());
            }
            Ok(_) => {}
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(groups)
}

async fn freeze_all(groups: &[PathBuf]) -> io::Result<()> {
    // Those without anybody wait for the next command, which must not be born frozen: init waits for it
    // to become another program.
    let groups: Vec<&PathBuf> = groups.iter().filter(|group| is_populated(group)).collect();
    for group in &groups {
        set(group, "1")?;
    }
    let deadline = Instant::now() + LONGEST_WAIT;
    for group in groups {
        let mut pause = SHORTEST_PAUSE;
        while !stands_still(group)? {
            if Instant::now() > deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "a command of the box does not stand still",
                ));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
    Ok(())
}

pub(super) fn set(group: &Path, value: &str) -> io::Result<()> {
    match fs::write(group.join("cgroup.freeze"), value) {
        Err(error) if is_gone(&error) => Ok(()),
        outcome => outcome,
    }
}

fn stands_still(group: &Path) -> io::Result<bool> {
    match fs::read_to_string(group.join("cgroup.events")) {
        Ok(text) => Ok(text.lines().any(|line| line == "frozen 1")),
        Err(error) if is_gone(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

/// A group that was removed meanwhile.
pub(super) fn is_gone(error: &io::Error) -> bool {
    let gone = [rustix::io::Errno::NOENT, rustix::io::Errno::NODEV];
    error
        .raw_os_error()
        .is_some_and(|raw| gone.iter().any(|errno| errno.raw_os_error() == raw))
}
