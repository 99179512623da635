//! Starts the programs of a fake box: plain children in process groups of their own, and scripts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio as ChildStdio};
use std::sync::Arc;

use boxwood_backend::{ExitStatus, SpawnError, SpawnRequest, Stdio};
use rustix::process::Pid;

use super::boxes::FakeBox;
use super::program::{Ends, Made, Program};
use super::script::{self, Script};
use super::terminal::Terminal;

/// One argument cannot be longer than 128 KiB, so a long script goes through a file.
const MAX_SCRIPT_ARGUMENT: usize = 96 * 1024;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

type Started = (Arc<Program>, Ends);

/// Starts a program and returns the daemon's ends of its streams. Keeps it for adoption if the request says so.
pub(super) fn start(of: &Arc<FakeBox>, request: SpawnRequest) -> Result<Started, SpawnError> {
    let number = of.next_program();
    let step = |step: &str| {
        let step = step.to_owned();
        move |source| SpawnError::Step { step, source }
    };
    let started = match script::text(&request.argv) {
        Some(text) => run_script(of, number, text, request.stdio),
        None => run_program(of, number, &request),
    };
    let (program, ends) = started.map_err(|error| match error.kind() {
        io::ErrorKind::ArgumentListTooLong => SpawnError::TooLong,
        _ => step("starting the program")(error),
    })?;
    if let Some(keep) = request.keep {
        program.keep(keep, ends.copies().map_err(step("keeping its pipes"))?);
        // Added again, because a short program may have ended and been removed before it was kept.
        of.add(Arc::clone(&program));
    }
    if !of.is_alive() {
        // The box died meanwhile, and this program may not have been killed with it.
        of.die();
        return Err(SpawnError::Gone);
    }
    Ok((program, ends))
}

fn run_script(of: &Arc<FakeBox>, number: u64, text: String, stdio: Stdio) -> io::Result<Started> {
    let (script, ends, stage) = Script::new(text, stdio)?;
    let program = Arc::new(Program::new(number, Made::Script(script), None));
    of.add(Arc::clone(&program));
    let whole = Arc::downgrade(of);
    let performed = Arc::clone(&program);
    std::thread::Builder::new()
        .name("fake-program".to_owned())
        .spawn(move || {
            let status = stage.perform();
            performed.ended(status, &whole);
        })?;
    Ok((program, ends))
}

fn run_program(of: &Arc<FakeBox>, number: u64, request: &SpawnRequest) -> io::Result<Started> {
    let (base, rest) = of.locate(&request.cwd);
    let cwd = base.join(rest);
    // A directory of the host that was removed is not created again.
    std::fs::metadata(&base)?;
    std::fs::create_dir_all(&cwd)?;
    let argv = short_enough(of, request.argv.clone(), number)?;
    let Some((program, arguments)) = argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "argv is empty"));
    };
    let launch = Launch {
        of,
        env: &request.env,
        cwd,
        number,
        stdio: request.stdio,
    };
    match launch.run(program, arguments) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            launch.run_failing(program, "not found", 127)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            launch.run_failing(program, "cannot be executed", 126)
        }
        outcome => outcome,
    }
}

fn short_enough(of: &FakeBox, mut argv: Vec<String>, number: u64) -> io::Result<Vec<String>> {
    if let [shell, flag, script, ..] = argv.as_mut_slice()
        && shell == "/bin/sh"
        && flag == "-c"
        && script.len() > MAX_SCRIPT_ARGUMENT
    {
        let path = of.root().join(format!("script-{number}"));
        std::fs::write(&path, &*script)?;
        // Evaluated by the shell that has the arguments, so that `$0`, `$1` and so on stay the same.
        *script = format!("eval \"$(cat '{}')\"", path.display());
    }
    Ok(argv)
}

struct Launch<'a> {
    of: &'a Arc<FakeBox>,
    env: &'a BTreeMap<String, String>,
    cwd: PathBuf,
    number: u64,
    stdio: Stdio,
}

impl Launch<'_> {
    /// Runs a shell that prints the error and fails, in place of a program that cannot be started.
    fn run_failing(&self, program: &str, what: &str, code: i32) -> io::Result<Started> {
        let script = r#"printf '%s: %s\n' "$1" "$2" >&2; exit "$3""#;
        let words = ["-c", script, "sh", program, what, &code.to_string()].map(str::to_owned);
        self.run("/bin/sh", &words)
    }

    fn run(&self, program: &str, arguments: &[String]) -> io::Result<Started> {
        let id = self.of.id();
        let mark = ("BOXWOOD_FAKE_PROGRAM", format!("{id}.{}", self.number));
        let terminal = match self.stdio {
            Stdio::Terminal(size) => Some(Arc::new(Terminal::open(size)?)),
            Stdio::Output | Stdio::Pipes => None,
        };
        let mut command = if terminal.is_some() {
            // Becomes the leader of a session whose terminal is its stdin, then the program. The
            // signals of the keyboard work even if the test itself ignores them.
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
            .env("HOME", self.of.root().join("home/box"))
            .env("LANG", "C.UTF-8")
            .env("PYTHONUNBUFFERED", "1")
            .envs(self.env)
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
        // Set before the child exists, so that a concurrent stop of the box finds it.
        self.of.has_child();
        let mut child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let ends = Ends {
            stdin: child.stdin.take().map(OwnedFd::from),
            stdout: child.stdout.take().map(OwnedFd::from),
            stderr: child.stderr.take().map(OwnedFd::from),
        };
        let mark = format!("{}={}", mark.0, mark.1);
        let made = Made::Child { pid, mark };
        let program = Arc::new(Program::new(self.number, made, terminal));
        self.of.add(Arc::clone(&program));
        reap(self.of, Arc::clone(&program), child)?;
        Ok((program, ends))
    }
}

/// On a thread, because programs outlive every runtime.
fn reap(of: &Arc<FakeBox>, program: Arc<Program>, mut child: Child) -> io::Result<()> {
    let of = Arc::downgrade(of);
    let waiting = move || {
        let status = match child.wait() {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => ExitStatus::Code(code),
                (None, Some(signal)) => ExitStatus::Signal(signal),
                (None, None) => ExitStatus::BoxGone,
            },
            Err(_) => ExitStatus::BoxGone,
        };
        program.ended(status, &of);
    };
    std::thread::Builder::new()
        .name("fake-reaper".to_owned())
        .spawn(waiting)?;
    Ok(())
}
