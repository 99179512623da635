//! Runs the engine's command line client.
//!
//! Every call has a timeout, and no shell is involved. Dropping the future kills the client.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::settings::{ContainerSettings, Engine};

/// Longer output is truncated.
const MAX_OUTPUT: u64 = 4 * 1024 * 1024;
/// After this long a ping checks whether the engine responds at all.
const PING_DELAY: Duration = Duration::from_secs(5);
/// Usually takes a tenth of a second; a busy machine may need longer.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const PING: [&str; 3] = ["version", "--format", "{{.Server.Version}}"];

#[derive(Clone, Debug)]
pub(crate) struct Cli {
    pub(crate) engine: Engine,
    program: PathBuf,
    docker_host: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("`{program}` could not be run")]
    Program {
        program: String,
        #[source]
        source: io::Error,
    },
    /// The engine's message, on one line.
    #[error("{message}")]
    Refused { message: String },
    #[error("the engine did not answer within {} s", after.as_secs())]
    TimedOut { after: Duration },
    #[error("failed to communicate with the engine's client")]
    Io(#[source] io::Error),
}

impl Cli {
    pub(crate) fn new(settings: &ContainerSettings) -> Self {
        Self {
            engine: settings.engine,
            program: settings.program.clone(),
            docker_host: settings.docker_host.clone(),
        }
    }

    pub(crate) fn program(&self) -> String {
        self.program.display().to_string()
    }

    /// Prepares a call. The client is killed when its handle is dropped. It has its own process group, so
    /// that signals from the daemon's terminal do not reach it.
    pub(crate) fn command<A: Into<OsString>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args.into_iter().map(Into::into))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(host) = &self.docker_host {
            command.env("DOCKER_HOST", host);
        }
        command
    }

    pub(crate) fn spawn(&self, command: &mut Command) -> Result<Child, CliError> {
        command.spawn().map_err(|source| CliError::Program {
            program: self.program(),
            source,
        })
    }

    /// Runs a call and returns its stdout.
    pub(crate) async fn run<A: Into<OsString>>(
        &self,
        args: impl IntoIterator<Item = A>,
        timeout: Duration,
    ) -> Result<String, CliError> {
        self.finish(&mut self.command(args), timeout).await
    }

    /// The same in a directory of the box, because Podman's monitor writes files to its working directory.
    pub(crate) async fn run_in<A: Into<OsString>>(
        &self,
        directory: &Path,
        args: impl IntoIterator<Item = A>,
        timeout: Duration,
    ) -> Result<String, CliError> {
        self.finish(self.command(args).current_dir(directory), timeout)
            .await
    }

    async fn finish(&self, command: &mut Command, timeout: Duration) -> Result<String, CliError> {
        let mut child = self.spawn(command)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let exchange = async {
            let (out, err, status) = tokio::join!(read(stdout), read(stderr), child.wait());
            Ok::<_, io::Error>((out?, err?, status?))
        };
        let (out, err, status) = self.with_timeout(timeout, exchange).await?;
        check_status(status, out, &err)
    }

    /// Waits until the timeout, or until the engine stops responding. A slow call may take its time; an
    /// unresponsive engine is detected earlier.
    async fn with_timeout<T>(
        &self,
        timeout: Duration,
        exchange: impl Future<Output = io::Result<T>>,
    ) -> Result<T, CliError> {
        tokio::select! {
            outcome = tokio::time::timeout(timeout, exchange) => outcome
                .map_err(|_| CliError::TimedOut { after: timeout })?
                .map_err(CliError::Io),
            after = self.wait_until_unresponsive() => Err(CliError::TimedOut { after }),
        }
    }

    async fn wait_until_unresponsive(&self) -> Duration {
        if self.engine == Engine::Podman {
            // Podman has no daemon.
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(PING_DELAY).await;
            if !self.responds().await {
                return PING_DELAY + PING_TIMEOUT;
            }
        }
    }

    /// Returns true if the engine's client exits in time, with whatever result.
    async fn responds(&self) -> bool {
        let ping = self.command(PING).output();
        tokio::time::timeout(PING_TIMEOUT, ping).await.is_ok()
    }

    /// Returns the error of an unavailable engine instead of `error` if the engine has become unavailable. An
    /// engine that shuts down reports all kinds of errors.
    pub(crate) async fn explain(&self, error: CliError) -> CliError {
        if error.engine_is_unavailable() || self.engine == Engine::Podman {
            return error;
        }
        match Box::pin(self.run(PING, PING_TIMEOUT)).await {
            Err(unavailable) if unavailable.engine_is_unavailable() => unavailable,
            _ => error,
        }
    }

    /// Runs a call and passes each line of its output to `on_line`.
    pub(crate) async fn follow<A: Into<OsString>>(
        &self,
        args: impl IntoIterator<Item = A>,
        timeout: Duration,
        mut on_line: impl FnMut(&str),
    ) -> Result<(), CliError> {
        let mut child = self.spawn(&mut self.command(args))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let follow = async {
            let read_lines = async {
                if let Some(stdout) = stdout {
                    let mut lines = BufReader::new(stdout.take(MAX_OUTPUT)).lines();
                    while let Some(line) = lines.next_line().await? {
                        on_line(line.trim());
                    }
                }
                Ok::<_, io::Error>(())
            };
            let (lines_read, err, status) = tokio::join!(read_lines, read(stderr), child.wait());
            lines_read?;
            Ok::<_, io::Error>((err?, status?))
        };
        let (err, status) = self.with_timeout(timeout, follow).await?;
        check_status(status, String::new(), &err).map(drop)
    }

    /// Runs a call with `input` as its stdin. If the input fails or this future is dropped, the client is killed before
    /// its stdin is closed, so that the engine does not take the incomplete input for a complete one.
    pub(crate) async fn feed<A: Into<OsString>>(
        &self,
        args: impl IntoIterator<Item = A>,
        mut input: impl AsyncRead + Unpin,
        timeout: Duration,
    ) -> Result<String, CliError> {
        let mut spawned = self.spawn(self.command(args).stdin(Stdio::piped()))?;
        let (mut stdin, stdout, stderr) = (
            spawned.stdin.take(),
            spawned.stdout.take(),
            spawned.stderr.take(),
        );
        // Declared after `stdin`, so that it is dropped, and the client killed, first.
        let mut child = spawned;
        let exchange = async {
            let write = async {
                let written = match &mut stdin {
                    Some(stdin) => tokio::io::copy(&mut input, stdin).await.map(drop),
                    None => Ok(()),
                };
                let written = match written {
                    // The engine's client has exited, and its status tells why.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                    Err(error) => child.kill().await.and(Err(error)),
                    Ok(()) => Ok(()),
                };
                stdin = None;
                written
            };
            let (written, out, err) = tokio::join!(write, read(stdout), read(stderr));
            written?;
            Ok::<_, io::Error>((out?, err?, child.wait().await?))
        };
        let (out, err, status) = self.with_timeout(timeout, exchange).await?;
        check_status(status, out, &err)
    }
}

pub(crate) async fn read(from: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        (&mut from).take(MAX_OUTPUT).read_to_end(&mut bytes).await?;
        // Drain the rest, so that the client does not block.
        tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) fn check_status(status: ExitStatus, out: String, err: &str) -> Result<String, CliError> {
    if status.success() {
        return Ok(out);
    }
    let err = errors_first(err);
    let message = one_line(if err.trim().is_empty() { &out } else { &err });
    Err(CliError::Refused {
        message: if message.is_empty() {
            format!("the engine's client exited with {status}")
        } else {
            message
        },
    })
}

/// Podman prints warnings before the error, and only the beginning of the text is kept.
fn errors_first(text: &str) -> String {
    let is_warning = |line: &&str| line.starts_with("time=") && line.contains("level=warning");
    let (warnings, errors): (Vec<&str>, Vec<&str>) = text.lines().partition(is_warning);
    [errors, warnings].concat().join("\n")
}

/// Output as one short line.
pub(crate) fn one_line(text: &str) -> String {
    const MAX: usize = 400;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX) {
        Some((index, _)) => format!("{}...", &line[..index]),
        None => line,
    }
}

impl CliError {
    /// Returns true if the message contains one of these texts, which are stable across engine versions.
    fn contains(&self, texts: &[&str]) -> bool {
        matches!(self, Self::Refused { message } if {
            let message = message.to_lowercase();
            texts.iter().any(|text| message.contains(text))
        })
    }

    pub(crate) fn no_such_container(&self) -> bool {
        self.contains(&["no such container", "no container with name or id"])
    }

    /// A container or process disappeared while the engine accessed it.
    pub(crate) fn is_gone(&self) -> bool {
        self.no_such_container() || self.has_ended() || self.contains(&["no such process"])
    }

    /// The container exited before the engine could signal it. Docker then refuses to remove it; the next
    /// attempt succeeds.
    pub(crate) fn has_ended(&self) -> bool {
        self.contains(&["could not kill running container"]) && self.contains(&["is not running"])
    }

    /// A retry helps. The last text is Podman's for a container that lost its monitor: it waits for the exit
    /// status once, and recovers with the next call.
    pub(crate) fn being_removed(&self) -> bool {
        self.contains(&[
            "is already in progress",
            "is being removed",
            "timed out waiting for file",
        ])
    }

    pub(crate) fn no_such_image(&self) -> bool {
        self.contains(&[
            "no such image",
            "unable to find image",
            "manifest unknown",
            "did not resolve to an image",
            "not known",
        ])
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.contains(&[
            "is being used",
            "is in use",
            "image used by",
            "is using its referenced image",
        ])
    }

    /// A mount blocks Podman's storage; see docs/backends.md.
    pub(crate) fn storage_is_blocked(&self) -> bool {
        self.contains(&["/merged: device or resource busy"])
    }

    /// The engine did not process the request: its client cannot be started, it does not reply, or the client
    /// failed to connect. A general message such as "EOF" does not count: a truncated archive causes it too.
    pub(crate) fn engine_is_unavailable(&self) -> bool {
        match self {
            Self::Program { .. } | Self::TimedOut { .. } => true,
            Self::Io(_) => false,
            // The daemon reports errors of registries, which may contain the same words.
            Self::Refused { .. } => {
                !self.contains(&["error response from daemon"])
                    && self.contains(&[
                        "cannot connect to the docker daemon",
                        "is the docker daemon running",
                        "error during connect",
                        "unable to connect to podman",
                        "cannot connect to podman",
                        "/_ping",
                    ])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[tokio::test]
    async fn incomplete_input_is_not_taken_for_complete_input() {
        let cli = Cli {
            engine: Engine::Podman,
            program: PathBuf::from("/bin/sh"),
            docker_host: None,
        };
        let directory = tempfile::tempdir().expect("a directory");
        let imported = directory.path().join("imported");
        let script = format!("cat >/dev/null; : >{}", imported.display());
        let timeout = Duration::from_mins(1);
        // A directory can be opened but not read.
        let broken = || tokio::fs::File::from_std(std::fs::File::open("/").expect("a directory"));
        let input = (&b"half"[..]).chain(broken());
        let error = cli.feed(["-c", &script], input, timeout).await;
        assert!(matches!(error, Err(CliError::Io(_))), "{error:?}");
        assert!(!imported.exists());
        let complete = cli.feed(["-c", &script], &b"all"[..], timeout).await;
        assert!(complete.is_ok() && imported.exists(), "{complete:?}");
    }

    #[test]
    fn missing_containers_are_recognised_by_the_engines_messages() {
        let check = |message: &str, expected| {
            let message = message.to_owned();
            let error = CliError::Refused { message };
            assert_eq!(error.is_gone(), expected, "{error}");
        };
        check("Error response from daemon: No such container: b1", true);
        check("Error: no container with name or ID \"b1\" found", true);
        check("Error: read /proc/4565/cgroup: no such process", true);
        check(
            "Error response from daemon: Could not kill running container b1, cannot remove - \
             Container b1 is not running",
            true,
        );
        check("Cannot connect to the Docker daemon", false);
    }

    #[test]
    fn only_connection_errors_of_the_engine_count_as_engine_unavailable() {
        let check = |message: &str, expected| {
            let message = message.to_owned();
            let error = CliError::Refused { message };
            assert_eq!(error.engine_is_unavailable(), expected, "{error}");
        };
        check(
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon \
             running?",
            true,
        );
        check(
            "error during connect: Get \"http://%2Fvar%2Frun%2Fdocker.sock/v1.47/version\": EOF",
            true,
        );
        check(
            "Get \"http://%2Fvar%2Frun%2Fdocker.sock/_ping\": read unix @->/var/run/docker.sock: \
             read: connection reset by peer",
            true,
        );
        check(
            "Error: unable to connect to Podman socket: dial unix /run/podman/podman.sock: connect: \
             connection refused",
            true,
        );
        check("unexpected EOF", false);
        check(
            "Error response from daemon: Get \"https://registry.example/v1/_ping\": EOF",
            false,
        );
        check(
            "Error: pinging container registry quay.io: dial tcp 192.0.2.1:443: connect: connection \
             refused",
            false,
        );
        check(
            "Error response from daemon: archive/tar: invalid tar header: EOF",
            false,
        );
        check(
            "Error response from daemon: Get \"https://registry.example/v2/\": EOF",
            false,
        );
    }

    #[test]
    fn blocked_storage_is_recognised_after_podmans_warnings() {
        let warning =
            "time=\"2026-11-17T18:12:58Z\" level=warning msg=\"Found incomplete layer\"\n";
        let error = "Error: unlinkat /s/overlay/9c8e/merged: device or resource busy\n";
        let printed = warning.repeat(20) + error;
        let failed = ExitStatus::from_raw(125 << 8);
        let refused = check_status(failed, String::new(), &printed).expect_err("it failed");
        assert!(refused.storage_is_blocked(), "{refused}");
        let refused =
            check_status(failed, String::new(), "Error: no such image").expect_err("it failed");
        assert!(!refused.storage_is_blocked(), "{refused}");
    }
}
