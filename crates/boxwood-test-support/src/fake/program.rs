//! One program of a pretended box: a plain child in a process group of its own.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio as ChildStdio;
use std::sync::Arc;
use std::time::Duration;

use boxwood_backend::{
    BoxFuture, ControlError, Exit, ExitStatus, Process, ProcessControl, Scope, SpawnError,
    SpawnRequest, Stdio, TerminalSize,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::sandbox::FakeSandbox;
use super::terminal::Terminal;
use super::{pipes, tree};

/// One argument cannot be longer than 128 KiB, so a long script goes through a file.
const LONGEST_SCRIPT_ARGUMENT: usize = 96 * 1024;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(super) fn box_mark(id: &str) -> String {
    format!("BOXWOOD_FAKE_BOX={id}")
}

fn program_mark(id: &str, number: u64) -> (&'static str, String) {
    ("BOXWOOD_FAKE_PROGRAM", format!("{id}.{number}"))
}

pub(super) async fn start(
    sandbox: &FakeSandbox,
    request: SpawnRequest,
    number: u64,
) -> Result<Process, SpawnError> {
    let (base, rest) = sandbox.locate(&request.cwd);
    let cwd = base.join(rest);
    let step = |step: &str| {
        let step = step.to_owned();
        move |source| SpawnError::Step { step, source }
    };
    std::fs::create_dir_all(&cwd).map_err(step("making the working directory"))?;
    let argv = short_enough(sandbox, request.argv, number).map_err(step("writing the script"))?;
    let Some((program, arguments)) = argv.split_first() else {
        return Err(step("argv is empty")(io::ErrorKind::InvalidInput.into()));
    };
    let launch = Launch {
        sandbox,
        env: request.env,
        cwd,
        number,
        stdio: request.stdio,
    };
    let started = match launch.run(program, arguments) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            launch.run_complaint(program, "not found", 127)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            launch.run_complaint(program, "cannot be executed", 126)
        }
        outcome => outcome,
    };
    let (process, control) = started.map_err(|error| match error.kind() {
        io::ErrorKind::ArgumentListTooLong => SpawnError::TooLong,
        _ => step("starting the program")(error),
    })?;
    control.until_on_terminal().await;
    Ok(process)
}

fn short_enough(
    sandbox: &FakeSandbox,
    mut argv: Vec<String>,
    number: u64,
) -> io::Result<Vec<String>> {
    if let [shell, flag, script, ..] = argv.as_mut_slice()
        && shell == "/bin/sh"
        && flag == "-c"
        && script.len() > LONGEST_SCRIPT_ARGUMENT
    {
        let path = sandbox.root().join(format!("script-{number}"));
        std::fs::write(&path, &*script)?;
        // Read in by a shell that has the arguments, so that `$0` and the rest stay theirs.
        *script = format!("eval \"$(cat '{}')\"", path.display());
    }
    Ok(argv)
}

type Started = (Process, Arc<FakeControl>);

struct Launch<'a> {
    sandbox: &'a FakeSandbox,
    env: std::collections::BTreeMap<String, String>,
    cwd: PathBuf,
    number: u64,
    stdio: Stdio,
}

impl Launch<'_> {
    /// A program that does not exist is a program that says so and fails.
    fn run_complaint(&self, program: &str, what: &str, code: i32) -> io::Result<Started> {
        let script = r#"printf '%s: %s\n' "$1" "$2" >&2; exit "$3""#;
        let words = ["-c", script, "sh", program, what, &code.to_string()].map(str::to_owned);
        self.run("/bin/sh", &words)
    }

    fn run(&self, program: &str, arguments: &[String]) -> io::Result<Started> {
        let id = boxwood_backend::Sandbox::id(self.sandbox);
        let mark = program_mark(id, self.number);
        let terminal = match self.stdio {
            Stdio::Terminal(size) => Some(Terminal::open(size)?),
            Stdio::Output | Stdio::Pipes => None,
        };
        let mut command = if terminal.is_some() {
            // Becomes the leader of a session whose terminal is its stdin, then the program. The
            // signals of the keyboard work even where the test itself was told to ignore them.
            let mut command = Command::new("env");
            command.args(["--default-signal", "setsid", "--ctty", "--", program]);
            command
        } else {
            let mut command = Command::new(program);
            command.process_group(0);
            command
        };
        command
            .args(arguments.iter().map(OsString::from))
            .current_dir(&self.cwd)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", self.sandbox.root().join("home/box"))
            .env("LANG", "C.UTF-8")
            .env("PYTHONUNBUFFERED", "1")
            .envs(&self.env)
            .env("BOXWOOD_FAKE_BOX", id)
            .env(mark.0, &mark.1);
        if let Some(terminal) = &terminal {
            command
                .stdin(terminal.for_child()?)
                .stdout(terminal.for_child()?)
                .stderr(terminal.for_child()?);
        } else {
            let stdin = match self.stdio {
                Stdio::Pipes => ChildStdio::piped(),
                Stdio::Output | Stdio::Terminal(_) => ChildStdio::null(),
            };
            command
                .stdin(stdin)
                .stdout(ChildStdio::piped())
                .stderr(ChildStdio::piped());
        }
        let mut child = command.spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let streams = match &terminal {
            Some(terminal) => pipes::of_terminal(terminal)?,
            None => pipes::of_child(&mut child)?,
        };
        let (sender, exit) = watch::channel(None);
        tokio::spawn(reap(child, self.sandbox.alive(), sender));
        let control = FakeControl {
            pid: pid.and_then(Pid::from_raw),
            mark: format!("{}={}", mark.0, mark.1),
            exit,
            terminal,
        };
        let control = Arc::new(control);
        let process = Process {
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
            control: Arc::clone(&control) as _,
        };
        Ok((process, control))
    }
}

async fn reap(mut child: Child, alive: watch::Receiver<bool>, exit: watch::Sender<Option<Exit>>) {
    use std::os::unix::process::ExitStatusExt as _;
    let outcome = child.wait().await;
    let status = match outcome {
        _ if !*alive.borrow() => ExitStatus::BoxGone,
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => ExitStatus::Code(code),
            (None, Some(signal)) => ExitStatus::Signal(signal),
            (None, None) => ExitStatus::BoxGone,
        },
        Err(_) => ExitStatus::BoxGone,
    };
    exit.send_replace(Some(Exit {
        status,
        oom: false,
        pids_limit: false,
        disk_full: false,
        denied_syscall: None,
    }));
}

struct FakeControl {
    pid: Option<Pid>,
    mark: String,
    exit: watch::Receiver<Option<Exit>>,
    terminal: Option<Terminal>,
}

impl FakeControl {
    /// A key pressed before the program has taken its terminal would be lost. (Taking it is two
    /// programs away, because nothing can be done between fork and exec here.)
    async fn until_on_terminal(&self) {
        let Some(terminal) = &self.terminal else {
            return;
        };
        for _ in 0..1000 {
            if terminal.foreground().is_some() || self.exit.borrow().is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl ProcessControl for FakeControl {
    fn wait(&self) -> BoxFuture<'_, Exit> {
        let mut exit = self.exit.clone();
        Box::pin(async move {
            let gone = Exit {
                status: ExitStatus::BoxGone,
                oom: false,
                pids_limit: false,
                disk_full: false,
                denied_syscall: None,
            };
            match exit.wait_for(Option::is_some).await {
                Ok(exit) => exit.clone().unwrap_or(gone),
                // The runtime that waited for the child is gone.
                Err(_) => gone,
            }
        })
    }

    fn signal(&self, number: i32, scope: Scope) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move {
            let signal = Signal::from_named_raw(number).ok_or(ControlError::BadSignal(number))?;
            match scope {
                Scope::Process => {
                    if self.exit.borrow().is_some() {
                        return Err(ControlError::Ended);
                    }
                    let pid = match &self.terminal {
                        Some(terminal) => terminal.foreground(),
                        None => None,
                    };
                    let sent = match (pid, self.pid) {
                        (Some(group), _) => rustix::process::kill_process_group(group, signal),
                        (None, Some(pid)) => kill_process(pid, signal),
                        (None, None) => return Err(ControlError::Ended),
                    };
                    sent.map_err(|error| ControlError::Io(error.into()))
                }
                Scope::Tree => {
                    let mark = self.mark.clone();
                    let signalling = tokio::task::spawn_blocking(move || {
                        if signal == Signal::KILL {
                            tree::kill_marked(&mark);
                        } else {
                            tree::signal_marked(&mark, signal);
                        }
                    });
                    signalling
                        .await
                        .map_err(|error| ControlError::Io(io::Error::other(error)))
                }
            }
        })
    }

    fn resize(&self, size: TerminalSize) -> Result<(), ControlError> {
        let terminal = self.terminal.as_ref().ok_or(ControlError::NoTerminal)?;
        terminal.resize(size).map_err(ControlError::Io)
    }
}
