//! Captured execs: the response has the result.
//!
//! Runs in the caller's future, without a task; when that future is dropped, the command and its children
//! are killed. A captured exec of an earlier daemon is followed in a task, and its result is kept.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{ExecExit, ExecResult, ExecStatus, Reason, SessionId, StreamCapture};
use boxwood_backend::{ExitStatus, Keep, KeptProcess, Process, SpawnError, SpawnRequest, Stdio};
use boxwood_policy::{AdmittedExec, AdmittedSpec};
use jiff::Timestamp;
use tokio::time::{Sleep, sleep};

use crate::SessionError;
use crate::admission::{Budget, Held};
use crate::exec::captured_streams::CapturedStreams;
use crate::exec::table::Running;
use crate::program::{
    BootTime, EndCause, Ended, ExecNote, KillOnDrop, KindNote, Note, Pipes, Stop, exec_exit,
    follow, reason, shown, spawn,
};
use crate::quota;
use crate::session::{ExecRecord, Session};

/// Exit code of a shell that cannot run a command.
const CANNOT_RUN: i32 = 126;

/// A result, and whether the box has to be removed because the command could not be killed.
pub(crate) struct Done {
    pub(crate) result: ExecResult,
    pub(crate) unkillable: bool,
}

pub(crate) fn shell(exec: &AdmittedExec) -> Vec<String> {
    vec!["/bin/sh".to_owned(), "-c".to_owned(), exec.cmd().to_owned()]
}

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

/// What the next daemon has to know of a command that starts now.
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

pub(crate) fn not_kept(record: &ExecRecord, source: io::Error) -> SessionError {
    let source = SpawnError::Step {
        step: "creating its journals".to_owned(),
        source,
    };
    record.session().spawn_failed(source)
}

/// Limits of captured output.
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
    let kept = CapturedStreams::new(exec.stdin(), room.capture_bytes)
        .and_then(|streams| Ok((keep(&note, &streams)?, streams)));
    let (keep, mut streams) = kept.map_err(|error| not_kept(&record, error))?;
    let wanted = request(exec, &session.spec, shell(exec), stdio, keep);
    // The timeout includes the start: a box may be too busy to start the command.
    let spawned = tokio::select! {
        spawned = spawn(&session, wanted) => spawned,
        () = &mut deadline => {
            return Ok(finish(record, &note, &streams, timed_out(), false));
        }
    };
    let process = match spawned {
        Ok(process) => process,
        Err(SpawnError::PidsLimit) => {
            streams
                .stderr
                .append(&format!("{}\n", SpawnError::PidsLimit));
            let exit = exec_exit(Some(CANNOT_RUN), Some(Reason::PidsLimit));
            return Ok(finish(record, &note, &streams, exit, false));
        }
        Err(error) => return Err(session.spawn_failed(error)),
    };
    let running = running(&session, note.clone(), &process, &streams, false);
    let listed = session.execs.list(running);
    let detach = session.execs.detach_signal();
    let kill_on_drop = KillOnDrop::new(Arc::clone(&process.control), detach.clone());
    let mut held = room.budget.hold();
    let following = follow_captured(process, &mut streams, &session, deadline, &mut held);
    let ended = detach.until(following).await;
    kill_on_drop.disarm();
    let is_signalled = listed.running().is_signalled();
    let mut exit = end_of(&ended, &record, is_signalled);
    quota::after(&session, &mut exit).await;
    let done = finish(record, &note, &streams, exit, ended.is_unkillable());
    if streams.lingers {
        streams.answered();
    }
    Ok(done)
}

fn running(
    session: &Session,
    note: ExecNote,
    process: &Process,
    streams: &CapturedStreams,
    adopted: bool,
) -> Running {
    let outputs = [streams.stdout.journal(), streams.stderr.journal()];
    let control = Arc::clone(&process.control);
    Running::new(session.id.clone(), note, control, outputs, adopted)
}

async fn follow_captured(
    mut process: Process,
    streams: &mut CapturedStreams,
    session: &Session,
    deadline: Pin<&mut Sleep>,
    held: &mut Held,
) -> Ended {
    let feeder = streams.feeder(process.stdin.take());
    let journals = [streams.stdout.journal(), streams.stderr.journal()];
    let mut pipes = Pipes::take(&mut process, journals, &session.read_rate);
    let stop = async {
        deadline.await;
        Stop::Timeout
    };
    let trim = |_, _| held.grow_to(streams.trim());
    let ended = follow(&*process.control, &mut pipes, feeder, stop, trim).await;
    streams.lingers = pipes.is_open();
    pipes.discard_rest();
    ended
}

fn keep(note: &ExecNote, streams: &CapturedStreams) -> io::Result<Keep> {
    Ok(Keep {
        note: Note::Exec(note.clone()).bytes()?,
        files: streams.files(),
    })
}

/// Follows a captured exec of an earlier daemon in a task and keeps the result. Calls `unkillable` if its
/// box has to be removed. An error leaves the process unchanged.
pub(crate) fn adopt(
    record: ExecRecord,
    note: ExecNote,
    program: KeptProcess,
    room: &Room,
    unkillable: impl FnOnce() + Send + 'static,
) -> Result<(), (io::Error, Process)> {
    let mut process = program.process;
    let limit = note.capture_bytes.unwrap_or(room.capture_bytes);
    let mut streams = match CapturedStreams::kept(program.files, limit) {
        Ok(streams) => streams,
        Err(error) => return Err((error, process)),
    };
    let session = Arc::clone(record.session());
    if streams.is_answered() {
        record.skip_event();
        let journals = [streams.stdout.journal(), streams.stderr.journal()];
        Pipes::take(&mut process, journals, &session.read_rate).discard_rest();
        return Ok(());
    }
    let left = note.deadline.since(BootTime::now());
    let listed = session
        .execs
        .list(running(&session, note, &process, &streams, true));
    let mut held = room.budget.hold();
    tokio::spawn(async move {
        let deadline = std::pin::pin!(sleep(left));
        let following = follow_captured(process, &mut streams, &session, deadline, &mut held);
        let ended = session.execs.detach_signal().until(following).await;
        let is_signalled = listed.running().is_signalled();
        let exit = end_of(&ended, &record, is_signalled);
        let note = &listed.running().note;
        let done = finish(record, note, &streams, exit, ended.is_unkillable());
        if done.unkillable {
            unkillable();
        }
        listed.remember_result(done.result);
    });
    Ok(())
}

/// How an exec ended. `is_signalled` means that a caller has sent it a signal.
pub(crate) fn end_of(ended: &Ended, record: &ExecRecord, is_signalled: bool) -> ExecExit {
    let exit = match ended {
        Ended::Exited(exit) => exit,
        Ended::Stopped(Stop::Timeout, _) => return timed_out(),
        Ended::Stopped(Stop::ClientGone, _) => return cancelled(),
    };
    let cause = match exit.status {
        ExitStatus::BoxGone => record.session().end_cause(),
        _ if record.is_over_quota() => EndCause::Quota,
        ExitStatus::Signal(_) if is_signalled => EndCause::Caller,
        ExitStatus::Code(_) | ExitStatus::Signal(_) => EndCause::Unknown,
    };
    exec_exit(exit.code(), reason(exit, cause))
}

pub(crate) fn cancelled() -> ExecExit {
    exec_exit(None, Some(Reason::Cancelled))
}

pub(crate) fn timed_out() -> ExecExit {
    exec_exit(None, Some(Reason::Timeout))
}

fn finish(
    record: ExecRecord,
    note: &ExecNote,
    streams: &CapturedStreams,
    mut exit: ExecExit,
    unkillable: bool,
) -> Done {
    let session = Arc::clone(record.session());
    record.finish(&mut exit);
    let outputs = [streams.stdout.finish(), streams.stderr.finish()];
    let timed_out = exit.status == ExecStatus::TimedOut;
    let backend = session.backend.name().to_owned();
    let mut result = result(&session.id, backend, note, exit, outputs);
    if timed_out && result.stderr.is_empty() {
        // Not counted in the capture: the command has written nothing.
        let timeout = seconds(note.deadline.since(note.began));
        result.stderr = format!("Command timed out after {timeout} seconds.");
    }
    Done { result, unkillable }
}

pub(crate) fn result(
    session_id: &SessionId,
    backend_name: String,
    note: &ExecNote,
    exit: ExecExit,
    [(stdout, stdout_capture), (stderr, stderr_capture)]: [(String, StreamCapture); 2],
) -> ExecResult {
    ExecResult {
        session_id: session_id.clone(),
        backend_name,
        status: exit.status,
        exit_code: exit.exit_code,
        stdout,
        stderr,
        duration_ms: exit.duration_ms,
        reason: exit.reason,
        stdout_capture,
        stderr_capture,
        notices: [note.notices.clone(), exit.notices].concat(),
    }
}

fn seconds(timeout: Duration) -> String {
    if timeout.subsec_nanos() == 0 {
        timeout.as_secs().to_string()
    } else {
        timeout.as_secs_f64().to_string()
    }
}
