//! Freezes and thaws the commands of a box.
//!
//! Only the v2 freezer is used: it is invisible to the programs, and frozen processes can still be killed.
//! Init is in the box's own group, not in a command's, so it is never frozen.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::kill_all::is_populated;
use super::{Group, Version};

/// Deadline for all commands to freeze. A task inside the kernel freezes when it leaves it.
const MAX_WAIT: Duration = Duration::from_secs(2);
const MIN_PAUSE: Duration = Duration::from_micros(100);
const MAX_PAUSE: Duration = Duration::from_millis(10);

/// Freezer state of one box.
#[derive(Debug, Default)]
pub(crate) struct FreezeState {
    /// True if no command group is frozen. Initially false: an earlier daemon may have frozen an adopted box.
    is_thawed: AtomicBool,
    /// Number of freezes started.
    freezes: AtomicU64,
    /// Serializes freezing and thawing.
    lock: tokio::sync::Mutex<()>,
}

impl FreezeState {
    pub(super) fn freezes(&self) -> u64 {
        self.freezes.load(Ordering::SeqCst)
    }
}

impl Group {
    /// Returns false if no hierarchy has a freezer. On an error every command keeps running.
    pub(crate) async fn freeze(&self) -> io::Result<bool> {
        let Some(parent) = self.kill.as_deref() else {
            return Ok(false);
        };
        let _lock = self.freeze_state.lock.lock().await;
        self.freeze_state.is_thawed.store(false, Ordering::Release);
        self.freeze_state.freezes.fetch_add(1, Ordering::SeqCst);
        let outcome = match command_groups(parent) {
            Ok(groups) => freeze_all(&groups).await,
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            // A partly frozen box is worse than a running one.
            self.thaw_all()?;
        }
        outcome.map(|()| true)
    }

    pub(crate) async fn thaw(&self) -> io::Result<()> {
        if self.freeze_state.is_thawed.load(Ordering::Acquire) {
            return Ok(());
        }
        let _lock = self.freeze_state.lock.lock().await;
        self.thaw_all()
    }

    fn thaw_all(&self) -> io::Result<()> {
        let Some(parent) = self.kill.as_deref() else {
            return Ok(());
        };
        let mut outcome = Ok(());
        for group in command_groups(parent)? {
            // A group that cannot be thawed must not block the others.
            let thawed = set(&group, "0");
            outcome = outcome.and(thawed);
        }
        outcome?;
        self.freeze_state.is_thawed.store(true, Ordering::Release);
        Ok(())
    }

    /// Reclaims memory of a frozen box: page cache, and pages that can be swapped. Slow, so it runs on a
    /// blocking thread. Returns the number of bytes.
    pub(crate) fn reclaim_memory(&self) -> u64 {
        let Some(hierarchy) = &self.memory else {
            return 0;
        };
        let used = || {
            let file = hierarchy.file("memory.usage_in_bytes", "memory.current");
            let text = fs::read_to_string(file).unwrap_or_default();
            text.trim().parse::<u64>().unwrap_or(0)
        };
        let before = used();
        let value = match hierarchy.version {
            Version::V1 => "0".to_owned(),
            Version::V2 => before.to_string(),
        };
        // The kernel returns an error if it reclaimed less than requested, which is common. Older
        // kernels do not have the file.
        let _ = fs::write(
            hierarchy.file("memory.force_empty", "memory.reclaim"),
            value,
        );
        before.saturating_sub(used())
    }
}

/// The command groups that exist now. A box that is being removed has none.
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
    // Empty groups are reserved for the next command, which must not start frozen: init waits until it
    // has called `execve`.
    let groups: Vec<&PathBuf> = groups.iter().filter(|group| is_populated(group)).collect();
    for group in &groups {
        set(group, "1")?;
    }
    let deadline = Instant::now() + MAX_WAIT;
    for group in groups {
        let mut pause = MIN_PAUSE;
        while !is_frozen(group)? {
            if Instant::now() > deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "a command of the box did not freeze in time",
                ));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
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

fn is_frozen(group: &Path) -> io::Result<bool> {
    match fs::read_to_string(group.join("cgroup.events")) {
        Ok(text) => Ok(text.lines().any(|line| line == "frozen 1")),
        Err(error) if is_gone(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns true if the group was removed in the meantime.
pub(super) fn is_gone(error: &io::Error) -> bool {
    let missing = [rustix::io::Errno::NOENT, rustix::io::Errno::NODEV];
    error
        .raw_os_error()
        .is_some_and(|raw| missing.iter().any(|errno| errno.raw_os_error() == raw))
}
