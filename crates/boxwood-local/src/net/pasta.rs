//! The way out where the daemon is not root: `pasta`, one per box.
//!
//! Comes in: the namespaces of a box. Goes out: a lease with a running `pasta`, which turns the box's
//! packets into connections of the daemon's user. No port is forwarded either way and the gateway is
//! not mapped to the host. What `pasta` cannot refuse (the host's other addresses, metadata) is
//! refused by the packet filter that init installs inside from [`RootlessNetwork::rules`].
//!
//! A lease kills its `pasta`. One whose daemon was killed goes on serving its box, and the next daemon
//! claims it by its number, its age and the directory on its command line. Each watches a symbolic link
//! of ours and quits when [`Pasta::settle`] removes it, because nobody claimed it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use boxwood_sys::netlink;
use boxwood_sys::nftables::InsideRules;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::resolvers::Resolvers;
use super::{INSIDE_INTERFACE, NetError, NetworkSettings, guard};

const TUN: &str = "/dev/net/tun";
const READY_WITHIN: Duration = Duration::from_secs(5);
/// For a killed one to be gone.
const DEAD_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);
/// `pasta` starts its log anew when it reaches this many bytes.
const LOG_BYTES: &str = "65536";

/// Starts `pasta` for boxes. The directory holds a few small files per box and belongs to this alone.
#[derive(Clone, Debug)]
pub struct Pasta {
    directory: PathBuf,
    settings: NetworkSettings,
}

/// What init needs to know. `pasta` itself configures the interface; init brings loopback up and
/// installs the rules before it gives up its capabilities.
#[derive(Clone, Debug)]
pub(crate) struct RootlessNetwork {
    pub(crate) dns: Vec<Ipv4Addr>,
    pub(crate) rules: InsideRules,
}

impl Pasta {
    pub(crate) fn new(directory: &Path, settings: NetworkSettings) -> Self {
        Self {
            directory: directory.to_owned(),
            settings,
        }
    }

    /// `name` is unique among living boxes and fit for a file name. `init` must be alive, and must not
    /// have closed itself to ptrace yet (attach before sending it its plan): `pasta` opens its
    /// namespaces by path, one of them from inside the other, where no descriptor of ours is.
    pub(crate) fn attach(
        &self,
        name: &str,
        init: i32,
    ) -> Result<(PastaLease, RootlessNetwork), NetError> {
        let inside = self.inside()?;
        File::options()
            .read(true)
            .write(true)
            .open(TUN)
            .map_err(|source| NetError::Tun { path: TUN, source })?;
        let step = |step| move |source| NetError::PastaStart { step, source };
        let files = BoxFiles::new(&self.directory, name);
        files.remove().map_err(step("clear its directory"))?;
        fs::create_dir_all(&files.watched).map_err(step("make its directory"))?;
        let child = link_and_spawn(&files, init).inspect_err(|_| {
            if let Err(error) = files.remove() {
                tracing::warn!(%error, "the files of a failed start were not removed");
            }
        })?;
        // From here on dropping the lease cleans up.
        let mut lease = PastaLease {
            process: Process::Child(child),
            files,
            released: false,
        };
        lease.wait_until_ready()?;
        Ok((lease, inside))
    }

    /// Takes over the one of a box that an earlier daemon made.
    pub(crate) fn claim(&self, name: &str, record: PastaRecord) -> Result<PastaLease, NetError> {
        let files = BoxFiles::new(&self.directory, name);
        let pid = Pid::from_raw(record.pid).ok_or(NetError::PastaGone)?;
        let pinned = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| NetError::PastaGone)?;
        // By now it is pinned, so what `/proc` says is about this process.
        let is_it = started_at(record.pid) == Some(record.started)
            && was_told(record.pid, &files.pid)
            && !has_died(&pinned, Duration::ZERO);
        if !is_it {
            return Err(NetError::PastaGone);
        }
        Ok(PastaLease {
            process: Process::Found(pid, pinned),
            files,
            released: false,
        })
    }

    /// Ends every `pasta` of a box that is not wanted.
    pub(crate) fn settle(&self, is_wanted: impl Fn(&str) -> bool) -> io::Result<()> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(&is_wanted) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the directory, which is empty once every lease is gone, and that of all instances.
    pub(crate) fn remove_directory(&self) {
        // Never made where no box had a network.
        let _ = fs::remove_dir(&self.directory);
        if let Some(parent) = self.directory.parent() {
            let _ = fs::remove_dir(parent);
        }
    }

    fn inside(&self) -> Result<RootlessNetwork, NetError> {
        let routes = netlink::routes().map_err(|source| NetError::HostNetwork { source })?;
        let resolvers = Resolvers::of_host(&self.settings.dns, &routes)?;
        Ok(RootlessNetwork {
            dns: resolvers.addresses().to_vec(),
            rules: guard::inside_rules(&routes, &resolvers, &self.settings.denied, None),
        })
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
enum Process {
    /// Not waited for before `let_go`, so its pid cannot become somebody else's.
    Child(Child),
    /// An earlier daemon's.
    Found(Pid, OwnedFd),
}

/// A box's `pasta` as it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PastaRecord {
    pid: i32,
    /// In the kernel's ticks since boot.
    started: u64,
}

impl PastaLease {
    pub(crate) fn record(&self) -> Option<PastaRecord> {
        let pid = match &self.process {
            Process::Child(child) => i32::try_from(child.id()).ok()?,
            Process::Found(pid, _) => pid.as_raw_nonzero().get(),
        };
        let started = started_at(pid)?;
        Some(PastaRecord { pid, started })
    }

    /// The box outlives this daemon, and its network with it.
    pub(crate) fn leave(mut self) {
        self.released = true;
    }

    pub(crate) fn release(mut self) -> io::Result<()> {
        self.let_go()
    }

    /// It writes its pid when the interface is configured and it is about to serve.
    fn wait_until_ready(&mut self) -> Result<(), NetError> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if fs::metadata(&self.files.pid).is_ok_and(|file| file.len() > 0) {
                return Ok(());
            }
            if self.process.has_ended() || Instant::now() > deadline {
                let said = self.files.said();
                return Err(NetError::PastaEnded { said });
            }
            thread::sleep(POLL);
        }
    }

    #[cfg(test)]
    pub(super) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    fn let_go(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.released, true) {
            return Ok(());
        }
        let killed = self.process.end();
        let removed = self.files.remove();
        killed.and(removed)
    }
}

impl Process {
    fn has_ended(&mut self) -> bool {
        match self {
            Self::Child(child) => matches!(child.try_wait(), Ok(Some(_))),
            Self::Found(_, pinned) => has_died(pinned, Duration::ZERO),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        match self {
            Self::Child(child) => child.kill().and_then(|()| child.wait()).map(|_| ()),
            Self::Found(_, pinned) => {
                // Failing means that it is dead already.
                let _ = pidfd_send_signal(&*pinned, Signal::KILL);
                if has_died(pinned, DEAD_WITHIN) {
                    return Ok(());
                }
                Err(ErrorKind::TimedOut.into())
            }
        }
    }
}

/// A pidfd is readable once its process is dead.
fn has_died(pinned: &OwnedFd, within: Duration) -> bool {
    let mut look = [PollFd::from_borrowed_fd(pinned.as_fd(), PollFlags::IN)];
    let within = Timespec::try_from(within).ok();
    matches!(poll(&mut look, within.as_ref()), Ok(1..))
}

/// When a process began, as the kernel tells: the 22nd field, counted behind the program's name.
fn started_at(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(") ")?;
    behind.split_whitespace().nth(19)?.parse().ok()
}

/// Whether `path` is one of the words on a process's command line.
fn was_told(pid: i32, path: &Path) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0)
        .any(|word| word == path.as_os_str().as_encoded_bytes())
}

impl Drop for PastaLease {
    fn drop(&mut self) {
        if let Err(error) = self.let_go() {
            tracing::error!(%error, "a box's `pasta` was not ended");
        }
    }
}

fn link_and_spawn(files: &BoxFiles, init: i32) -> Result<Child, NetError> {
    let step = |step| move |source| NetError::PastaStart { step, source };
    std::os::unix::fs::symlink(namespace_of(init, "net"), &files.netns)
        .map_err(step("link the namespace"))?;
    let stderr = File::create(&files.stderr).map_err(step("open its log"))?;
    Command::new("pasta")
        .args(["--foreground", "--quiet", "--ipv4-only", "--config-net"])
        .args(["--no-map-gw", "--no-dhcp", "--ns-ifname", INSIDE_INTERFACE])
        .args(["-t", "none", "-u", "none", "-T", "none", "-U", "none"])
        .args(["--log-size", LOG_BYTES, "--log-file"])
        .arg(&files.log)
        .arg("--pid")
        .arg(&files.pid)
        .arg("--netns")
        .arg(&files.netns)
        .arg("--userns")
        .arg(namespace_of(init, "user"))
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        // A Ctrl-C meant for the daemon is not meant for a box's network.
        .process_group(0)
        .spawn()
        .map_err(|source| match source.kind() {
            ErrorKind::NotFound => NetError::PastaMissing,
            _ => NetError::PastaStart {
                step: "start it",
                source,
            },
        })
}
fn namespace_of(init: i32, kind: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{init}/ns/{kind}"))
}

#[derive(Debug)]
struct BoxFiles {
    directory: PathBuf,
    /// Holds the link and nothing else: of several files removed at once `pasta` notices only one.
    watched: PathBuf,
    netns: PathBuf,
    pid: PathBuf,
    log: PathBuf,
    stderr: PathBuf,
}

impl BoxFiles {
    fn new(parent: &Path, name: &str) -> Self {
        let directory = parent.join(name);
        let watched = directory.join("watched");
        Self {
            netns: watched.join("netns"),
            pid: directory.join("pid"),
            log: directory.join("log"),
            stderr: directory.join("stderr"),
            watched,
            directory,
        }
    }

    /// Its last words, for the error: the log, or what it said before it had one.
    fn said(&self) -> String {
        let words = |path: &Path| {
            let text = fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().rev().take(3).collect();
            lines.into_iter().rev().collect::<Vec<_>>().join("; ")
        };
        match (words(&self.log), words(&self.stderr)) {
            (log, stderr) if log.is_empty() && stderr.is_empty() => "it said nothing".to_owned(),
            (log, stderr) if log.is_empty() => stderr,
            (log, _) => log,
        }
    }

    fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }
}
