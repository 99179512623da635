//! Removes what engines leave behind, whatever state they were in when they ended.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use super::daemon::signal;
use crate::run::output;

const CGROUPS: &str = "/sys/fs/cgroup";
const SHIM_SOCKETS: &str = "/run/containerd/s";
/// Killed processes usually end at once.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn kill_processes(directory: &Path, cgroup: &str) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let found = processes(directory, cgroup)?;
        if found.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("these processes could not be killed: {found:?}");
        }
        for pid in found {
            signal(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn processes(directory: &Path, cgroup: &str) -> Result<Vec<u32>> {
    let directory = directory.to_string_lossy();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid != std::process::id() && belongs(pid, &directory, cgroup) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// A process that ended meanwhile does not count.
fn belongs(pid: u32, directory: &str, cgroup: &str) -> bool {
    let read = |file: &str| {
        fs::read(format!("/proc/{pid}/{file}"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    };
    // A zombie is dead already; its parent has not reaped it yet.
    if read("stat")
        .rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('Z'))
    {
        return false;
    }
    names_path(&read("cmdline"), directory)
        || names_path(&read("cgroup"), &format!("/{cgroup}"))
        || root_mount(&read("mountinfo")).is_some_and(|line| names_path(line, directory))
        // Podman's process that keeps a user namespace open has its name alone for a command line.
        || (read("comm").starts_with("podman") && names_path(&read("environ"), directory))
}

/// Whether a path occurs whole: `/a/b-1` is not in `/a/b-12/c`.
fn names_path(text: &str, path: &str) -> bool {
    text.match_indices(path).any(|(index, _)| {
        !text[index + path.len()..].starts_with(|c: char| c.is_alphanumeric() || "-_.".contains(c))
    })
}

/// The line about what a process sees as `/`: in a container, the engine's storage.
fn root_mount(mountinfo: &str) -> Option<&str> {
    mountinfo
        .lines()
        .rfind(|line| line.split(' ').nth(4) == Some("/"))
}

pub(super) fn unmount(directory: &Path) -> Result<()> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
    // The last mounted lies on top.
    for mount_point in mount_points_below(&mountinfo, directory).iter().rev() {
        // Lazily, because one busy mount would prevent the removal of the others.
        output(Command::new("umount").arg("--lazy").arg(mount_point))?;
    }
    Ok(())
}

fn mount_points_below(mountinfo: &str, directory: &Path) -> Vec<PathBuf> {
    mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(PathBuf::from)
        .filter(|mount_point| mount_point.starts_with(directory))
        .collect()
}

/// Docker's containerd keeps a socket for each container in one place for the whole machine, and one
/// that was killed leaves it there. Such a socket has no listener.
pub(super) fn remove_dead_sockets() {
    for entry in fs::read_dir(SHIM_SOCKETS).into_iter().flatten().flatten() {
        let path = entry.path();
        if UnixStream::connect(&path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a group and those below it, in every hierarchy.
pub(super) fn remove_cgroup(name: &str) -> Result<()> {
    for group in in_every_hierarchy(name)? {
        remove_tree(&group)
            .with_context(|| format!("the cgroup `{}` could not be removed", group.display()))?;
    }
    Ok(())
}

/// For a shared group: it is kept while it has processes.
pub(super) fn remove_empty_cgroup(name: &str) {
    for group in in_every_hierarchy(name).unwrap_or_default() {
        let _ = fs::remove_dir(group);
    }
}

fn in_every_hierarchy(name: &str) -> io::Result<Vec<PathBuf>> {
    let top = Path::new(CGROUPS);
    let mut hierarchies = vec![top.to_owned()];
    for entry in fs::read_dir(top)? {
        let entry = entry?;
        // Some hierarchies are links to others.
        if entry.file_type()?.is_dir() {
            hierarchies.push(entry.path());
        }
    }
    Ok(hierarchies
        .into_iter()
        .map(|hierarchy| hierarchy.join(name))
        .filter(|group| group.is_dir())
        .collect())
}

fn remove_tree(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use super::*;

    #[test]
    fn a_path_is_found_whole() {
        assert!(names_path("x --root=/a/b-1/c", "/a/b-1"));
        assert!(names_path("/a/b-1", "/a/b-1"));
        assert!(!names_path("/a/b-12/c", "/a/b-1"));
        assert!(names_path("/a/b-12:/a/b-1/c", "/a/b-1"));
    }

    #[test]
    fn the_root_of_a_container_is_what_was_mounted_last() {
        let lines = "1 0 8:1 / / rw - ext4 /dev/x rw\n2 1 0:5 / /proc rw - proc p rw\n\
                     3 1 0:9 / / rw - overlay o upperdir=/a/b-1/u\n";
        assert!(root_mount(lines).is_some_and(|line| names_path(line, "/a/b-1")));
    }

    #[test]
    fn only_mounts_below_are_unmounted() {
        let lines = "1 0 8:1 / /a/b rw - x\n2 1 0:5 / /a/bc rw - x\n3 1 0:5 / /a/b/c rw - x\n";
        assert_eq!(
            mount_points_below(lines, Path::new("/a/b")),
            ["/a/b", "/a/b/c"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_process_that_names_the_directory_is_killed_and_no_other() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut named = Command::new("sleep")
            .arg0(directory.path().join("sleep"))
            .arg("600")
            .spawn()
            .expect("sleep starts");
        let mut other = Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("sleep starts");
        kill_processes(directory.path(), "no-such-group").expect("it is killed");
        assert!(named.wait().is_ok_and(|status| !status.success()));
        assert!(other.try_wait().is_ok_and(|status| status.is_none()));
        other.kill().expect("sleep can be killed");
        other.wait().expect("sleep can be waited for");
    }
}
