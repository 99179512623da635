//! The cgroup hierarchies that are mounted on this host.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Hierarchy, Version};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts {
    /// Controller to mount point.
    pub(crate) v1: BTreeMap<String, PathBuf>,
    pub(crate) v2: Option<PathBuf>,
}

impl Mounts {
    pub(crate) fn read() -> io::Result<Self> {
        fs::read_to_string("/proc/self/mountinfo").map(|text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut mounts = Self::default();
        for line in text.lines() {
            let Some((before, after)) = line.split_once(" - ") else {
                continue;
            };
            let (Some(point), Some(kind), Some(options)) = (
                before.split(' ').nth(4),
                after.split(' ').next(),
                after.split(' ').nth(2),
            ) else {
                continue;
            };
            match kind {
                "cgroup2" if mounts.v2.is_none() => mounts.v2 = Some(PathBuf::from(point)),
                "cgroup" => {
                    for option in options.split(',') {
                        mounts
                            .v1
                            .entry(option.to_owned())
                            .or_insert_with(|| point.into());
                    }
                }
                _ => {}
            }
        }
        mounts
    }
}

/// The groups that one process is in, as paths below their hierarchies.
#[derive(Debug, Default, PartialEq, Eq)]
struct Membership {
    v1: BTreeMap<String, String>,
    v2: Option<String>,
}

impl Membership {
    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if controllers.is_empty() {
                found.v2 = Some(path.to_owned());
            }
            for controller in controllers.split(',').filter(|name| !name.is_empty()) {
                found.v1.insert(controller.to_owned(), path.to_owned());
            }
        }
        found
    }
}

/// The cgroups of one process on this host.
pub(super) struct ProcessCgroups {
    mounts: Mounts,
    membership: Membership,
}

impl ProcessCgroups {
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        Ok(Self {
            mounts: Mounts::read()?,
            membership: Membership::parse(&fs::read_to_string(format!("/proc/{pid}/cgroup"))?),
        })
    }

    pub(super) fn v1(&self, controller: &str) -> Option<Hierarchy> {
        let mount = self.mounts.v1.get(controller)?;
        let path = below(mount, self.membership.v1.get(controller)?)?;
        Some(Hierarchy {
            version: Version::V1,
            path,
        })
    }

    pub(super) fn v2(&self) -> Option<PathBuf> {
        below(self.mounts.v2.as_ref()?, self.membership.v2.as_ref()?)
    }
}

/// The directory of a group, if this mount shows it and it is not the root group.
fn below(mount: &Path, path: &str) -> Option<PathBuf> {
    let inner = path.trim_start_matches('/');
    let group = mount.join(inner);
    (!inner.is_empty() && !inner.contains("..") && group.is_dir()).then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_hosts_have_v1_and_v2_hierarchies() {
        let mounts = Mounts::parse(
            "30 24 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
             31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
             32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n\
             33 24 0:29 / /tmp rw - tmpfs tmpfs rw\n",
        );
        assert_eq!(mounts.v1["memory"], PathBuf::from("/sys/fs/cgroup/memory"));
        assert_eq!(
            mounts.v1["cpu"],
            PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")
        );
        assert_eq!(mounts.v2, Some(PathBuf::from("/sys/fs/cgroup/unified")));
    }

    #[test]
    fn hosts_with_cgroup_v2_only_have_one_hierarchy() {
        let mounts = Mounts::parse(
            "29 22 0:25 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        assert!(mounts.v1.is_empty());
        assert_eq!(mounts.v2, Some(PathBuf::from("/sys/fs/cgroup")));
    }

    #[test]
    fn a_process_is_in_one_group_of_each_hierarchy() {
        let found = Membership::parse("4:memory:/docker/a:b\n1:cpu,cpuacct:/c\n0::/docker/x\n");
        assert_eq!(found.v1["memory"], "/docker/a:b");
        assert_eq!(found.v1["cpuacct"], "/c");
        assert_eq!(found.v2.as_deref(), Some("/docker/x"));
    }
}
