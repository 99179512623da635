//! A real daemon of this build, with directories and a port of its own.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::command::{Said, boxwood};

/// Starting includes probing the host, on a machine that may be busy with other tests.
const READY_WITHIN: Duration = Duration::from_mins(1);
const GONE_WITHIN: Duration = Duration::from_secs(30);

pub(crate) struct Daemon {
    child: Child,
    url: String,
    ready_line: String,
    directory: TempDir,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().expect("a temporary directory"))
    }

    /// On the directory of an earlier one.
    pub(crate) fn start_in(directory: TempDir) -> Self {
        Self::start_with(directory, &[])
    }

    /// With settings of the test's own, as variables.
    pub(crate) fn start_with(directory: TempDir, settings: &[(&str, &str)]) -> Self {
        let mut child = boxwood()
            .envs(settings.iter().copied())
            .args(["serve", "--listen", "127.0.0.1:0", "--state-dir"])
            .arg(directory.path().join("state"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("boxwood serve starts");
        let stdout = child.stdout.take().expect("piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let Ok(ready_line) = lines.recv_timeout(READY_WITHIN) else {
            let _ = child.kill();
            panic!("the daemon was not ready within {READY_WITHIN:?}; its log is above");
        };
        let url = ready_line
            .split_whitespace()
            .find(|word| word.starts_with("http://"))
            .unwrap_or_else(|| panic!("no address in {ready_line:?}"))
            .to_owned();
        Self {
            child,
            url,
            ready_line,
            directory,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it without a chance to clear up; its directory lives on.
    pub(crate) fn kill(&mut self) -> TempDir {
        self.child.kill().expect("the daemon is killed");
        self.child.wait().expect("the daemon has ended");
        let empty = tempfile::tempdir().expect("a temporary directory");
        std::mem::replace(&mut self.directory, empty)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn ready_line(&self) -> &str {
        &self.ready_line
    }

    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// A client verb for this daemon.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = boxwood();
        command.env("BOXWOOD_URL", &self.url).args(words);
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Said {
        self.command(words).output().expect("boxwood runs").into()
    }

    /// Asks it to stop and waits; its exit code.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").arg(pid).status().expect("kill runs");
        assert!(sent.success());
        let deadline = Instant::now() + GONE_WITHIN;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("waiting works") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the daemon did not stop within {GONE_WITHIN:?}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // TERM first: the daemon is the one who can take its boxes with it.
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let deadline = Instant::now() + Duration::from_secs(10);
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
