//! A real daemon of this build, with its own directories and port.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use boxwood_client::{Client, Endpoint};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// A start probes the host, on a machine that may be busy with other tests.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// Settings of a daemon: the backend, and environment variables.
#[derive(Clone, Debug, Default)]
pub(crate) struct DaemonSettings {
    pub(crate) backend: Option<&'static str>,
    pub(crate) settings: Vec<(&'static str, String)>,
}

impl DaemonSettings {
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.settings.push((name, value.into()));
        self
    }
}

pub(crate) struct Daemon {
    child: Child,
    url: String,
    directory: Arc<TempDir>,
    pub(crate) client: Client,
}

impl Daemon {
    pub(crate) async fn start(settings: &DaemonSettings) -> Self {
        let directory = tempfile::Builder::new().prefix("bx-").tempdir();
        Self::start_in(Arc::new(directory.expect("a directory")), settings).await
    }

    /// Starts in the directory of an earlier daemon.
    pub(crate) async fn start_in(directory: Arc<TempDir>, settings: &DaemonSettings) -> Self {
        let mut command = boxwood();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--config", "/dev/null"])
            .arg("--state-dir")
            .arg(directory.path().join("state"))
            .envs(settings.settings.iter().cloned())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        if let Some(backend) = settings.backend {
            command.args(["--backend", backend]);
        }
        let mut child = command.spawn().expect("the daemon can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = async {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut parts = line.split_whitespace();
                if let Some(url) = parts.find(|word| word.starts_with("http://")) {
                    return url.to_owned();
                }
            }
            panic!("the daemon ended before it was ready; its log is above");
        };
        let url = tokio::time::timeout(READY_WITHIN, ready)
            .await
            .expect("the daemon is ready in time");
        let endpoint: Endpoint = url.parse().expect("an address");
        Self {
            child,
            url,
            directory,
            client: Client::new(endpoint, None),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// Sends KILL. The directory is kept.
    pub(crate) async fn kill(mut self) -> Arc<TempDir> {
        self.child.kill().await.expect("the daemon is killed");
        Arc::clone(&self.directory)
    }

    /// Sends TERM. The daemon removes its boxes.
    pub(crate) async fn stop(mut self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.pid()).expect("a pid"));
        let sent =
            rustix::process::kill_process(pid.expect("a pid"), rustix::process::Signal::TERM);
        sent.expect("it can be asked");
        let ended = tokio::time::timeout(READY_WITHIN, self.child.wait()).await;
        let status = ended
            .expect("it ends in time")
            .expect("its status is known");
        assert!(status.success(), "the daemon ended with {status}");
    }

    /// Runs a client command. Returns whether it succeeded, and its output.
    pub(crate) async fn verb(&self, args: &[&str]) -> (bool, String) {
        let output = boxwood()
            .env("BOXWOOD_URL", &self.url)
            .args(args)
            .output()
            .await
            .expect("boxwood runs");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        (output.status.success(), text)
    }

    /// Paths of sockets on the host: bootstrap sockets, and those for the next daemon.
    pub(crate) fn directories_of_boxes(&self) -> Vec<PathBuf> {
        let instance = std::fs::read_to_string(self.state_dir().join("instance"));
        let instance = instance.unwrap_or_default();
        // The directory of the sockets exists as long as the daemon.
        let sockets = self.state_dir().join("run/boxes").join(instance.trim());
        ["boxes", "run/boxes"]
            .iter()
            .flat_map(|name| entries(&self.state_dir().join(name)))
            .filter(|path| *path != sockets)
            .chain(entries(&sockets))
            .collect()
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(directory).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

/// The built command, without variables of our environment that change its behaviour.
fn boxwood() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_boxwood"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("BOXWOOD_") || text.starts_with("LANGBOT_") || text == "DOCKER_HOST" {
            command.env_remove(&name);
        }
    }
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command
}
