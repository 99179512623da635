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
use crate::admission::{Budget, Held};
use crate::captured::Streams;
use crate::drain::{Intakes, LastWords};
use crate::execs::{Listed, Running};
use crate::input;
use crate::leash::{Killed, Leash, kill_tree};
use crate::notes::{BootTime, ExecNote, KindNote, Note, shown};
use crate::pace::Pace;
use crate::quota;
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
        capture_bytes: None,
    }
}

/// Something of ours that a command needs could not be made.
pub(crate) fn not_kept(record: &ExecRecord, source: io::Error) -> SessionError {
    let source = SpawnError::Step {
        step: "making what outlives the daemon".to_owned(),
        source,
    };
    record.session().spawn_failed(source)
}

/// What a command's output may take, and what it counts against.
pub(crate) struct Room {
    pub(crate) capture_bytes: usize,
    pub(crate) budget: Budget,
}

pub(crate) async fn run(
    record: ExecRecord,
    exec: &AdmittedExec,
    room: &Room,
) -> Result<Done, SessionError> {
    let stdio = if exec.stdin().is_some() {
        Stdio::Pipes
    } else {
        Stdio::Output
    };
    let session = Arc::clone(record.session());
    let mut deadline = std::pin::pin!(sleep(exec.timeout()));
    let note = ExecNote {
        capture_bytes: Some(room.capture_bytes),
        ..note(record.exec_id, exec, exec.cmd(), KindNote::Captured)
    };
    let kept = Streams::new(exec.stdin(), room.capture_bytes)
        .and_then(|streams| Ok((keep(&note, &streams)?, streams)));
    let (keep, mut streams) = kept.map_err(|error| not_kept(&record, error))?;
    let wanted = request(exec, &session.spec, shell(exec), stdio, keep);
    let asked = Wanted::of(exec);
    // The clock runs from here: a box too busy to start the command is also a timeout.
    let spawned = tokio::select! {
        spawned = spawn(&session, wanted) => spawned,
        () = &mut deadline => {
            return Ok(finish(record, asked, &streams, timed_out(), false));
        }
    };
    let mut process = match spawned {
        Ok(process) => process,
        Err(SpawnError::PidsLimit) => {
            streams.stderr.say(&format!("{}\n", SpawnError::PidsLimit));
            let end = ExecEnd {
                status: ExecStatus::Completed,
                exit_code: Some(CANNOT_RUN),
                reason: Some(Reason::PidsLimit),
            };
            return Ok(finish(record, asked, &streams, end, false));
        }
        Err(error) => return Err(session.spawn_failed(error)),
    };
    let running = Running::new(
        session.id.clone(),
        note,
        Arc::clone(&process.control),
        [streams.stdout.journal(), streams.stderr.journal()],
        false,
    );
    let listed = session.execs.list(running);
    let leash = Leash::new(Arc::clone(&process.control), session.execs.parting());
    let mut held = room.budget.hold();
    let following = follow(
        &mut process,
        &mut streams,
        &listed,
        deadline,
        &session.pace,
        &mut held,
    );
    let ended = session.execs.parting().until(following).await;
    leash.let_go();
    let (mut end, unkillable) = ended.told(&record, &listed);
    let mut asked = asked;
    if let Some(over) = quota::after(&session, &mut end).await {
        asked.notices.push(over.to_string());
    }
    let done = finish(record, asked, &streams, end, unkillable);
    if streams.lingers {
        streams.answered();
    }
    Ok(done)
}

fn keep(note: &ExecNote, streams: &Streams) -> io::Result<Keep> {
    Ok(Keep {
        note: Note::Exec(note.clone()).bytes()?,
        files: streams.files(),
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

/// Follows it to its end, in a task, and keeps the result. `unkillable` is called when its box has to
/// go. An error leaves it as it is.
pub(crate) fn adopt(
    adopted: Adopted,
    room: &Room,
    unkillable: impl FnOnce() + Send + 'static,
) -> Result<(), (io::Error, Process)> {
    let Adopted {
        record,
        note,
        mut process,
        files,
    } = adopted;
    let mut held = room.budget.hold();
    let limit = note.capture_bytes.unwrap_or(room.capture_bytes);
    let mut streams = match Streams::kept(files, limit) {
        Ok(streams) => streams,
        Err(error) => return Err((error, process)),
    };
    let session = Arc::clone(record.session());
    if streams.is_answered() {
        record.forget();
        Intakes::of(&mut process, &streams, &session.pace).discard_rest();
        return Ok(());
    }
    let left = note.deadline.since(BootTime::now());
    let asked = Wanted {
        timeout: note.deadline.since(note.began),
        notices: note.notices.clone(),
    };
    let running = Running::new(
        session.id.clone(),
        note,
        Arc::clone(&process.control),
        [streams.stdout.journal(), streams.stderr.journal()],
        true,
    );
    let listed = session.execs.list(running);
    let parting = session.execs.parting();
    tokio::spawn(async move {
        let deadline = std::pin::pin!(sleep(left));
        let pace = &record.session().pace;
        let following = follow(
            &mut process,
            &mut streams,
            &listed,
            deadline,
            pace,
            &mut held,
        );
        let ended = parting.until(following).await;
        let (end, alive) = ended.told(&record, &listed);
        let done = finish(record, asked, &streams, end, alive);
        if done.unkillable {
            unkillable();
        }
        listed.remember_result(done.result);
    });
    Ok(())
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
            _ if record.is_over_quota() => Asked::Quota,
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

enum Ended {
    Exited(Exit),
    TimedOut(Killed),
}

/// Feeds and reads the process until it has ended and said its last words.
async fn follow(
    process: &mut Process,
    streams: &mut Streams,
    listed: &Listed,
    mut deadline: Pin<&mut Sleep>,
    pace: &Pace,
    held: &mut Held,
) -> Ended {
    let control = &listed.running().control;
    let mut intakes = Intakes::of(process, streams, pace);
    let (writer, input) = (process.stdin.take(), streams.stdin.take());
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
            _ = intakes.fill(), if intakes.is_open() => held.grow_to(streams.trim()),
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
    while intakes.is_open() && !last_words.had_enough() {
        tokio::select! {
            biased;
            moved = intakes.fill() => {
                last_words.heard(moved);
                held.grow_to(streams.trim());
            }
            () = last_words.over() => break,
        }
    }
    streams.lingers = intakes.is_open();
    intakes.discard_rest();
    ended
}

fn finish(
    record: ExecRecord,
    asked: Wanted,
    streams: &Streams,
    end: ExecEnd,
    unkillable: bool,
) -> Done {
    let session = Arc::clone(record.session());
    let duration_ms = record.finish(&end);
    let (stdout, stdout_capture) = streams.stdout.finish();
    let (mut stderr, stderr_capture) = streams.stderr.finish();
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
