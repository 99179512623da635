//! A real daemon of this build, with its own directories and port.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::command::{CommandResult, boxwood};

/// Starting includes probing the host, on a machine that may be busy with other tests.
const READY_WITHIN: Duration = Duration::from_mins(1);
const GONE_WITHIN: Duration = Duration::from_secs(30);

pub(crate) struct Daemon {
    child: Child,
    url: String,
    ready_line: String,
    lines: mpsc::Receiver<String>,
    directory: TempDir,
}

/// `boxwood serve` on a free port, with a state directory in `directory`.
pub(crate) fn serve_command(directory: &Path) -> Command {
    serve_command_at("127.0.0.1:0", directory)
}

fn serve_command_at(listen: &str, directory: &Path) -> Command {
    let mut command = boxwood();
    command
        .args(["serve", "--listen", listen, "--state-dir"])
        .arg(directory.join("state"));
    command
}

/// A process that has said that it accepts connections.
struct Launched {
    child: Child,
    url: String,
    ready_line: String,
    lines: mpsc::Receiver<String>,
}

impl Launched {
    fn wait(mut command: Command) -> Self {
        let spawned = command.stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("boxwood serve starts");
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
            lines,
        }
    }
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().expect("a temporary directory"))
    }

    /// Starts in the directory of an earlier daemon.
    pub(crate) fn start_in(directory: TempDir) -> Self {
        Self::start_with(directory, &[])
    }

    /// With settings as environment variables.
    pub(crate) fn start_with(directory: TempDir, settings: &[(&str, &str)]) -> Self {
        let mut command = serve_command(directory.path());
        command.envs(settings.iter().copied());
        Self::started_by(command, directory)
    }

    /// Starts through a command that executes `boxwood serve` in `directory`.
    pub(crate) fn started_by(command: Command, directory: TempDir) -> Self {
        let launched = Launched::wait(command);
        Self {
            child: launched.child,
            url: launched.url,
            ready_line: launched.ready_line,
            lines: launched.lines,
            directory,
        }
    }

    /// Another daemon takes over, with these flags and settings, and replaces this one. Returns the exit code of the old
    /// daemon.
    pub(crate) fn taken_over(&mut self, settings: &[(&str, &str)]) -> Option<i32> {
        self.taken_over_at("127.0.0.1:0", settings)
    }

    /// The same with another `--listen` address.
    pub(crate) fn taken_over_at(&mut self, listen: &str, settings: &[(&str, &str)]) -> Option<i32> {
        let mut command = serve_command_at(listen, self.directory.path());
        command.arg("--takeover").envs(settings.iter().copied());
        let launched = Launched::wait(command);
        let mut old = std::mem::replace(&mut self.child, launched.child);
        self.url = launched.url;
        self.ready_line = launched.ready_line;
        self.lines = launched.lines;
        let deadline = Instant::now() + GONE_WITHIN;
        while Instant::now() < deadline {
            if let Some(status) = old.try_wait().expect("waiting works") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = old.kill();
        let _ = old.wait();
        panic!("the daemon before did not end");
    }

    /// The next line on its standard output.
    pub(crate) fn next_line(&self) -> String {
        let line = self.lines.recv_timeout(Duration::from_secs(10));
        line.expect("another line on stdout")
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("kill runs").success());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends KILL. The directory is kept.
    pub(crate) fn kill(&mut self) -> TempDir {
        self.child.kill().expect("the daemon is killed");
        self.child.wait().expect("the daemon has ended");
        self.leave_directory()
    }

    /// The directory of a daemon that has ended, for the next one.
    pub(crate) fn leave_directory(&mut self) -> TempDir {
        let empty = tempfile::tempdir().expect("a temporary directory");
        std::mem::replace(&mut self.directory, empty)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn ready_line(&self) -> &str {
        &self.ready_line
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a client verb with this daemon.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = boxwood();
        command.env("BOXWOOD_URL", &self.url).args(args);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandResult {
        self.command(args).output().expect("boxwood runs").into()
    }

    /// Sends TERM and waits. Returns the exit code.
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

    /// Sends TERM every two seconds until the daemon ends. Returns the exit code and the number of signals. Signals that
    /// arrive before the first is handled count as one for the daemon.
    pub(crate) fn insist(&mut self, within: Duration) -> (Option<i32>, u32) {
        let (begin, mut signals) = (Instant::now(), 0);
        while begin.elapsed() < within {
            if begin.elapsed() >= Duration::from_secs(2) * signals {
                self.signal("TERM");
                signals += 1;
            }
            if let Some(status) = self.child.try_wait().expect("waiting works") {
                return (status.code(), signals);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the daemon did not stop within {within:?}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // TERM first, so that the daemon removes its boxes.
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
