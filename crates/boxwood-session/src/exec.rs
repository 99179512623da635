//! One command, from its first byte of input to its result.
//!
//! Comes in: a session and an admitted command. Goes out: an [`ExecResult`]. Never here: a task or
//! a lock. Everything runs in the caller's own future, so a warm command costs a spawn, its output
//! and nothing else; when that future is dropped, the command's tree is killed.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{ExecResult, ExecStatus, Reason};
use boxwood_backend::{
    Exit, ExitStatus, Input, Process, ProcessControl, SpawnError, SpawnRequest, Stdio,
};
use boxwood_policy::{AdmittedExec, AdmittedSpec};
use futures_util::FutureExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Sleep, sleep};

use crate::SessionError;
use crate::capture::Capture;
use crate::drain::{LastWords, Taps, Which};
use crate::leash::{Killed, Leash, kill_tree};
use crate::reason::{Asked, reason};
use crate::session::{ExecEnd, ExecRecord};
use crate::spawning::spawn;

/// The shell's own answer when it cannot run what it was given.
const CANNOT_RUN: i32 = 126;

/// A result, and whether the box has to go because it would not let its command be killed.
pub(crate) struct Done {
    pub(crate) result: ExecResult,
    pub(crate) unkillable: bool,
}

pub(crate) fn shell(exec: &AdmittedExec) -> Vec<String> {
    vec!["/bin/sh".to_owned(), "-c".to_owned(), exec.cmd().to_owned()]
}

/// What to start in the session that is there.
pub(crate) fn request(
    exec: &AdmittedExec,
    living: &AdmittedSpec,
    argv: Vec<String>,
    stdio: Stdio,
) -> SpawnRequest {
    SpawnRequest {
        argv,
        env: exec.env().clone(),
        cwd: exec.workdir(living).to_owned(),
        stdio,
        keep: None,
    }
}

pub(crate) async fn run(
    record: ExecRecord,
    exec: &AdmittedExec,
    capture_bytes: usize,
) -> Result<Done, SessionError> {
    let stdio = if exec.stdin().is_some() {
        Stdio::Pipes
    } else {
        Stdio::Output
    };
    let mut deadline = std::pin::pin!(sleep(exec.timeout()));
    let sandbox = Arc::clone(&record.session().sandbox);
    let mut output = Output::new(capture_bytes);
    let wanted = request(exec, &record.session().spec, shell(exec), stdio);
    // The clock runs from here: a box too busy to start the command is also a timeout.
    let spawned = tokio::select! {
        spawned = spawn(sandbox, wanted) => spawned,
        () = &mut deadline => {
            return Ok(finish(record, exec, output, timed_out(), false));
        }
    };
    let mut process = match spawned {
        Ok(process) => process,
        Err(SpawnError::PidsLimit) => {
            output
                .stderr
                .push(format!("{}\n", SpawnError::PidsLimit).as_bytes());
            let end = ExecEnd {
                status: ExecStatus::Completed,
                exit_code: Some(CANNOT_RUN),
                reason: Some(Reason::PidsLimit),
            };
            return Ok(finish(record, exec, output, end, false));
        }
        Err(error) => return Err(SessionError::spawn(&record.session().id, error)),
    };
    let control = Arc::clone(&process.control);
    let leash = Leash::new(Arc::clone(&control));
    let ended = follow(&mut process, &control, exec.stdin(), deadline, &mut output).await;
    leash.let_go();
    let (end, unkillable) = match ended {
        Ended::Exited(exit) => {
            // A plain end has nothing to do with what happened to the session meanwhile.
            let asked = match exit.status {
                ExitStatus::BoxGone => record.session().asked(),
                ExitStatus::Code(_) | ExitStatus::Signal(_) => Asked::Nobody,
            };
            let end = ExecEnd {
                status: ExecStatus::Completed,
                exit_code: exit.code(),
                reason: reason(&exit, asked),
            };
            (end, false)
        }
        Ended::TimedOut(killed) => (timed_out(), matches!(killed, Killed::Alive)),
    };
    Ok(finish(record, exec, output, end, unkillable))
}

pub(crate) fn timed_out() -> ExecEnd {
    ExecEnd {
        status: ExecStatus::TimedOut,
        exit_code: None,
        reason: Some(Reason::Timeout),
    }
}

struct Output {
    stdout: Capture,
    stderr: Capture,
}

impl Output {
    fn new(limit: usize) -> Self {
        Self {
            stdout: Capture::new(limit),
            stderr: Capture::new(limit),
        }
    }

    fn push(&mut self, which: Which, bytes: &[u8]) {
        match which {
            Which::Stdout => self.stdout.push(bytes),
            Which::Stderr => self.stderr.push(bytes),
        }
    }
}

enum Ended {
    Exited(Exit),
    TimedOut(Killed),
}

/// Feeds and reads the process until it has ended and said its last words.
async fn follow(
    process: &mut Process,
    control: &Arc<dyn ProcessControl>,
    stdin: Option<&str>,
    mut deadline: Pin<&mut Sleep>,
    output: &mut Output,
) -> Ended {
    let mut taps = Taps::of(process);
    let mut feeding = std::pin::pin!(feed(process.stdin.take(), stdin));
    let mut fed = stdin.is_none();
    let mut wait = control.wait();
    let exited = loop {
        tokio::select! {
            exit = &mut wait => break Some(exit),
            which = taps.fill(), if taps.is_open() => output.push(which, taps.bytes(which)),
            () = &mut feeding, if !fed => fed = true,
            // An end in the same instant is an end, not a timeout.
            () = &mut deadline => break (&mut wait).now_or_never(),
        }
    };
    let ended = match exited {
        Some(exit) => Ended::Exited(exit),
        None => Ended::TimedOut(kill_tree(&**control).await),
    };
    let mut last_words = LastWords::begin();
    while taps.is_open() {
        tokio::select! {
            which = taps.fill() => {
                let bytes = taps.bytes(which);
                last_words.heard(bytes.len());
                output.push(which, bytes);
            }
            () = last_words.over() => break,
        }
    }
    taps.discard_rest();
    ended
}

/// Writes the command's input and closes it. A command that does not want it is its own business.
async fn feed(stdin: Option<Box<dyn Input>>, text: Option<&str>) {
    if let (Some(mut stdin), Some(text)) = (stdin, text)
        && stdin.write_all(text.as_bytes()).await.is_ok()
    {
        // Flushes what a writer may hold back; dropping it is the end of file.
        let _ = stdin.shutdown().await;
    }
}

fn finish(
    record: ExecRecord,
    exec: &AdmittedExec,
    output: Output,
    end: ExecEnd,
    unkillable: bool,
) -> Done {
    let session = Arc::clone(record.session());
    let duration_ms = record.finish(&end);
    let (stdout, stdout_capture) = output.stdout.finish();
    let (mut stderr, stderr_capture) = output.stderr.finish();
    if end.status == ExecStatus::TimedOut && stderr.is_empty() {
        // Our words, not the command's: the capture goes on saying that it wrote nothing.
        stderr = format!(
            "Command timed out after {} seconds.",
            seconds(exec.timeout())
        );
    }
    let result = ExecResult {
        session_id: session.id.clone(),
        backend_name: session.backend.name().to_owned(),
        status: end.status,
        exit_code: end.exit_code,
        stdout,
        stderr,
        duration_ms,
        reason: end.reason,
        stdout_capture,
        stderr_capture,
        notices: exec.notices().to_vec(),
    };
    Done { result, unkillable }
}

fn seconds(timeout: Duration) -> String {
    if timeout.subsec_nanos() == 0 {
        timeout.as_secs().to_string()
    } else {
        timeout.as_secs_f64().to_string()
    }
}
