//! A Docker daemon of our own, for the seed's docker backend.
//!
//! Comes in: nothing. Goes out: a `dockerd` with its own socket, storage and namespaces and the
//! seed's image in it, gone on drop. Never here: the machine's own Docker, if it has one.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use super::super::daemon::{signal, wait_or_kill};
use super::super::procfs;
use crate::run::{check, find, is_root, output};

/// What the seed asks for when nobody names an image.
const IMAGE: &str = "rockchin/langbot-sandbox:latest";
const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(30);
/// The programs of the Debian package, so that client and daemon are one version.
pub(super) const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Everything that a login shell, `mkdir` and `cat` in a container need.
const APPLETS: [&str; 6] = ["sh", "sleep", "true", "cat", "mkdir", "echo"];

pub(super) struct Docker {
    /// `unshare`, whose one child is the daemon.
    child: Child,
    directory: TempDir,
    cgroup: String,
}

impl Docker {
    pub(super) fn start() -> Result<Self> {
        ensure!(is_root(), "docker is measured as root only");
        find("dockerd").context("`dockerd` (package docker.io) is missing")?;
        let busybox = find("busybox").context("`busybox` (package busybox-static) is missing")?;
        let directory = tempfile::tempdir()?;
        let log = fs::File::create(directory.path().join("log"))?;
        let cgroup = format!("boxwood-bench-{}", std::process::id());
        let path = |name: &str| directory.path().join(name);
        // Namespaces of its own keep links, rules and mounts away from the machine, and end
        // whatever a container left running. Boxes have no network, so a bridge would serve nobody.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare"])
            .args(["--net", "--mount", "--pid", "--mount-proc"])
            .args(["--fork", "--kill-child=SIGTERM", "dockerd"])
            .args(["--bridge", "none", "--iptables=false", "--ip6tables=false"])
            .args(["--cgroup-parent", &format!("/{cgroup}")])
            .arg("--host")
            .arg(socket(directory.path()))
            .arg("--data-root")
            .arg(path("data"))
            .arg("--exec-root")
            .arg(path("run"))
            .arg("--pidfile")
            .arg(path("pid"))
            .env("PATH", PATH)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("`dockerd` could not be started")?;
        let mut docker = Self {
            child,
            directory,
            cgroup,
        };
        docker.wait_until_ready()?;
        docker.import(&busybox)?;
        Ok(docker)
    }

    /// Points whatever runs `docker` at this daemon.
    pub(super) fn environment(&self, command: &mut Command) {
        command
            .env("PATH", PATH)
            .env("DOCKER_HOST", socket(self.directory.path()))
            .env("DOCKER_CONFIG", self.path("config"));
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        while output(self.command().arg("version")).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("`dockerd` ended at once: {status}: {}", self.last_words());
            }
            if Instant::now() > deadline {
                bail!(
                    "`dockerd` was not ready after {} s: {}",
                    START.as_secs(),
                    self.last_words()
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn import(&self, busybox: &Path) -> Result<()> {
        let root = self.path("root");
        // The root is read-only, so places to mount and to work in are there from the start.
        for directory in ["bin", "tmp", "workspace"] {
            fs::create_dir_all(root.join(directory))?;
        }
        fs::copy(busybox, root.join("bin/busybox"))?;
        for applet in APPLETS {
            symlink("busybox", root.join("bin").join(applet))?;
        }
        let tar = self.path("image.tar");
        check(
            Command::new("tar")
                .arg("-C")
                .arg(&root)
                .arg("-cf")
                .arg(&tar)
                .arg("."),
        )?;
        output(self.command().arg("import").arg(&tar).arg(IMAGE))?;
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("docker");
        self.environment(&mut command);
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The end of the daemon's log, as one line.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        // `unshare` itself takes no signal that it would hand on.
        for daemon in procfs::children(self.child.id()).unwrap_or_default() {
            signal(daemon, Signal::TERM);
        }
        wait_or_kill(&mut self.child, STOP);
        if let Err(error) = remove_cgroups(&self.cgroup) {
            eprintln!(
                "warning: a cgroup of Docker's could not be removed: `{}`: {error}",
                self.cgroup
            );
        }
    }
}

fn socket(directory: &Path) -> String {
    format!("unix://{}", directory.join("docker.sock").display())
}

/// Docker leaves its parent group behind in every hierarchy.
fn remove_cgroups(name: &str) -> io::Result<()> {
    let top = Path::new("/sys/fs/cgroup");
    let mut places = vec![top.to_owned()];
    for entry in fs::read_dir(top)? {
        let entry = entry?;
        // Some hierarchies are links to others.
        if entry.file_type()?.is_dir() {
            places.push(entry.path());
        }
    }
    for place in places {
        let group = place.join(name);
        if group.is_dir() {
            fs::remove_dir(group)?;
        }
    }
    Ok(())
}
