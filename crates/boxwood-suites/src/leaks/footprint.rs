//! Everything a backend could leave on its host, as it is at one moment.
//!
//! Read from the kernel, not from the backend. Two [`Footprint`]s are compared entry by entry, so that a leak has a
//! name.
//!
//! Only descendants of the test count. The test calls [`Footprint::claim_orphans`] first, so that it becomes the parent
//! of every orphan of its tree.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, WaitOptions};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Entries by kind.
    kinds: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Footprint {
    /// Makes this process the parent of every orphan among its descendants.
    pub fn claim_orphans() -> anyhow::Result<()> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .context("becoming a subreaper")
    }

    /// Waits for dead processes of these names that were handed over by [`Footprint::claim_orphans`], and
    /// for a mount helper whose spawner ended first.
    pub fn reap(names: &[&str]) {
        for child in descendants() {
            let is_expected = names.contains(&child.name.as_str()) || child.name == "boxwood-mount";
            if child.zombie && is_expected {
                let pid = i32::try_from(child.pid).ok().and_then(Pid::from_raw);
                // Children of other processes cannot be waited for.
                let _ = rustix::process::waitpid(pid, WaitOptions::NOHANG);
            }
        }
    }

    /// `dirs` are the directories of the backend.
    pub fn take(dirs: &[PathBuf]) -> anyhow::Result<Self> {
        let children = descendants();
        let kinds = BTreeMap::from([
            ("process", children.iter().map(describe).collect()),
            ("mount", mounts()?),
            ("cgroup", cgroups()),
            ("namespace", namespaces(&children)),
            (
                "link",
                names(Path::new("/sys/class/net")).into_iter().collect(),
            ),
            ("firewall rule", firewall()),
            ("forwarding", forwarding()),
            ("descriptor", descriptors()),
            ("file", files(dirs)),
            ("System V object", system_v()),
        ]);
        Ok(Self { kinds })
    }

    /// New entries by kind. Entries that disappeared are not leaks.
    pub fn beyond(&self, before: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (kind, current) in &self.kinds {
            let previous = before.kinds.get(kind);
            for entry in current {
                if !previous.is_some_and(|previous| previous.contains(entry)) {
                    found.push(format!("{kind} {entry}"));
                }
            }
        }
        found
    }

    /// Number of entries by kind, to check that nothing grows while the backend runs.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        self.kinds
            .iter()
            .map(|(kind, entries)| (*kind, entries.len()))
            .collect()
    }
}

/// Takes footprints until one has nothing beyond `before`. Fails after `timeout` and lists what is left.
///
/// The kernel removes namespaces and links asynchronously, and other programs of the machine start and end; a leak is
/// what stays.
pub fn settle(before: &Footprint, dirs: &[PathBuf], timeout: Duration) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let left = Footprint::take(dirs)?.beyond(before);
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > timeout {
            anyhow::bail!("{} left behind:\n  {}", left.len(), left.join("\n  "));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

struct Child {
    pid: u32,
    name: String,
    zombie: bool,
}

fn describe(child: &Child) -> String {
    let state = if child.zombie {
        " (not waited for)"
    } else {
        ""
    };
    format!("{} `{}`{state}", child.pid, child.name)
}

/// Every process below this one.
fn descendants() -> Vec<Child> {
    let mut by_parent: BTreeMap<u32, Vec<Child>> = BTreeMap::new();
    for pid in names(Path::new("/proc"))
        .iter()
        .filter_map(|name| name.parse().ok())
    {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        // The name is in brackets and may itself hold brackets and blanks.
        let (Some(open), Some(close)) = (stat.find('('), stat.rfind(')')) else {
            continue;
        };
        let mut rest = stat[close + 1..].split_whitespace();
        let state = rest.next().unwrap_or_default();
        let Some(parent) = rest.next().and_then(|parent| parent.parse().ok()) else {
            continue;
        };
        by_parent.entry(parent).or_default().push(Child {
            pid,
            name: stat[open + 1..close].to_owned(),
            zombie: state == "Z" || state == "X",
        });
    }
    let mut found = Vec::new();
    let mut waiting = vec![std::process::id()];
    while let Some(parent) = waiting.pop() {
        for child in by_parent.remove(&parent).unwrap_or_default() {
            waiting.push(child.pid);
            found.push(child);
        }
    }
    found
}

fn mounts() -> anyhow::Result<BTreeSet<String>> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(table
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let kind = fields
                .iter()
                .position(|field| *field == "-")
                .and_then(|dash| fields.get(dash + 1))
                .unwrap_or(&"?");
            format!(
                "{} {} on {}",
                fields.first().unwrap_or(&"?"),
                kind,
                fields.get(4).unwrap_or(&"?")
            )
        })
        .collect())
}

/// Namespaces of the descendants that are not those of the test, and those that a descriptor of the test keeps.
fn namespaces(children: &[Child]) -> BTreeSet<String> {
    let own = links(Path::new("/proc/self/ns"));
    let mut found = BTreeSet::new();
    for child in children.iter().filter(|child| !child.zombie) {
        found.extend(links(Path::new(&format!("/proc/{}/ns", child.pid))));
    }
    found.extend(
        links(Path::new("/proc/self/fd"))
            .into_iter()
            // Not `socket:[…]`, `pipe:[…]` and `anon_inode:[…]`.
            .filter(|target| target.contains(":[") && !target.starts_with(['s', 'p', 'a'])),
    );
    found.difference(&own).cloned().collect()
}

fn links(directory: &Path) -> BTreeSet<String> {
    names(directory)
        .iter()
        .filter_map(|name| std::fs::read_link(directory.join(name)).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect()
}

fn firewall() -> BTreeSet<String> {
    // Only root can list rules, and only boxes of root have rules.
    let listed = std::process::Command::new("nft")
        .args(["list", "ruleset"])
        .stderr(std::process::Stdio::null())
        .output();
    let Ok(listed) = listed else {
        return BTreeSet::new();
    };
    // With the line number, so that two equal lines are two entries.
    String::from_utf8_lossy(&listed.stdout)
        .lines()
        .enumerate()
        .map(|(number, line)| format!("{number}: {}", line.trim()))
        .collect()
}

fn forwarding() -> BTreeSet<String> {
    [
        "net/ipv4/ip_forward",
        "net/ipv6/conf/all/forwarding",
        "net/ipv4/conf/all/route_localnet",
    ]
    .iter()
    .filter_map(|knob| {
        let value = std::fs::read_to_string(Path::new("/proc/sys").join(knob)).ok()?;
        Some(format!("{knob} = {}", value.trim()))
    })
    .collect()
}

fn descriptors() -> BTreeSet<String> {
    let directory = Path::new("/proc/self/fd");
    names(directory)
        .iter()
        .filter_map(|fd| {
            let target = std::fs::read_link(directory.join(fd)).ok()?;
            let target = target.to_string_lossy().into_owned();
            // Without the descriptor that reads this directory.
            (!target.starts_with("/proc/")).then(|| format!("{fd} -> {target}"))
        })
        .collect()
}

/// All files below the directories of the backend, and the entries of directories in which programs often leave files.
fn files(dirs: &[PathBuf]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for top in dirs {
        let mut waiting = vec![top.clone()];
        while let Some(directory) = waiting.pop() {
            for name in names(&directory) {
                let path = directory.join(name);
                if path.is_dir() && !path.is_symlink() {
                    waiting.push(path.clone());
                }
                found.insert(path.display().to_string());
            }
        }
    }
    for shared in ["/dev/shm", "/run", "/run/netns", "/run/lock"] {
        for name in names(Path::new(shared)) {
            found.insert(format!("{shared}/{name}"));
        }
    }
    // Other programs use the temporary directory too.
    for name in names(&std::env::temp_dir()) {
        if name.contains("boxwood") && !name.starts_with("boxwood-suite-") {
            found.insert(format!("temporary {name}"));
        }
    }
    found
}

fn system_v() -> BTreeSet<String> {
    ["shm", "sem", "msg"]
        .iter()
        .flat_map(|kind| {
            let table =
                std::fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default();
            table
                .lines()
                .skip(1)
                .map(|line| {
                    format!(
                        "{kind} {}",
                        line.split_whitespace()
                            .take(2)
                            .collect::<Vec<_>>()
                            .join(" ")
                    )
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Every cgroup except siblings of the test's own: session managers create and remove one for each job.
fn cgroups() -> BTreeSet<String> {
    let own_groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // Such as `4:memory:/jobs/17`: hierarchy, controllers, path.
    let own_groups = own_groups.lines().filter_map(|line| {
        let (jobs, own) = line.splitn(3, ':').nth(2)?.rsplit_once('/')?;
        (!jobs.is_empty()).then_some((format!("{jobs}/"), own))
    });
    let own_groups: Vec<_> = own_groups.collect();
    let is_beside = |cgroup: &str| {
        own_groups.iter().any(|(jobs, own)| {
            let job = cgroup.split_once(jobs.as_str());
            job.is_some_and(|(_, job)| job.split('/').next() != Some(*own))
        })
    };
    let mut all = directories(Path::new("/sys/fs/cgroup"));
    all.retain(|cgroup| cgroup.contains("boxwood") || !is_beside(cgroup));
    all
}

fn directories(top: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.insert(entry.path().display().to_string());
                waiting.push(entry.path());
            }
        }
    }
    found
}
