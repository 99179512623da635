//! Reopens the cgroups of a box that an earlier daemon created.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use serde::{Deserialize, Serialize};

use crate::lock;

use super::hierarchies::ProcessCgroups;
use super::{Cgroups, ExecGroup, Group, Hierarchy, Version};

/// Which groups a box had. Their paths are taken from the host, never from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one hierarchy, and none depends on another"
)]
pub(crate) struct GroupRecord {
    /// The daemon created them and removes them with the box.
    own: bool,
    memory: bool,
    cpu: bool,
    pids: bool,
    kill: bool,
}

impl Group {
    pub(crate) fn record(&self) -> GroupRecord {
        GroupRecord {
            own: !self.directories.is_empty(),
            memory: self.memory.is_some(),
            cpu: self.cpu.is_some(),
            pids: self.pids.is_some(),
            kill: self.kill.is_some(),
        }
    }

    /// The groups of the box called `name`, whose first process is `pid`.
    pub(crate) fn reopen(
        cgroups: &Cgroups,
        record: GroupRecord,
        name: &str,
        pid: i32,
        init_uid: u32,
    ) -> io::Result<Self> {
        let mut group = if record.own {
            Self::reopen_own(cgroups, name, init_uid)
        } else {
            Self::reopen_observed(record, pid, init_uid)?
        };
        // A limit that the box had and that cannot be found again is an error.
        if group.record() != record {
            return Err(io::Error::other("a cgroup of the box is missing"));
        }
        group.open_events()?;
        group.find_commands()?;
        Ok(group)
    }

    fn reopen_own(cgroups: &Cgroups, name: &str, init_uid: u32) -> Self {
        let mut group = Self::at(cgroups, name, init_uid);
        group.directories.retain(|path| path.is_dir());
        for hierarchy in [&mut group.memory, &mut group.cpu, &mut group.pids] {
            hierarchy.take_if(|hierarchy| !hierarchy.path.is_dir());
        }
        group.kill.take_if(|path| !path.is_dir());
        group
    }

    /// Takes the paths from `/proc` of the box's first process.
    fn reopen_observed(record: GroupRecord, pid: i32, init_uid: u32) -> io::Result<Self> {
        let cgroups = ProcessCgroups::of(pid)?;
        let hierarchy = |recorded: bool, controller: &str| {
            let v2 = || {
                Some(Hierarchy {
                    version: Version::V2,
                    path: cgroups.v2()?,
                })
            };
            recorded
                .then(|| cgroups.v1(controller).or_else(v2))
                .flatten()
        };
        Ok(Self {
            memory: hierarchy(record.memory, "memory"),
            cpu: hierarchy(record.cpu, "cpu"),
            pids: hierarchy(record.pids, "pids"),
            kill: record.kill.then(|| cgroups.v2()).flatten(),
            init_uid,
            ..Self::default()
        })
    }

    /// Populated command groups are kept, empty ones are removed later. None is reused: it may have been
    /// killed before, and current kernels kill every process that is created in a killed group.
    fn find_commands(&mut self) -> io::Result<()> {
        let Some(parent) = self.kill.clone() else {
            return Ok(());
        };
        let mut next = 0;
        let mut found = Vec::new();
        for entry in fs::read_dir(&parent)?.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix('e'));
            if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
                next = next.max(number.saturating_add(1));
                found.push(entry.path());
            }
        }
        self.next = AtomicU64::new(next);
        for path in found {
            let group = ExecGroup::reopen(&path)?;
            lock(&self.lingering).push(group);
        }
        if self.directories.is_empty() {
            // As at the start of the box; the engine may have changed the owner back.
            chown(parent.join("cgroup.procs"), Some(self.init_uid), None)?;
        }
        Ok(())
    }

    /// Takes the group of a kept program, which must be a sub-group of the box.
    pub(crate) fn claim(&self, name: &str) -> Option<ExecGroup> {
        let mut lingering = lock(&self.lingering);
        let found = lingering
            .iter()
            .position(|group| group.name().as_deref() == Some(name))?;
        Some(lingering.swap_remove(found))
    }
}

impl ExecGroup {
    fn reopen(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: PathBuf::from(path),
            directory: Arc::new(File::open(path)?),
            events: File::open(path.join("cgroup.events"))?,
            killed: AtomicBool::new(true),
            thawed_after: 0,
        })
    }

    /// Name of the sub-group.
    pub(crate) fn name(&self) -> Option<String> {
        let name = self.path.file_name()?.to_str()?;
        Some(name.to_owned())
    }
}
