//! The seed system's own runtime, for comparison.
//!
//! Comes in: nothing. Goes out: a running `lbp box` from the published package, gone on drop.
//! Never here: talking to it.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::baseline::quiet;
use super::daemon::{free_address, terminate};
use crate::run::{output, target_dir};

const PACKAGE: &str = "langbot-plugin==0.4.2";
const START: Duration = Duration::from_mins(1);

pub(super) struct SeedRuntime {
    child: Child,
    _directory: TempDir,
}

impl SeedRuntime {
    pub(super) fn start() -> Result<Self> {
        let program = install()?;
        let directory = tempfile::tempdir()?;
        let address = free_address()?;
        let mut command = Command::new(program);
        command
            .args(["box", "--host", "127.0.0.1"])
            .args(["--ws-control-port", &address.port().to_string()])
            .current_dir(directory.path());
        let child = quiet(&mut command)
            .spawn()
            .context("`lbp box` could not be started")?;
        let mut runtime = Self {
            child,
            _directory: directory,
        };
        let deadline = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = runtime.child.try_wait()? {
                bail!("`lbp box` ended at once: {status}");
            }
            if Instant::now() > deadline {
                bail!("`lbp box` did not listen after {} s", START.as_secs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(runtime)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for SeedRuntime {
    fn drop(&mut self) {
        terminate(&mut self.child, Duration::from_secs(5));
    }
}

/// The package in a venv that stays for the next run.
fn install() -> Result<PathBuf> {
    let venv = target_dir().join("bench-venv");
    let program = venv.join("bin/lbp");
    if !program.is_file() {
        output(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        output(Command::new(venv.join("bin/pip")).args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            PACKAGE,
        ]))?;
    }
    Ok(program)
}
