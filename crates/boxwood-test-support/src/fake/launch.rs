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
use super::program::{Ends, Program, ProgramKind};
use super::script::{self, Script};
use super::terminal::Terminal;

/// One argument cannot be longer than 128 KiB, so a long script goes through a file.
const MAX_SCRIPT_ARGUMENT: usize = 96 * 1024;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

type Started = (Arc<Program>, Ends);

/// Starts a program and returns the daemon's ends of its streams. Keeps it for adoption if the request says so.
pub(super) fn start(fake_box: &Arc<FakeBox>, request: SpawnRequest) -> Result<Started, SpawnError> {
    let number = fake_box.next_program();
    let step = |step: &str| {
        let step = step.to_owned();
        move |source| SpawnError::Step { step, source }
    };
    let started = match script::text(&request.argv) {
        Some(text) => run_script(fake_box, number, text, request.stdio),
        None => run_program(fake_box, number, &request),
    };
    let (program, ends) = started.map_err(|error| match error.kind() {
        io::ErrorKind::ArgumentListTooLong => SpawnError::TooLong,
        _ => step("starting the program")(error),
    })?;
    if let Some(keep) = request.keep {
        program.keep(keep, ends.copies().map_err(step("keeping its pipes"))?);
        // Added again, because a short program may have ended and been removed before it was kept.
        fake_box.add(Arc::clone(&program));
    }
    if !fake_box.is_alive() {
        // The box died meanwhile, and this program may not have been killed with it.
        fake_box.die();
        return Err(SpawnError::Gone);
    }
    Ok((program, ends))
}

fn run_script(
    fake_box: &Arc<FakeBox>,
    number: u64,
    text: String,
    stdio: Stdio,
) -> io::Result<Started> {
    let (script, ends, running_script) = Script::new(text, stdio)?;
    let program = Arc::new(Program::new(number, ProgramKind::Script(script), None));
    fake_box.add(Arc::clone(&program));
    let weak_box = Arc::downgrade(fake_box);
    let ended_program = Arc::clone(&program);
    std::thread::Builder::new()
        .name("fake-program".to_owned())
        .spawn(move || {
            let status = running_script.run();
            ended_program.ended(status, &weak_box);
        })?;
    Ok((program, ends))
}

fn run_program(
    fake_box: &Arc<FakeBox>,
    number: u64,
    request: &SpawnRequest,
) -> io::Result<Started> {
    let (base, relative) = fake_box.locate(&request.cwd);
    let cwd = base.join(relative);
    // A directory of the host that was removed is not created again.
    std::fs::metadata(&base)?;
    std::fs::create_dir_all(&cwd)?;
    let argv = short_enough(fake_box, request.argv.clone(), number)?;
    let Some((program, arguments)) = argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "argv is empty"));
    };
    let launch = Launch {
        fake_box,
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

fn short_enough(fake_box: &FakeBox, mut argv: Vec<String>, number: u64) -> io::Result<Vec<String>> {
    if let [shell, flag, script, ..] = argv.as_mut_slice()
        && shell == "/bin/sh"
        && flag == "-c"
        && script.len() > MAX_SCRIPT_ARGUMENT
    {
        let path = fake_box.root().join(format!("script-{number}"));
        std::fs::write(&path, &*script)?;
        // Evaluated by the shell that has the arguments, so that `$0`, `$1` and so on stay the same.
        *script = format!("eval \"$(cat '{}')\"", path.display());
    }
    Ok(argv)
}

struct Launch<'a> {
    fake_box: &'a Arc<FakeBox>,
    env: &'a BTreeMap<String, String>,
    cwd: PathBuf,
    number: u64,
    stdio: Stdio,
}

impl Launch<'_> {
    /// Runs a shell that prints the error and fails, in place of a program that cannot be started.
    fn run_failing(&self, program: &str, reason: &str, code: i32) -> io::Result<Started> {
        let script = r#"printf '%s: %s\n' "$1" "$2" >&2; exit "$3""#;
        let arguments = ["-c", script, "sh", program, reason, &code.to_string()].map(str::to_owned);
        self.run("/bin/sh", &arguments)
    }

    fn run(&self, program: &str, arguments: &[String]) -> io::Result<Started> {
        let id = self.fake_box.id();
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
            .env("HOME", self.fake_box.root().join("home/box"))
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
        self.fake_box.record_child();
        let mut child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let ends = Ends {
            stdin: child.stdin.take().map(OwnedFd::from),
            stdout: child.stdout.take().map(OwnedFd::from),
            stderr: child.stderr.take().map(OwnedFd::from),
        };
        let mark = format!("{}={}", mark.0, mark.1);
        let kind = ProgramKind::Child { pid, mark };
        let program = Arc::new(Program::new(self.number, kind, terminal));
        self.fake_box.add(Arc::clone(&program));
        reap(self.fake_box, Arc::clone(&program), child)?;
        Ok((program, ends))
    }
}

/// On a thread, because programs outlive every runtime.
fn reap(fake_box: &Arc<FakeBox>, program: Arc<Program>, mut child: Child) -> io::Result<()> {
    let fake_box = Arc::downgrade(fake_box);
    let waiting = move || {
        let status = match child.wait() {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => ExitStatus::Code(code),
                (None, Some(signal)) => ExitStatus::Signal(signal),
                (None, None) => ExitStatus::BoxGone,
            },
            Err(_) => ExitStatus::BoxGone,
        };
        program.ended(status, &fake_box);
    };
    std::thread::Builder::new()
        .name("fake-reaper".to_owned())
        .spawn(waiting)?;
    Ok(())
}
