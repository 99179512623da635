//! The cgroups of one box.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_api::Mechanism;
use boxwood_policy::Limits;
use serde::{Deserialize, Serialize};

use crate::lock;

use super::freeze::{self, FreezeState};
use super::hierarchies::ProcessCgroups;
use super::leftovers::{directories, remove_tree};
use super::{Cgroups, Hierarchy, Version, make_group};

/// Processes of ours in a box: init, and a file operation beside it.
pub const INIT_PROCESSES: u64 = 2;
const CPU_PERIOD_US: u64 = 100_000;

/// The groups of one box, in every hierarchy.
#[derive(Default)]
pub struct Group {
    pub(super) directories: Vec<PathBuf>,
    pub(super) memory: Option<Hierarchy>,
    pub(super) cpu: Option<Hierarchy>,
    pub(super) pids: Option<Hierarchy>,
    pub(super) kill: Option<PathBuf>,
    pub(super) oom_events: Option<File>,
    pub(super) pids_events: Option<File>,
    /// Host uid of init, which may move its children into sub-groups.
    pub(super) init_uid: u32,
    pub(super) idle: Mutex<Vec<ExecGroup>>,
    /// Sub-groups that were released while they still had processes.
    pub(super) lingering: Mutex<Vec<ExecGroup>>,
    pub(super) next: AtomicU64,
    pub(super) freeze_state: FreezeState,
    /// Sub-groups that `kill_all` has killed and that are not released yet.
    pub(super) killed_groups: Mutex<HashSet<PathBuf>>,
}

/// Kernel counters since the box was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    #[serde(rename = "oom_before")]
    pub(crate) oom: u64,
    #[serde(rename = "pids_before")]
    pub(crate) pids: u64,
}

/// The sub-group of one command's tree.
#[derive(Debug)]
pub(crate) struct ExecGroup {
    pub(super) path: PathBuf,
    pub(crate) directory: Arc<File>,
    pub(super) events: File,
    pub(super) killed: AtomicBool,
    /// Value of the freeze counter when this group was last known to be thawed.
    pub(super) thawed_after: u64,
}

impl Group {
    pub fn create(cgroups: &Cgroups, name: &str, init_uid: u32) -> io::Result<Self> {
        let mut group = Self::at(cgroups, name, init_uid);
        if let Err(error) = group.make() {
            group.try_remove();
            return Err(error);
        }
        Ok(group)
    }

    fn make(&mut self) -> io::Result<()> {
        for directory in &self.directories {
            make_group(directory)?;
        }
        self.open_events()?;
        if let Some(path) = &self.kill {
            // `CLONE_INTO_CGROUP` needs write access to the common ancestor as well.
            chown(path.join("cgroup.procs"), Some(self.init_uid), None)?;
        }
        Ok(())
    }

    /// The groups of the box called `name`, whether they exist or not.
    pub(super) fn at(cgroups: &Cgroups, name: &str, init_uid: u32) -> Self {
        let own = |hierarchy: &Option<Hierarchy>| {
            hierarchy.as_ref().map(|hierarchy| Hierarchy {
                version: hierarchy.version,
                path: hierarchy.path.join(name),
            })
        };
        Self {
            directories: cgroups.bases().iter().map(|base| base.join(name)).collect(),
            memory: own(&cgroups.memory),
            cpu: own(&cgroups.cpu),
            pids: own(&cgroups.pids),
            kill: cgroups.kill.as_ref().map(|base| base.join(name)),
            init_uid,
            ..Self::default()
        }
    }

    pub(super) fn open_events(&mut self) -> io::Result<()> {
        if let Some(hierarchy) = &self.memory {
            let file = hierarchy.file("memory.oom_control", "memory.events");
            self.oom_events = Some(File::open(file)?);
        }
        if let Some(hierarchy) = &self.pids {
            self.pids_events = Some(File::open(hierarchy.path.join("pids.events"))?);
        }
        Ok(())
    }

    /// Opens the groups that a container engine created for the box whose first process is `pid`:
    /// counters, and sub-groups for commands if the box has a group to itself. The engine removes its own
    /// groups.
    pub fn observed(pid: i32, init_uid: u32) -> io::Result<Self> {
        let cgroups = ProcessCgroups::of(pid)?;
        let in_v2 = |controller: &str| {
            let group = cgroups.v2()?;
            let controllers = fs::read_to_string(group.join("cgroup.controllers")).ok()?;
            let has_controller = controllers
                .split_whitespace()
                .any(|name| name == controller);
            has_controller.then_some(Hierarchy {
                version: Version::V2,
                path: group,
            })
        };
        // The limit of a group with other processes is not a limit of this box.
        let hierarchy = |controller: &str| {
            let hierarchy = cgroups.v1(controller).or_else(|| in_v2(controller));
            hierarchy.filter(|hierarchy| is_alone_in(pid, &hierarchy.path))
        };
        let can_kill =
            |group: &PathBuf| is_alone_in(pid, group) && group.join("cgroup.kill").exists();
        let mut group = Self {
            memory: hierarchy("memory"),
            cpu: hierarchy("cpu"),
            pids: hierarchy("pids"),
            kill: cgroups.v2().filter(can_kill),
            init_uid,
            ..Self::default()
        };
        group.open_events()?;
        if let Some(path) = &group.kill
            && chown(path.join("cgroup.procs"), Some(init_uid), None).is_err()
        {
            // The group cannot be delegated; init supervises commands without cgroups instead.
            group.kill = None;
        }
        Ok(group)
    }

    /// Returns true if the process tree of a command can be killed at once.
    pub fn kills(&self) -> bool {
        self.kill.is_some()
    }

    /// The parts of `limits` that the kernel does not enforce, according to the cgroup files.
    pub fn unenforced(&self, limits: &Limits) -> Vec<Mechanism> {
        let number = |hierarchy: &Option<Hierarchy>, v1: &str, v2: &str| {
            let text = fs::read_to_string(hierarchy.as_ref()?.file(v1, v2)).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        let memory = number(&self.memory, "memory.limit_in_bytes", "memory.max");
        let cpu = number(&self.cpu, "cpu.cfs_quota_us", "cpu.max");
        let pids = number(&self.pids, "pids.max", "pids.max");
        let max_memory_bytes = limits.memory_mb.saturating_mul(1024 * 1024);
        let max_pids = limits.pids.saturating_add(INIT_PROCESSES);
        [
            (
                Mechanism::CpuLimit,
                cpu.is_some_and(|quota| self.cpus_of(quota) <= limits.cpus + 0.01),
            ),
            (
                Mechanism::MemoryLimit,
                memory.is_some_and(|bytes| bytes <= max_memory_bytes),
            ),
            (
                Mechanism::PidsLimit,
                pids.is_some_and(|limit| limit <= max_pids),
            ),
        ]
        .into_iter()
        .filter_map(|(mechanism, enforced)| (!enforced).then_some(mechanism))
        .collect()
    }

    /// Number of CPUs that `quota` allows, given the period that the engine set.
    #[expect(
        clippy::cast_precision_loss,
        reason = "periods and quotas are microseconds, far below what a float holds"
    )]
    fn cpus_of(&self, quota: u64) -> f64 {
        let period = self.cpu.as_ref().and_then(|hierarchy| {
            let text = fs::read_to_string(hierarchy.file("cpu.cfs_period_us", "cpu.max")).ok()?;
            // `cpu.max` contains the quota, too.
            text.split_whitespace().last()?.parse::<u64>().ok()
        });
        quota as f64 / period.unwrap_or(1).max(1) as f64
    }

    /// Moves a process into the groups. Costs an RCU grace period, so it is done ahead of time.
    pub fn add(&self, pid: i32) -> io::Result<()> {
        for directory in &self.directories {
            fs::write(directory.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Does nothing for groups that an engine created: it has set their limits.
    pub(crate) fn limit(&self, limits: &Limits) -> io::Result<()> {
        if self.directories.is_empty() {
            return Ok(());
        }
        let bytes = limits.memory_mb.saturating_mul(1024 * 1024).to_string();
        if let Some(hierarchy) = &self.memory {
            fs::write(
                hierarchy.file("memory.limit_in_bytes", "memory.max"),
                &bytes,
            )?;
            // On v1 the limit is of memory and swap together.
            let swap = match hierarchy.version {
                Version::V1 => bytes.as_str(),
                Version::V2 => "0",
            };
            let file = hierarchy.file("memory.memsw.limit_in_bytes", "memory.swap.max");
            write_if_exists(&file, swap)?;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "policy admits only small positive numbers"
        )]
        let quota = ((limits.cpus * CPU_PERIOD_US as f64) as u64).max(1000);
        match &self.cpu {
            Some(Hierarchy {
                version: Version::V1,
                path,
            }) => {
                fs::write(path.join("cpu.cfs_period_us"), CPU_PERIOD_US.to_string())?;
                fs::write(path.join("cpu.cfs_quota_us"), quota.to_string())?;
            }
            Some(Hierarchy {
                version: Version::V2,
                path,
            }) => {
                fs::write(path.join("cpu.max"), format!("{quota} {CPU_PERIOD_US}"))?;
            }
            None => {}
        }
        if let Some(hierarchy) = &self.pids {
            let max_pids = limits.pids.saturating_add(INIT_PROCESSES);
            fs::write(hierarchy.path.join("pids.max"), max_pids.to_string())?;
        }
        Ok(())
    }

    pub(crate) fn counters(&self) -> Counters {
        let count = |file: &Option<File>, name| file.as_ref().map_or(0, |file| field(file, name));
        Counters {
            oom: count(&self.oom_events, "oom_kill "),
            pids: count(&self.pids_events, "max "),
        }
    }

    /// A sub-group for one command, or `None` if no hierarchy can kill.
    pub(crate) fn exec_group(&self) -> io::Result<Option<ExecGroup>> {
        let Some(parent) = &self.kill else {
            return Ok(None);
        };
        self.release_emptied();
        let idle = lock(&self.idle).pop();
        // Read after `pop`: a group that is frozen and then released in between would seem thawed.
        let freezes = self.freeze_state.freezes();
        if let Some(mut group) = idle {
            // The group may have been frozen while it had processes.
            if group.thawed_after != freezes {
                freeze::set(&group.path, "0")?;
                group.thawed_after = freezes;
            }
            return Ok(Some(group));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("e{number}"));
        fs::create_dir(&path)?;
        let ready = || {
            chown(path.join("cgroup.procs"), Some(self.init_uid), None)?;
            Ok((File::open(&path)?, File::open(path.join("cgroup.events"))?))
        };
        match ready() {
            Ok((directory, events)) => Ok(Some(ExecGroup {
                path,
                directory: Arc::new(directory),
                events,
                killed: AtomicBool::new(false),
                thawed_after: freezes,
            })),
            Err(error) => {
                let _ = fs::remove_dir(&path);
                Err(error)
            }
        }
    }

    /// Takes a sub-group back for the next command. If it still has processes (a command left some in the
    /// background) it is kept until they end. A killed group is not reused: current kernels kill every
    /// process that is created in it later.
    pub(crate) fn release(&self, group: ExecGroup) {
        let list = if group.is_populated() {
            &self.lingering
        } else if group.killed.load(Ordering::Acquire) || self.take_killed(&group.path) {
            let _ = fs::remove_dir(&group.path);
            return;
        } else {
            &self.idle
        };
        lock(list).push(group);
    }

    /// Releases sub-groups whose background processes have ended, so that a long session does not
    /// accumulate one for every command.
    fn release_emptied(&self) {
        let lingering = std::mem::take(&mut *lock(&self.lingering));
        for group in lingering {
            self.release(group);
        }
    }

    /// Removes every directory and waits until the kernel has released the dead processes.
    pub(crate) async fn remove(&self) -> io::Result<()> {
        for groups in [&self.idle, &self.lingering] {
            lock(groups).clear();
        }
        let mut pause = Duration::from_micros(200);
        for _ in 0..200 {
            if self.try_remove() {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        Err(io::Error::other("the cgroups of the box are still in use"))
    }

    /// Returns true if no directory is left.
    pub(crate) fn try_remove(&self) -> bool {
        if self.directories.is_empty() {
            return self.kill.as_deref().is_none_or(remove_below);
        }
        for directory in &self.directories {
            if fs::remove_dir(directory).is_err() && directory.is_dir() {
                remove_tree(directory);
            }
        }
        self.directories.iter().all(|directory| !directory.exists())
    }
}

impl ExecGroup {
    fn is_populated(&self) -> bool {
        field(&self.events, "populated ") != 0
    }

    /// Kills every process in the group.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.killed.store(true, Ordering::Release);
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// Current host pids of the group.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

/// Returns true if `pid` is the only process in the group, so that the group belongs to the box.
fn is_alone_in(pid: i32, group: &Path) -> bool {
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    members.trim() == pid.to_string()
}

/// Removes the sub-groups of a group that stays. Returns true if none is left.
fn remove_below(group: &Path) -> bool {
    for below in directories(group) {
        remove_tree(&below);
    }
    directories(group).is_empty()
}

/// Writes the file if it exists; hosts without swap accounting lack some of them.
fn write_if_exists(path: &Path, value: &str) -> io::Result<()> {
    if path.exists() {
        fs::write(path, value)
    } else {
        Ok(())
    }
}

/// The number after `name` in a file of counters.
fn field(file: &File, name: &str) -> u64 {
    let mut buffer = [0_u8; 1024];
    let n = file.read_at(&mut buffer, 0).unwrap_or(0);
    let text = std::str::from_utf8(&buffer[..n]).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}
