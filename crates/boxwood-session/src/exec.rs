//! One command, from its first byte of input to its result.
//!
//! Comes in: a session and an admitted command. Goes out: an [`ExecResult`]. Never here: a task.
//! Everything runs in the caller's own future, so a warm command costs a spawn, its output and nothing
//! else; when that future is dropped, the command's tree is killed. A command whose caller went with an
//! earlier daemon is followed to its end in a task, and its result is kept.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_api::{ExecResult, ExecStatus, Reason};
use boxwood_backend::{Exit, ExitStatus, Keep, Process, SpawnError, SpawnRequest, Stdio};
use boxwood_policy::{AdmittedExec, AdmittedSpec};
use futures_util::FutureExt as _;
use jiff::Timestamp;
use tokio::time::{Sleep, sleep};

use crate::SessionError;
use crate::capture::Capture;
use crate::drain::{LastWords, Taps, Which};
use crate::execs::{Listed, Running};
use crate::input;
use crate::journal::{Journal, wrong};
use crate::leash::{Killed, Leash, kill_tree};
use crate::notes::{BootTime, ExecNote, KindNote, Note, shown};
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
    keep: Keep,
) -> SpawnRequest {
    SpawnRequest {
        argv,
        env: exec.env().clone(),
        cwd: exec.workdir(living).to_owned(),
        stdio,
        keep: Some(keep),
    }
}

/// What the next daemon is told of a command that begins now.
pub(crate) fn note(exec_id: u64, exec: &AdmittedExec, command: &str, kind: KindNote) -> ExecNote {
    let began = BootTime::now();
    ExecNote {
        exec_id,
        command: shown(command),
        started_at: Timestamp::now(),
        began,
        deadline: began.after(exec.timeout()),
        kind,
        notices: exec.notices().to_vec(),
    }
}

/// Something of ours that a command needs could not be made.
pub(crate) fn not_kept(record: &ExecRecord, source: io::Error) -> SessionError {
    let source = SpawnError::Step {
        step: "making what outlives the daemon".to_owned(),
        source,
    };
    SessionError::spawn(&record.session().id, source)
}

/// A command's whole input: all of it is accepted before the command begins.
fn given_input(text: &str) -> io::Result<Journal> {
    let journal = Journal::new("stdin")?;
    journal.append(text.as_bytes())?;
    journal.seal()?;
    Ok(journal)
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
    let session = Arc::clone(record.session());
    let mut output = Output::new(capture_bytes);
    let note = note(record.exec_id, exec, exec.cmd(), KindNote::Captured);
    let input = exec.stdin().map(given_input).transpose();
    let input = input.map_err(|error| not_kept(&record, error))?;
    let keep = keep(&note, input.as_ref()).map_err(|error| not_kept(&record, error))?;
    let wanted = request(exec, &session.spec, shell(exec), stdio, keep);
    let asked = Wanted::of(exec);
    // The clock runs from here: a box too busy to start the command is also a timeout.
    let spawned = tokio::select! {
        spawned = spawn(&session, wanted) => spawned,
        () = &mut deadline => {
            return Ok(finish(record, asked, output, timed_out(), false));
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
            return Ok(finish(record, asked, output, end, false));
        }
        Err(error) => return Err(SessionError::spawn(&session.id, error)),
    };
    let running = Running::new(
        session.id.clone(),
        note,
        Arc::clone(&process.control),
        false,
    );
    let listed = session.execs.list(running);
    let leash = Leash::new(Arc::clone(&process.control), session.execs.parting());
    let following = follow(&mut process, input, &listed, deadline, &mut output);
    let ended = session.execs.parting().until(following).await;
    leash.let_go();
    let (end, unkillable) = ended.told(&record, &listed);
    Ok(finish(record, asked, output, end, unkillable))
}

fn keep(note: &ExecNote, input: Option<&Journal>) -> io::Result<Keep> {
    Ok(Keep {
        note: Note::Exec(note.clone()).bytes()?,
        files: input.map_or_else(Vec::new, |input| input.files().into()),
    })
}

/// A captured command of an earlier daemon.
pub(crate) struct Adopted {
    /// Its beginning was told by the earlier daemon.
    pub(crate) record: ExecRecord,
    pub(crate) note: ExecNote,
    pub(crate) process: Process,
    pub(crate) files: Vec<OwnedFd>,
}

const MISSED: &str =
    "the daemon was restarted while the command ran; output it had read before is missing";

/// Follows it to its end, in a task, and keeps the result. `unkillable` is called when its box has to
/// go. An error leaves it as it is.
pub(crate) fn adopt(
    adopted: Adopted,
    capture_bytes: usize,
    unkillable: impl FnOnce() + Send + 'static,
) -> Result<(), (io::Error, Process)> {
    let Adopted {
        record,
        note,
        mut process,
        files,
    } = adopted;
    let input = match given_again(files) {
        Ok(input) => input,
        Err(error) => return Err((error, process)),
    };
    let session = Arc::clone(record.session());
    let left = note.deadline.since(BootTime::now());
    let asked = Wanted {
        timeout: note.deadline.since(note.began),
        notices: note
            .notices
            .iter()
            .cloned()
            .chain([MISSED.to_owned()])
            .collect(),
    };
    let running = Running::new(session.id.clone(), note, Arc::clone(&process.control), true);
    let listed = session.execs.list(running);
    let parting = session.execs.parting();
    tokio::spawn(async move {
        let mut output = Output::new(capture_bytes);
        let deadline = std::pin::pin!(sleep(left));
        let following = follow(&mut process, input, &listed, deadline, &mut output);
        let ended = parting.until(following).await;
        let (end, alive) = ended.told(&record, &listed);
        let done = finish(record, asked, output, end, alive);
        if done.unkillable {
            unkillable();
        }
        listed.remember_result(done.result);
    });
    Ok(())
}

fn given_again(files: Vec<OwnedFd>) -> io::Result<Option<Journal>> {
    let mut files = files.into_iter();
    match (files.next(), files.next(), files.next()) {
        (None, ..) => Ok(None),
        (Some(writer), Some(reader), None) => Journal::from_files(writer, reader).map(Some),
        _ => Err(wrong("a command has another number of files")),
    }
}

impl Ended {
    /// What is said of it, and whether the box has to go.
    fn told(self, record: &ExecRecord, listed: &Listed) -> (ExecEnd, bool) {
        let exit = match self {
            Self::Exited(exit) => exit,
            Self::TimedOut(killed) => return (timed_out(), matches!(killed, Killed::Alive)),
        };
        // A plain end has nothing to do with what happened to the session meanwhile.
        let asked = match exit.status {
            ExitStatus::BoxGone => record.session().asked(),
            ExitStatus::Signal(_) if listed.running().signalled.load(Ordering::Acquire) => {
                Asked::Caller
            }
            ExitStatus::Code(_) | ExitStatus::Signal(_) => Asked::Nobody,
        };
        let end = ExecEnd {
            status: ExecStatus::Completed,
            exit_code: exit.code(),
            reason: reason(&exit, asked),
        };
        (end, false)
    }
}

/// What of the request shows in its answer.
struct Wanted {
    timeout: Duration,
    notices: Vec<String>,
}

impl Wanted {
    fn of(exec: &AdmittedExec) -> Self {
        Self {
            timeout: exec.timeout(),
            notices: exec.notices().to_vec(),
        }
    }
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
    input: Option<Journal>,
    listed: &Listed,
    mut deadline: Pin<&mut Sleep>,
    output: &mut Output,
) -> Ended {
    let running = listed.running();
    let control = &running.control;
    let mut taps = Taps::of(process);
    let writer = process.stdin.take();
    let mut fed = input.is_none();
    // A command that does not want its input is its own business.
    let mut feeding = std::pin::pin!(async {
        if let Some(journal) = input {
            let (_open, feeder) = input::begin(writer, journal);
            feeder.run().await;
        }
    });
    let mut wait = control.wait();
    let exited = loop {
        tokio::select! {
            exit = &mut wait => break Some(exit),
            which = taps.fill(), if taps.is_open() => {
                let bytes = taps.bytes(which);
                running.heard(which, bytes.len());
                output.push(which, bytes);
            }
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
                running.heard(which, bytes.len());
                output.push(which, bytes);
            }
            () = last_words.over() => break,
        }
    }
    taps.discard_rest();
    ended
}

fn finish(
    record: ExecRecord,
    asked: Wanted,
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
            seconds(asked.timeout)
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
        notices: asked.notices,
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
