//! The outbound network without root: one `pasta` process per box.
//!
//! `pasta` turns the packets of a box into connections of the daemon's user. No port is forwarded in either
//! direction, and the gateway is not mapped to the host. What `pasta` cannot refuse (other addresses of the
//! host, metadata services) is refused by the packet filter that init installs.
//!
//! Dropping a lease kills its `pasta`. After a crash of the daemon it keeps running, and the next daemon
//! claims it by pid, start time and a path on its command line. Each `pasta` watches a symbolic link and
//! exits when [`Pasta::remove_leftovers`] removes it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use boxwood_init::InsideNetwork;
use boxwood_sys::netlink;
use boxwood_sys::procfs;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::process::async_fd::is_readable;

use super::inside::inside_network;
use super::resolvers::Resolvers;
use super::{INSIDE_INTERFACE, NetError, NetworkSettings};

const TUN: &str = "/dev/net/tun";
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a killed `pasta` may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);
/// `pasta` truncates its log at this size.
const LOG_BYTES: &str = "65536";

/// Starts `pasta` for boxes. The directory is exclusive to this type and contains a few files per box.
#[derive(Clone, Debug)]
pub struct Pasta {
    directory: PathBuf,
    settings: NetworkSettings,
}

impl Pasta {
    pub(crate) fn new(directory: &Path, settings: NetworkSettings) -> Self {
        Self {
            directory: directory.to_owned(),
            settings,
        }
    }

    /// `name` must be unique among running boxes and usable as a file name. `init` must still be traceable,
    /// so call this before sending its plan: `pasta` opens the namespaces by path, one of them from inside
    /// the other, where it cannot use a descriptor of ours.
    pub(crate) fn attach(
        &self,
        name: &str,
        init: i32,
    ) -> Result<(PastaLease, InsideNetwork), NetError> {
        let routes = netlink::routes().map_err(|source| NetError::HostNetwork { source })?;
        let resolvers = Resolvers::of_host(&self.settings.dns, &routes)?;
        // `pasta` configures the interface.
        let inside = inside_network(None, &routes, &resolvers, &self.settings.denied, None);
        File::options()
            .read(true)
            .write(true)
            .open(TUN)
            .map_err(|source| NetError::Tun { path: TUN, source })?;
        let step = |step| move |source| NetError::PastaStart { step, source };
        let files = BoxFiles(self.directory.join(name));
        files.remove().map_err(step("remove the old directory"))?;
        fs::create_dir_all(files.path(WATCHED)).map_err(step("create the directory"))?;
        let process = link_and_spawn(&files, init).inspect_err(|_| {
            if let Err(error) = files.remove() {
                tracing::warn!(%error, "failed to remove the files of a failed start");
            }
        })?;
        // From here on dropping the lease removes the files.
        let mut lease = PastaLease {
            process,
            files,
            released: false,
        };
        lease.wait_until_ready()?;
        Ok((lease, inside))
    }

    /// Takes over the `pasta` of a box that an earlier daemon created.
    pub(crate) fn claim(&self, name: &str, record: PastaRecord) -> Result<PastaLease, NetError> {
        let files = BoxFiles(self.directory.join(name));
        let pid = Pid::from_raw(record.pid).ok_or(NetError::PastaGone)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| NetError::PastaGone)?;
        // The pidfd pins the process, so `/proc` describes it and not a later one with the same pid.
        let is_same = started_at(record.pid) == Some(record.started)
            && has_argument(record.pid, &files.path(PID))
            && !is_readable(&pidfd, Duration::ZERO);
        if !is_same {
            return Err(NetError::PastaGone);
        }
        Ok(PastaLease {
            process: Process {
                pid,
                pidfd,
                child: None,
            },
            files,
            released: false,
        })
    }

    /// Stops every `pasta` whose box is not wanted.
    pub(crate) fn remove_leftovers(&self, is_wanted: impl Fn(&str) -> bool) -> io::Result<()> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(&is_wanted) {
                boxwood_sys::tree::remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the directory of this instance and the common one if they are empty.
    pub(crate) fn remove_directory(&self) {
        // The directory is missing if no box had a network.
        let _ = fs::remove_dir(&self.directory);
        if let Some(parent) = self.directory.parent() {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// The `pasta` of one box, until it is released or dropped.
#[derive(Debug)]
pub(crate) struct PastaLease {
    process: Process,
    files: BoxFiles,
    released: bool,
}

#[derive(Debug)]
struct Process {
    pid: Pid,
    pidfd: OwnedFd,
    /// `None` if an earlier daemon started it, which this daemon cannot reap.
    child: Option<Child>,
}

/// The `pasta` of a box in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PastaRecord {
    pid: i32,
    /// Start time in clock ticks since boot.
    started: u64,
}

impl PastaLease {
    pub(crate) fn record(&self) -> Option<PastaRecord> {
        let pid = self.process.pid.as_raw_nonzero().get();
        let started = started_at(pid)?;
        Some(PastaRecord { pid, started })
    }

    /// Keeps `pasta` running for the next daemon.
    pub(crate) fn detach(mut self) {
        self.released = true;
    }

    pub(crate) fn release(mut self) -> io::Result<()> {
        self.release_once()
    }

    /// `pasta` writes its pid file once the interface is configured.
    fn wait_until_ready(&mut self) -> Result<(), NetError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            if fs::metadata(self.files.path(PID)).is_ok_and(|file| file.len() > 0) {
                return Ok(());
            }
            if self.process.has_ended() || Instant::now() > deadline {
                let last_output = self.files.last_output();
                return Err(NetError::PastaEnded { last_output });
            }
            thread::sleep(POLL);
        }
    }

    #[cfg(test)]
    pub(super) fn has_ended(&self) -> bool {
        self.process.has_ended()
    }

    fn release_once(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.released, true) {
            return Ok(());
        }
        let killed = self.process.end();
        let removed = self.files.remove();
        killed.and(removed)
    }
}

impl Process {
    fn has_ended(&self) -> bool {
        is_readable(&self.pidfd, Duration::ZERO)
    }

    fn end(&mut self) -> io::Result<()> {
        // An error means that it is dead already.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        if !is_readable(&self.pidfd, KILL_TIMEOUT) {
            return Err(ErrorKind::TimedOut.into());
        }
        match &mut self.child {
            Some(child) => child.wait().map(drop),
            None => Ok(()),
        }
    }
}

fn started_at(pid: i32) -> Option<u64> {
    procfs::start_time(u32::try_from(pid).ok()?)
}

/// Returns true if `path` is an argument of the process.
fn has_argument(pid: i32, path: &Path) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0)
        .any(|word| word == path.as_os_str().as_encoded_bytes())
}

impl Drop for PastaLease {
    fn drop(&mut self) {
        if let Err(error) = self.release_once() {
            tracing::error!(%error, "failed to stop the `pasta` of a box");
        }
    }
}

fn link_and_spawn(files: &BoxFiles, init: i32) -> Result<Process, NetError> {
    let step = |step| move |source| NetError::PastaStart { step, source };
    std::os::unix::fs::symlink(namespace_of(init, "net"), files.path(NETNS))
        .map_err(step("link the namespace"))?;
    let stderr = File::create(files.path(STDERR)).map_err(step("create the stderr file"))?;
    let mut child = Command::new("pasta")
        .args(["--foreground", "--quiet", "--ipv4-only", "--config-net"])
        .args(["--no-map-gw", "--no-dhcp", "--ns-ifname", INSIDE_INTERFACE])
        .args(["-t", "none", "-u", "none", "-T", "none", "-U", "none"])
        .args(["--log-size", LOG_BYTES, "--log-file"])
        .arg(files.path(LOG))
        .arg("--pid")
        .arg(files.path(PID))
        .arg("--netns")
        .arg(files.path(NETNS))
        .arg("--userns")
        .arg(namespace_of(init, "user"))
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        // Ctrl-C for the daemon must not reach `pasta`.
        .process_group(0)
        .spawn()
        .map_err(|source| match source.kind() {
            ErrorKind::NotFound => NetError::PastaMissing,
            _ => NetError::PastaStart {
                step: "run the program",
                source,
            },
        })?;
    // The child is not reaped before `end`, so its pid cannot be reused.
    let pid = Pid::from_child(&child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| {
        let _ = child.kill().and_then(|()| child.wait());
        step("watch the process")(errno.into())
    })?;
    Ok(Process {
        pid,
        pidfd,
        child: Some(child),
    })
}

fn namespace_of(init: i32, kind: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{init}/ns/{kind}"))
}

/// Contains only the link: if several files are removed at once, `pasta` notices only one.
const WATCHED: &str = "watched";
const NETNS: &str = "watched/netns";
const PID: &str = "pid";
const LOG: &str = "log";
const STDERR: &str = "stderr";

/// The directory of one box.
#[derive(Debug)]
struct BoxFiles(PathBuf);

impl BoxFiles {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The last lines of the log, or of stderr if `pasta` exited before it opened the log.
    fn last_output(&self) -> String {
        let last_lines = |path: &Path| {
            let text = fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().rev().take(3).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join("; ")
        };
        match (last_lines(&self.path(LOG)), last_lines(&self.path(STDERR))) {
            (log, stderr) if log.is_empty() && stderr.is_empty() => "it printed nothing".to_owned(),
            (log, stderr) if log.is_empty() => stderr,
            (log, _) => log,
        }
    }

    fn remove(&self) -> io::Result<()> {
        boxwood_sys::tree::remove(&self.0)
    }
}
