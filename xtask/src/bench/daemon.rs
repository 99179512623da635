//! A real daemon, built like in packages, for the duration of a measurement.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::clients::http::Connection;
use crate::run::{cargo, check, target_dir};

const START: Duration = Duration::from_secs(20);
const STOP: Duration = Duration::from_secs(30);

pub(super) struct Daemon {
    child: Child,
    address: SocketAddr,
    directory: TempDir,
}

/// Builds the binary that packages have.
pub(super) fn build() -> Result<PathBuf> {
    check(cargo().args(["build", "--profile", "dist", "--package", "boxwood"]))?;
    let binary = target_dir().join("dist/boxwood");
    if !binary.is_file() {
        bail!("the build left no `dist/boxwood`");
    }
    Ok(binary)
}

impl Daemon {
    pub(super) fn start(binary: &Path) -> Result<Self> {
        Self::start_on(binary, "native", |_| Ok(()))
    }

    /// `prepare` gives the command what the backend needs, in variables.
    pub(super) fn start_on(
        binary: &Path,
        backend: &str,
        prepare: impl FnOnce(&mut Command) -> Result<()>,
    ) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let address = free_address()?;
        let child = launch(binary, backend, directory.path(), address, prepare)?;
        let mut daemon = Self {
            child,
            address,
            directory,
        };
        daemon.wait_until_ready()?;
        Ok(daemon)
    }

    /// Kills the daemon with SIGKILL.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts the next daemon in place of one that was killed.
    pub(super) fn start_again(&mut self, binary: &Path) -> Result<()> {
        let directory = self.directory.path();
        self.child = launch(binary, "native", directory, self.address, |_| Ok(()))?;
        self.wait_until_ready()
    }

    pub(super) fn connect(&self) -> Result<Connection> {
        Connection::open(self.address)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("`boxwood serve` ended at once: {status}\n{}", self.log());
            }
            if let Ok(mut connection) = self.connect()
                && connection
                    .request("GET", "/v1/health", "")
                    .is_ok_and(|answer| answer.status == 200)
            {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "`boxwood serve` was not ready after {} s\n{}",
                    START.as_secs(),
                    self.log()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        terminate(&mut self.child, STOP);
    }
}

fn launch(
    binary: &Path,
    backend: &str,
    directory: &Path,
    address: SocketAddr,
    prepare: impl FnOnce(&mut Command) -> Result<()>,
) -> Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(directory.join("log"))?;
    let mut command = Command::new(binary);
    prepare(&mut command)?;
    command
        .arg("serve")
        .args(["--listen", &address.to_string()])
        // Not the configuration of the user who runs the benchmark.
        .args(["--config", "/dev/null"])
        .arg("--state-dir")
        .arg(directory.join("state"))
        .args(["--backend", backend])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("`boxwood serve` could not be started")
}

/// SIGTERM, and after the timeout SIGKILL.
pub(super) fn terminate(child: &mut Child, timeout: Duration) {
    signal(child.id(), Signal::TERM);
    wait_or_kill(child, timeout);
}

pub(super) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended already; the caller that waits notices.
        let _ = kill_process(pid, signal);
    }
}

pub(super) fn wait_or_kill(child: &mut Child, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// A free address on loopback.
pub(super) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
