//! The runtime of LangBot Box, for comparison.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::bench::daemon::{free_address, signal, wait_or_kill};
use crate::run::{target_dir, workspace_root};
use crate::venv;

/// Version of `langbot-plugin`.
const VERSION: &str = "0.4.2";
/// Time limit of a start.
const START: Duration = Duration::from_mins(1);
/// Time limit of a stop: it stops its sessions one after the other.
const STOP: Duration = Duration::from_secs(30);

pub(in super::super) struct LangBotBoxRuntime {
    child: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl LangBotBoxRuntime {
    pub(in super::super) fn start() -> Result<Self> {
        Self::start_behind(|_| ())
    }

    /// `prepare` sets the environment of the command and the words before the program.
    pub(in super::super) fn start_behind(prepare: impl FnOnce(&mut Command)) -> Result<Self> {
        let program = programs()?.join("lbp");
        let directory = tempfile::tempdir()?;
        let log = directory.path().join("log");
        let log_file = File::create(&log)?;
        let address = free_address()?;
        // It gets SIGINT when this process ends in any way. A shell starts its background jobs with SIGINT ignored, and
        // Python keeps that, so it is reset.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=INT", "setpriv"])
            .args(["--pdeathsig", "INT"]);
        prepare(&mut command);
        let child = command
            .arg(program)
            .args(["box", "--host", "127.0.0.1"])
            .args(["--ws-control-port", &address.port().to_string()])
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(log_file.try_clone()?)
            .stderr(log_file)
            .spawn()
            .context("`lbp box` could not be started")?;
        let mut runtime = Self {
            child,
            address,
            _directory: directory,
        };
        let deadline = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = runtime.child.try_wait()? {
                let log_text = fs::read_to_string(&log).unwrap_or_default();
                let last = log_text.lines().next_back().unwrap_or_default();
                bail!("`lbp box` ended at once: {status}: {last}");
            }
            if Instant::now() > deadline {
                bail!("`lbp box` did not listen after {} s", START.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(runtime)
    }

    pub(in super::super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(in super::super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for LangBotBoxRuntime {
    fn drop(&mut self) {
        // On SIGTERM it ends at once and leaves its boxes; on SIGINT it removes them.
        signal(self.child.id(), Signal::INT);
        wait_or_kill(&mut self.child, STOP);
    }
}

/// The programs of the published package, in the environment that the tests use too.
pub(in super::super) fn programs() -> Result<PathBuf> {
    let python = venv::ensure(
        &target_dir().join(format!("langbot/venv-{VERSION}")),
        &workspace_root().join(format!("tests/langbot/requirements-{VERSION}.txt")),
    )
    .context("LangBot's client could not be installed")?;
    let programs = python
        .parent()
        .context("a program lies in some directory")?;
    Ok(programs.to_owned())
}
