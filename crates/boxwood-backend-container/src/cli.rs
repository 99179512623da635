//! Calls of the engine's own command line.
//!
//! Comes in: an argument vector. Goes out: what the program printed, or why not. Never here: a shell,
//! or a call without a deadline. A call whose future is dropped is killed.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::settings::{ContainerSettings, Engine};

/// What an engine prints of itself; more is cut.
const MOST_OUTPUT: u64 = 4 * 1024 * 1024;
/// After this long it is asked whether the engine is there at all.
const SLOW: Duration = Duration::from_secs(5);
/// What it takes a tenth of a second to answer, on a busy machine.
const GREETING: Duration = Duration::from_secs(10);
const GREET: [&str; 3] = ["version", "--format", "{{.Server.Version}}"];

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
    /// The engine's own words, on one line.
    #[error("{said}")]
    Refused { said: String },
    #[error("the engine did not answer within {} s", after.as_secs())]
    Silent { after: Duration },
    #[error("the engine could not be heard")]
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

    /// A call that is prepared and not yet made. It ends with its handle, and has a session of its
    /// own: a signal for the daemon's terminal is not for the engine.
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

    /// Runs it to its end; what it wrote to stdout.
    pub(crate) async fn run<A: Into<OsString>>(
        &self,
        args: impl IntoIterator<Item = A>,
        within: Duration,
    ) -> Result<String, CliError> {
        self.finish(&mut self.command(args), within).await
    }

    /// The same from a directory of the box's own: Podman's monitor leaves notes where it was started.
    pub(crate) async fn run_in<A: Into<OsString>>(
        &self,
        directory: &Path,
        args: impl IntoIterator<Item = A>,
        within: Duration,
    ) -> Result<String, CliError> {
        self.finish(self.command(args).current_dir(directory), within)
            .await
    }

    async fn finish(&self, command: &mut Command, within: Duration) -> Result<String, CliError> {
        let mut child = self.spawn(command)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let talk = async {
            let (out, err, status) = tokio::join!(read(stdout), read(stderr), child.wait());
            Ok::<_, io::Error>((out?, err?, status?))
        };
        let (out, err, status) = self.attend(within, talk).await?;
        judge(status, out, &err)
    }

    /// Waits for a call until its deadline, or until the engine answers nobody: a slow call gets its
    /// time, a silent engine does not.
    async fn attend<T>(
        &self,
        within: Duration,
        talk: impl Future<Output = io::Result<T>>,
    ) -> Result<T, CliError> {
        tokio::select! {
            outcome = tokio::time::timeout(within, talk) => outcome
                .map_err(|_| CliError::Silent { after: within })?
                .map_err(CliError::Io),
            after = self.falls_silent() => Err(CliError::Silent { after }),
        }
    }

    async fn falls_silent(&self) -> Duration {
        if self.engine == Engine::Podman {
            // Nobody is behind its program.
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(SLOW).await;
            if self.greet().await.is_err() {
                return SLOW + GREETING;
            }
        }
    }

    /// Whether anybody answers at all, however he answers.
    async fn greet(&self) -> Result<(), CliError> {
        let mut child = self.spawn(
            self.command(GREET)
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        )?;
        match tokio::time::timeout(GREETING, child.wait()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(CliError::Silent { after: GREETING }),
        }
    }

    /// Why an engine refused something: itself, or that it is not there any more. One that goes says
    /// all kinds of things.
    pub(crate) async fn explain(&self, error: CliError) -> CliError {
        if error.engine_is_away() || self.engine == Engine::Podman {
            return error;
        }
        match Box::pin(self.run(GREET, GREETING)).await {
            Err(away) if away.engine_is_away() => away,
            _ => error,
        }
    }

    /// The same for a call that says how it comes along, line by line.
    pub(crate) async fn follow<A: Into<OsString>>(
        &self,
        args: impl IntoIterator<Item = A>,
        within: Duration,
        mut hear: impl FnMut(&str),
    ) -> Result<(), CliError> {
        let mut child = self.spawn(&mut self.command(args))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let follow = async {
            let listen = async {
                if let Some(stdout) = stdout {
                    let mut lines = BufReader::new(stdout.take(MOST_OUTPUT)).lines();
                    while let Some(line) = lines.next_line().await? {
                        hear(line.trim());
                    }
                }
                Ok::<_, io::Error>(())
            };
            let (heard, err, status) = tokio::join!(listen, read(stderr), child.wait());
            heard?;
            Ok::<_, io::Error>((err?, status?))
        };
        let (err, status) = self.attend(within, follow).await?;
        judge(status, String::new(), &err).map(drop)
    }

    /// The same for a call that reads a file from its standard input.
    pub(crate) async fn feed<A: Into<OsString>>(
        &self,
        args: impl IntoIterator<Item = A>,
        mut input: impl AsyncRead + Unpin,
        within: Duration,
    ) -> Result<String, CliError> {
        let mut child = self.spawn(self.command(args).stdin(Stdio::piped()))?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let talk = async {
            let give = async {
                if let Some(mut stdin) = stdin {
                    tokio::io::copy(&mut input, &mut stdin).await?;
                    stdin.shutdown().await?;
                }
                Ok::<_, io::Error>(())
            };
            let (given, out, err) = tokio::join!(give, read(stdout), read(stderr));
            if let Err(error) = given
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                // The archive broke off: the engine must not take half of it for the whole.
                child.start_kill()?;
                child.wait().await?;
                return Err(error);
            }
            Ok::<_, io::Error>((out?, err?, child.wait().await?))
        };
        let (out, err, status) = self.attend(within, talk).await?;
        judge(status, out, &err)
    }
}

pub(crate) async fn read(from: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        (&mut from)
            .take(MOST_OUTPUT)
            .read_to_end(&mut bytes)
            .await?;
        // Whatever is beyond must not stop the program.
        tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) fn judge(status: ExitStatus, out: String, err: &str) -> Result<String, CliError> {
    if status.success() {
        return Ok(out);
    }
    let err = errors_first(err);
    let said = one_line(if err.trim().is_empty() { &out } else { &err });
    Err(CliError::Refused {
        said: if said.is_empty() {
            format!("the engine's program ended with {status}")
        } else {
            said
        },
    })
}

/// Podman warns of this and that before it says why it refuses, and little of it is kept.
fn errors_first(text: &str) -> String {
    let is_warning = |line: &&str| line.starts_with("time=") && line.contains("level=warning");
    let (warnings, errors): (Vec<&str>, Vec<&str>) = text.lines().partition(is_warning);
    [errors, warnings].concat().join("\n")
}

/// What somebody printed, as one short line.
pub(crate) fn one_line(text: &str) -> String {
    const MOST: usize = 400;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

impl CliError {
    /// The words of a refusal that mean one thing in every version of either engine.
    fn says(&self, any: &[&str]) -> bool {
        matches!(self, Self::Refused { said } if {
            let said = said.to_lowercase();
            any.iter().any(|words| said.contains(words))
        })
    }

    pub(crate) fn no_such_container(&self) -> bool {
        self.says(&["no such container", "no container with name or id"])
    }

    /// A container went or ended, or a process of one, while the engine looked at it.
    pub(crate) fn went_meanwhile(&self) -> bool {
        self.no_such_container() || self.ended_meanwhile() || self.says(&["no such process"])
    }

    /// The container ended between the engine's look at it and its signal. Docker then refuses to
    /// remove it; the next attempt succeeds.
    pub(crate) fn ended_meanwhile(&self) -> bool {
        self.says(&["could not kill running container"]) && self.says(&["is not running"])
    }

    /// Asking once more helps. The last words are Podman's of a container that lost its monitor: it
    /// waits for news of the end, and knows better the next time.
    pub(crate) fn being_removed(&self) -> bool {
        self.says(&[
            "is already in progress",
            "is being removed",
            "timed out waiting for file",
        ])
    }

    pub(crate) fn no_such_image(&self) -> bool {
        self.says(&[
            "no such image",
            "unable to find image",
            "image not known",
            "manifest unknown",
            "did not resolve to an image",
            "not known",
        ])
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.says(&[
            "is being used",
            "is in use",
            "image used by",
            "is using its referenced image",
        ])
    }

    /// A mount that no Podman can reach keeps all of them from their storage; see docs/backends.md.
    pub(crate) fn storage_is_stuck(&self) -> bool {
        self.says(&["/merged: device or resource busy"])
    }

    /// The engine itself is not there.
    pub(crate) fn engine_is_away(&self) -> bool {
        match self {
            Self::Program { .. } | Self::Silent { .. } => true,
            Self::Io(_) => false,
            Self::Refused { .. } => self.says(&[
                "cannot connect to the docker daemon",
                "is the docker daemon running",
                "error during connect",
                "connection refused",
                "connection reset",
                "unable to connect to podman",
                "eof",
            ]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn what_went_meanwhile_is_known_by_the_engines_words() {
        let check = |said: &str, expected| {
            let said = said.to_owned();
            let error = CliError::Refused { said };
            assert_eq!(error.went_meanwhile(), expected, "{error}");
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
    fn a_storage_that_is_stuck_is_known_behind_podmans_warnings() {
        let warning =
            "time=\"2026-11-17T18:12:58Z\" level=warning msg=\"Found incomplete layer\"\n";
        let error = "Error: unlinkat /s/overlay/9c8e/merged: device or resource busy\n";
        let printed = warning.repeat(20) + error;
        let failed = ExitStatus::from_raw(125 << 8);
        let refused = judge(failed, String::new(), &printed).expect_err("it failed");
        assert!(refused.storage_is_stuck(), "{refused}");
        let refused = judge(failed, String::new(), "Error: no such image").expect_err("it failed");
        assert!(!refused.storage_is_stuck(), "{refused}");
    }
}
