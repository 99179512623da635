//! A daemon of a test engine, from its start to its end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

const START: Duration = Duration::from_mins(1);
const STOP: Duration = Duration::from_secs(30);

pub(super) struct Daemon {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    pub(super) fn spawn(name: &'static str, command: &mut Command, log: PathBuf) -> Result<Self> {
        let log_file = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log_file.try_clone()?)
            .stderr(log_file)
            .spawn()
            .with_context(|| format!("`{name}` could not be started"))?;
        Ok(Self { name, child, log })
    }

    /// Polls until `ready` returns a value.
    pub(super) fn wait_until<T>(&mut self, ready: impl Fn() -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + START;
        loop {
            if let Some(answer) = ready() {
                return Ok(answer);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "`{}` ended at once: {status}\n{}",
                    self.name,
                    last_lines(&self.log, 5)
                );
            }
            if Instant::now() > deadline {
                bail!(
                    "`{}` was not ready after {} s\n{}",
                    self.name,
                    START.as_secs(),
                    last_lines(&self.log, 5)
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn log(&self) -> &Path {
        &self.log
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        signal(self.child.id(), Signal::TERM);
        let deadline = Instant::now() + STOP;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended already; the caller that waits notices.
        let _ = kill_process(pid, signal);
    }
}

/// A command that gets a signal when its parent exits.
pub(super) fn ends_with_parent(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command
}

pub(super) fn last_lines(log: &Path, count: usize) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_ends_is_reported_with_its_last_words() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut daemon = Daemon::spawn(
            "sh",
            Command::new("sh").args(["-c", "echo no such luck; exit 3"]),
            directory.path().join("log"),
        )
        .expect("sh starts");
        let error = daemon.wait_until(|| None::<()>).expect_err("it ended");
        let text = error.to_string();
        assert!(text.contains("exit status: 3"), "{text}");
        assert!(text.contains("no such luck"), "{text}");
    }

    #[test]
    fn a_dropped_daemon_is_gone() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let daemon = Daemon::spawn(
            "sleep",
            Command::new("sleep").arg("600"),
            directory.path().join("log"),
        )
        .expect("sleep starts");
        let pid = daemon.child.id();
        drop(daemon);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
