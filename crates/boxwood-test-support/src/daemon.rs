//! A real daemon for a test: in this process with any backend, or as a child process.
//!
//! Cleanup is in `Drop`, so a failing test leaves nothing behind.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use boxwood_backend::Backend;
use boxwood_server::config::load_from;
use boxwood_server::{Config, Flags, Stop, Tokens, serve_until};
use boxwood_session::Backends;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

/// A daemon in a thread with its own runtime, so that it keeps running while the test's runtime is blocked or ends.
pub struct Daemon {
    address: SocketAddr,
    state: TempDir,
    stop: mpsc::UnboundedSender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// With the settings of a fresh installation, on a free port.
    pub async fn start(backend: Arc<dyn Backend>) -> Self {
        Self::start_with(backend, |_| {}).await
    }

    /// The same, with settings changed by the test.
    pub async fn start_with(backend: Arc<dyn Backend>, adjust: impl FnOnce(&mut Config)) -> Self {
        Self::start_backends(Backends::only(backend), adjust).await
    }

    /// The same, with several backends.
    pub async fn start_backends(backends: Backends, adjust: impl FnOnce(&mut Config)) -> Self {
        let state = tempfile::tempdir().expect("a temporary directory");
        let mut config = fresh_config(state.path());
        adjust(&mut config);
        let (stop, stops) = mpsc::unbounded_channel();
        let (ready, is_ready) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            let on_ready = |info: &boxwood_server::Ready| {
                // The test may have given up waiting.
                let _ = ready.send(info.address.expect("a TCP socket"));
            };
            runtime
                .block_on(serve_until(
                    config,
                    backends,
                    on_ready,
                    StopByChannel(stops),
                ))
                .expect("the daemon serves");
        });
        let address = tokio::time::timeout(Duration::from_mins(1), is_ready)
            .await
            .expect("the daemon is ready within a minute")
            .expect("the daemon starts");
        Self {
            address,
            state,
            stop,
            thread: Some(thread),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn state_dir(&self) -> &Path {
        self.state.path()
    }

    pub fn unix_socket(&self) -> PathBuf {
        self.state.path().join("run/boxwood.sock")
    }

    /// A token that this daemon accepts.
    pub fn token(&self, name: &str) -> String {
        let token = Tokens::new(self.state_dir()).create(name);
        token.expect("a token").reveal().to_owned()
    }

    /// Requests a stop. Each further call skips a step of the shutdown, like further signals to `boxwood serve`.
    pub fn ask_to_stop(&self) {
        // It may have stopped already.
        let _ = self.stop.send(());
    }

    /// Stops it and waits for its end.
    pub async fn stop(mut self) {
        self.ask_to_stop();
        let thread = self.thread.take().expect("it is stopped once");
        tokio::task::spawn_blocking(move || thread.join())
            .await
            .expect("joined")
            .expect("the daemon ends well");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Three times: drain, do not wait for requests, do not wait for boxes.
        for _ in 0..3 {
            self.ask_to_stop();
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the daemon panicked");
        }
    }
}

struct StopByChannel(mpsc::UnboundedReceiver<()>);

impl Stop for StopByChannel {
    async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// What `boxwood serve --listen 127.0.0.1:0 --state-dir DIR` would use on a machine without any
/// configuration.
pub fn fresh_config(state_dir: &Path) -> Config {
    let flags = Flags {
        listen: Some("127.0.0.1:0".to_owned()),
        state_dir: Some(state_dir.to_owned()),
        // Not the configuration of the user who runs the tests.
        config: Some(PathBuf::from("/dev/null")),
        ..Flags::default()
    };
    load_from(&flags, [], true).expect("a fresh configuration is valid")
}

/// A daemon as users start it.
pub struct ChildDaemon {
    child: Child,
    url: String,
    state: TempDir,
}

impl ChildDaemon {
    /// Starts `program serve` with extra arguments on a free port, and waits for its ready line.
    pub async fn start(program: &Path, arguments: &[&str]) -> Self {
        let state = tempfile::tempdir().expect("a temporary directory");
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--config", "/dev/null"])
            .arg("--state-dir")
            .arg(state.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the daemon can be started");
        let stdout = child.stdout.take().expect("its output is piped");
        let mut lines = BufReader::new(stdout).lines();
        let ready = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(url) = url_in(&line) {
                    return url;
                }
            }
            panic!("the daemon ended without being ready");
        };
        let url = tokio::time::timeout(Duration::from_secs(30), ready)
            .await
            .expect("the daemon is ready within 30 s");
        // Read to its end, so that the daemon never blocks on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, url, state }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn state_dir(&self) -> &Path {
        self.state.path()
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends `SIGTERM` and waits for the exit.
    pub async fn terminate(mut self) -> std::process::ExitStatus {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .await
            .expect("kill runs");
        assert!(sent.success(), "the daemon can be signalled");
        tokio::time::timeout(Duration::from_mins(1), self.child.wait())
            .await
            .expect("the daemon ends within 60 s")
            .expect("its status is known")
    }
}

fn url_in(line: &str) -> Option<String> {
    let start = line.find("http://")?;
    let url = line[start..].split_whitespace().next()?;
    Some(url.trim_end_matches('/').to_owned())
}
