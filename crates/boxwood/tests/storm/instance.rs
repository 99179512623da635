//! One state directory and one port, and the daemons that use them, one after another.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// A start probes the host and adopts boxes, on a machine that the test keeps busy.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
const STOP_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) struct Instance {
    directory: TempDir,
    state: PathBuf,
    port: u16,
}

impl Instance {
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("storm-").tempdir();
        let directory = directory.expect("a temporary directory");
        Self {
            state: directory.path().join("state"),
            directory,
            port: free_port(),
        }
    }

    /// With this state directory.
    pub(crate) fn with_state(state: &Path) -> Self {
        let mut instance = Self::new();
        state.clone_into(&mut instance.state);
        instance
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// All directories of the daemon.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        vec![self.state.clone()]
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("daemon.log")
    }

    /// The end of the log of all daemons.
    pub(crate) fn log_tail(&self) -> String {
        let log = std::fs::read(self.log()).unwrap_or_default();
        let from = log.len().saturating_sub(16 * 1024);
        String::from_utf8_lossy(&log[from..]).into_owned()
    }

    pub(crate) fn start(&self) -> Daemon {
        self.start_by(&[])
    }

    /// Starts the daemon through another program, which executes it.
    pub(crate) fn start_by(&self, before: &[String]) -> Daemon {
        let boxwood = env!("CARGO_BIN_EXE_boxwood").to_owned();
        let mut args = before.iter().chain(std::iter::once(&boxwood));
        let mut command = Command::new(args.next().expect("at least the daemon"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("BOXWOOD_") {
                command.env_remove(name);
            }
        }
        let log = File::options().create(true).append(true).open(self.log());
        let child = command
            .args(args)
            .arg("serve")
            .arg("--listen")
            .arg(format!("127.0.0.1:{}", self.port))
            .args(["--config", "/dev/null", "--state-dir"])
            .arg(&self.state)
            .env("XDG_RUNTIME_DIR", "/nonexistent")
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.expect("a log"))
            .kill_on_drop(true)
            .spawn();
        Daemon {
            child: child.expect("boxwood serve starts"),
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

pub(crate) struct Daemon {
    child: Child,
}

impl Daemon {
    /// Waits until the daemon accepts connections.
    pub(crate) async fn ready(&mut self) -> anyhow::Result<()> {
        let stdout = self.child.stdout.take();
        let mut lines = BufReader::new(stdout.expect("waited for once")).lines();
        let reading = tokio::time::timeout(READY_TIMEOUT, lines.next_line()).await;
        match reading {
            Ok(Ok(Some(_))) => {}
            Ok(_) => anyhow::bail!("the daemon ended before it was ready"),
            Err(_) => anyhow::bail!("the daemon was not ready within {READY_TIMEOUT:?}"),
        }
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(())
    }

    /// Sends KILL. Fails if the daemon has already ended by itself.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            anyhow::bail!("the daemon ended by itself: {status}");
        }
        self.child.kill().await?;
        Ok(())
    }

    /// Sends TERM and waits for the end.
    pub(crate) async fn stop(mut self) -> anyhow::Result<ExitStatus> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the daemon ended by itself"))?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        match tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => anyhow::bail!("the daemon did not stop within {STOP_TIMEOUT:?}"),
        }
    }
}
