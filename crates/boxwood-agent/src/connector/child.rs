//! A daemon that runs as a child process.
//!
//! It listens only on a Unix socket in its own directory. Its stdin is a pipe from this process: when this process ends, the
//! daemon stops and removes its boxes. If the daemon is killed, the next one in the same directory adopts its boxes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use boxwood_api::Status;
use boxwood_client::{Client, Endpoint};
use tempfile::TempDir;
use tokio::process::{ChildStdin, Command};
use tokio::time::{sleep, timeout};

use super::link::{Outage, look};

/// Between two looks at a daemon that starts.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long boxes wait for the next daemon: much longer than the longest delay between two attempts, and short enough
/// for boxes that are not needed any more.
const RECOVERY_GRACE_SEC: &str = "300";

/// The log begins anew above this size.
const LONGEST_LOG_BYTES: u64 = 1 << 20;

/// How much of the log's end an error shows.
const LAST_WORDS_BYTES: usize = 400;

/// A daemon for this process alone.
#[derive(Clone, Debug)]
pub struct ChildSettings {
    /// The `boxwood` program.
    pub program: PathBuf,
    /// Where the daemon keeps what it has. Left out: a private directory that goes with it. Two
    /// daemons cannot share one.
    pub state_dir: Option<PathBuf>,
    /// What runs the boxes; the daemon's own choice when left out.
    pub backend: Option<String>,
    /// Where skills are kept; in the state directory when left out.
    pub skills_root: Option<PathBuf>,
    /// Below these, directories of the host may be mounted.
    pub allowed_mount_roots: Vec<PathBuf>,
    /// Further settings of the daemon, such as `BOXWOOD_SESSION__TTL_SEC`.
    pub variables: Vec<(String, String)>,
}

impl ChildSettings {
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            state_dir: None,
            backend: None,
            skills_root: None,
            allowed_mount_roots: Vec::new(),
            variables: Vec::new(),
        }
    }
}

enum Home {
    /// Not made yet.
    Wanted,
    /// Goes with us.
    Private(TempDir),
    Given(PathBuf),
}

struct Running {
    process: tokio::process::Child,
    /// The daemon lives for as long as this is open.
    lifeline: ChildStdin,
}

pub(super) struct Child {
    settings: ChildSettings,
    home: Home,
    running: Option<Running>,
}

impl Child {
    pub(super) fn new(settings: ChildSettings) -> Self {
        let home = settings.state_dir.clone();
        Self {
            home: home.map_or(Home::Wanted, Home::Given),
            settings,
            running: None,
        }
    }

    /// Starts the daemon unless it runs, and waits until it answers.
    pub(super) async fn reach(
        &mut self,
        answer: Duration,
    ) -> Result<(Client, Option<Status>), Outage> {
        let home = self.home().map_err(|error| {
            let fix = "see that the directory for temporary files (TMPDIR) can be written to";
            Outage::refused(error, fix)
        })?;
        let socket = socket_of(&home)?;
        if self.running.is_none() {
            self.running = Some(self.start(&home)?);
        }
        let client = Client::new(Endpoint::Unix { path: socket }, None);
        loop {
            let seen = tokio::select! {
                why = self.ended() => return Err(Outage::refused(why, self.fix())),
                seen = look(&client, answer) => seen,
            };
            match seen {
                Ok(status) => return Ok((client, status)),
                Err(_) => sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Kills a child that does not respond. The next child adopts its boxes.
    pub(super) async fn give_up(&mut self) -> Outage {
        if let Some(mut running) = self.running.take() {
            kill(&mut running).await;
        }
        Outage {
            reason: "box runtime subprocess did not connect in time".to_owned(),
            fix: self.fix(),
        }
    }

    /// Waits for its end and tells how it came.
    pub(super) async fn ended(&mut self) -> String {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let how = running.process.wait().await;
        self.running = None;
        let how = match how {
            Ok(status) => ending(status),
            Err(error) => format!("could not be waited for: {error}"),
        };
        let program = self.settings.program.display();
        match self.log_path().and_then(|log| last_words(&log)) {
            Some(words) => format!("`{program} serve` {how}: {words}"),
            None => format!("`{program} serve` {how}"),
        }
    }

    pub(super) fn fix(&self) -> String {
        match self.log_path() {
            Some(log) => format!(
                "its log is {}; it is started again by itself",
                log.display()
            ),
            None => "it is started again by itself".to_owned(),
        }
    }

    /// Closing the pipe is how it is told: it lets requests end and stops its boxes. Only one that does
    /// not is signalled.
    pub(super) async fn end(mut self: Box<Self>, farewell: Duration) {
        if let Some(Running { process, lifeline }) = self.running.take() {
            drop(lifeline);
            end_process(process, farewell).await;
        }
        if let Home::Private(directory) = self.home {
            // The directory may hold many files.
            let removed = tokio::task::spawn_blocking(move || directory.close()).await;
            if let Ok(Err(error)) = removed {
                tracing::warn!(%error, "the box runtime's directory could not be removed");
            }
        }
    }

    fn home(&mut self) -> io::Result<PathBuf> {
        if matches!(self.home, Home::Wanted) {
            let made = tempfile::Builder::new().prefix("boxwood-").tempdir()?;
            self.home = Home::Private(made);
        }
        Ok(match &self.home {
            Home::Given(path) => std::path::absolute(path)?,
            Home::Private(directory) => directory.path().to_owned(),
            Home::Wanted => return Err(io::Error::other("there is no directory")),
        })
    }

    fn log_path(&self) -> Option<PathBuf> {
        let home = match &self.home {
            Home::Given(path) => path.as_path(),
            Home::Private(directory) => directory.path(),
            Home::Wanted => return None,
        };
        Some(home.join("daemon.log"))
    }

    fn start(&self, home: &Path) -> Result<Running, Outage> {
        let program = &self.settings.program;
        let failed = |error: io::Error| {
            let fix = if error.kind() == io::ErrorKind::NotFound {
                "install `boxwood` where programs are looked for, or set box.runtime.endpoint to a daemon that runs"
            } else {
                "see that it can be started, or set box.runtime.endpoint to a daemon that runs"
            };
            Outage::refused(format!("`{}`: {error}", program.display()), fix)
        };
        let log = private_dir(home)
            .and_then(|()| open_log(&home.join("daemon.log")))
            .map_err(|error| {
                let why = format!("the directory {}: {error}", home.display());
                Outage::refused(
                    why,
                    "give the runtime a state directory that can be written to",
                )
            })?;
        let mut process = self.command(home, log).spawn().map_err(failed)?;
        let lifeline = process.stdin.take();
        let lifeline = lifeline.ok_or_else(|| failed(io::Error::other("it has no stdin")))?;
        tracing::info!(pid = process.id(), "a box runtime was started");
        Ok(Running { process, lifeline })
    }

    fn command(&self, home: &Path, log: fs::File) -> Command {
        let settings = &self.settings;
        let mut command = Command::new(&settings.program);
        command
            .args(["serve", "--until-stdin-closes", "--listen", "none"])
            .args(["--on-shutdown", "stop", "--state-dir"])
            .arg(home);
        if let Some(backend) = &settings.backend {
            command.args(["--backend", backend]);
        }
        command
            // Whatever the configuration of other daemons on this machine says of these.
            .env("BOXWOOD_RUN_DIR", home.join("run"))
            .env("BOXWOOD_HTTP__UNIX_SOCKET", "true")
            .env("BOXWOOD_RECOVERY__GRACE_SEC", RECOVERY_GRACE_SEC)
            // The agent is here, not there.
            .env("BOX__ENABLED", "false")
            .env_remove("BOX__RUNTIME__ENDPOINT")
            // A service manager's word is for this process.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDNAMES");
        if let Some(root) = &settings.skills_root {
            command.env("BOXWOOD_SKILLS__ROOT", root);
        }
        if !settings.allowed_mount_roots.is_empty() {
            command.env(
                "BOXWOOD_MOUNTS__ALLOWED_ROOTS",
                path_list(&settings.allowed_mount_roots),
            );
        }
        command
            .envs(settings.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log);
        // Ctrl-C in a terminal is for this process, which decides what becomes of its daemon.
        #[cfg(unix)]
        command.process_group(0);
        command
    }
}

/// A list as the daemon's configuration has it.
fn path_list(paths: &[PathBuf]) -> String {
    let quoted = paths.iter().map(|path| {
        let text = path.to_string_lossy();
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    });
    format!("[{}]", quoted.collect::<Vec<_>>().join(", "))
}

/// The kernel takes 107 bytes, and a daemon that listens nowhere is no use.
fn socket_of(home: &Path) -> Result<PathBuf, Outage> {
    const LONGEST: usize = 107;
    let socket = home.join("run/boxwood.sock");
    if socket.as_os_str().len() > LONGEST {
        let why = format!("the path {} is too long for a socket", socket.display());
        let fix = "use a state directory (or TMPDIR) with a shorter path";
        return Err(Outage::refused(why, fix));
    }
    Ok(socket)
}

fn private_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// A file rather than a pipe: the daemon can write to it when we are gone.
fn open_log(path: &Path) -> io::Result<fs::File> {
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?;
    if log.metadata()?.len() > LONGEST_LOG_BYTES {
        log.set_len(0)?;
    }
    Ok(log)
}

/// The last line of the log, where there is one.
fn last_words(log: &Path) -> Option<String> {
    let text = fs::read(log).ok()?;
    let tail = text.get(text.len().saturating_sub(LAST_WORDS_BYTES)..)?;
    let tail = String::from_utf8_lossy(tail);
    let lines = tail.lines().map(str::trim).filter(|line| !line.is_empty());
    // A hint stands below what it is about.
    let last: Vec<_> = lines.collect();
    let from = last.len().saturating_sub(2);
    (!last.is_empty()).then(|| last[from..].join("; "))
}

fn ending(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("ended with exit code {code}"),
        None => format!("ended by {status}"),
    }
}

async fn end_process(mut process: tokio::process::Child, farewell: Duration) {
    if timeout(farewell, process.wait()).await.is_ok() {
        return;
    }
    tracing::warn!("the box runtime takes long to end; telling it by a signal");
    terminate(&process);
    if timeout(farewell, process.wait()).await.is_ok() {
        return;
    }
    tracing::warn!("the box runtime did not end; killing it");
    if let Err(error) = process.kill().await {
        tracing::warn!(%error, "the box runtime could not be killed");
    }
}

async fn kill(running: &mut Running) {
    if let Err(error) = running.process.kill().await {
        tracing::warn!(%error, "the box runtime could not be killed");
    }
}

/// The process has not been waited for, so the number is still its own.
#[cfg(unix)]
fn terminate(process: &tokio::process::Child) {
    let pid = process.id().and_then(|id| i32::try_from(id).ok());
    if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
        // One that has just ended needs no signal.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

#[cfg(not(unix))]
fn terminate(_process: &tokio::process::Child) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_as_the_configuration_wants_them() {
        let paths = [PathBuf::from("/a b"), PathBuf::from("/with\"quote")];
        assert_eq!(path_list(&paths), r#"["/a b", "/with\"quote"]"#);
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_named_with_the_fix() {
        let long = PathBuf::from("/").join("d".repeat(100));
        let outage = socket_of(&long).unwrap_err();
        assert!(outage.reason.contains("too long"), "{}", outage.reason);
        assert!(outage.fix.contains("shorter"), "{}", outage.fix);
        assert!(socket_of(Path::new("/tmp/x")).is_ok());
    }

    #[test]
    fn last_words_are_the_end_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("daemon.log");
        assert_eq!(last_words(&log), None);
        fs::write(&log, "").unwrap();
        assert_eq!(last_words(&log), None);
        fs::write(&log, "one\nerror: no room\n\nhint: make some\n").unwrap();
        let words = last_words(&log).unwrap();
        assert_eq!(words, "error: no room; hint: make some");
    }
}
