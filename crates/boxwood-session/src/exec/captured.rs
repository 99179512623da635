//! Captured execs: the response has the result.
//!
//! Runs in the caller's future, without a task; when that future is dropped, the command and its children
//! are killed. A captured exec of an earlier daemon is followed in a task, and its result is kept.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use boxwood_api::{ExecExit, ExecResult, ExecStatus, Reason, SessionId, StreamCapture};
use boxwood_backend::{ExitStatus, Keep, KeptProcess, Process, SpawnError, SpawnRequest, Stdio};
use boxwood_policy::{AdmittedExec, AdmittedSpec};
use jiff::Timestamp;
use tokio::time::{Sleep, sleep};

use crate::Result;
use crate::admission::Held;
use crate::exec::captured_streams::CapturedStreams;
use crate::exec::table::{Outcome, Running};
use crate::program::{
    BootTime, EndCause, Ended, ExecNote, KillOnDrop, KindNote, Note, Pipes, Stop, exec_exit,
    follow, reason, shown, spawn,
};
use crate::quota;
use crate::session::registry::Registry;
use crate::session::{ExecRecord, Session};

/// Exit code of a shell that cannot run a command.
const CANNOT_RUN: i32 = 126;

pub(crate) fn shell(exec: &AdmittedExec) -> Vec<String> {
    vec!["/bin/sh".to_owned(), "-c".to_owned(), exec.cmd().to_owned()]
}

pub(crate) fn request(
    exec: &AdmittedExec,
    spec: &AdmittedSpec,
    argv: Vec<String>,
    stdio: Stdio,
    keep: Keep,
) -> SpawnRequest {
    SpawnRequest {
        argv,
        env: exec.env().clone(),
        cwd: exec.workdir(spec).to_owned(),
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

pub(crate) async fn run(
    record: ExecRecord,
    exec: &AdmittedExec,
    registry: &Arc<Registry>,
) -> Result<ExecResult> {
    let stdio = if exec.stdin().is_some() {
        Stdio::Pipes
    } else {
        Stdio::Output
    };
    let session = Arc::clone(record.session());
    let mut deadline = std::pin::pin!(sleep(exec.timeout()));
    let limit = registry.settings.capture_bytes;
    let note = ExecNote {
        capture_bytes: Some(limit),
        ..note(record.exec_id, exec, exec.cmd(), KindNote::Captured)
    };
    let prepared = CapturedStreams::new(exec.stdin(), limit)
        .and_then(|streams| Ok((Note::Exec(note.clone()).keep(streams.files())?, streams)));
    let (keep, mut streams) = prepared.map_err(|error| session.journals_failed(error))?;
    let request = request(exec, &session.spec, shell(exec), stdio, keep);
    // The timeout includes the start: a box may be too busy to start the command.
    let spawned = tokio::select! {
        spawned = spawn(&session, request) => spawned,
        () = &mut deadline => {
            return Ok(finish(record, &note, &streams, &mut timed_out()));
        }
    };
    let process = match spawned {
        Ok(process) => process,
        Err(SpawnError::PidsLimit) => {
            streams
                .stderr
                .append(&format!("{}\n", SpawnError::PidsLimit));
            let mut exit = exec_exit(Some(CANNOT_RUN), Some(Reason::PidsLimit));
            return Ok(finish(record, &note, &streams, &mut exit));
        }
        Err(error) => return Err(session.spawn_failed(error)),
    };
    let running = running(&session, note.clone(), &process, &streams, false);
    let listed = session.execs.list(running);
    let detach = session.execs.detach_signal();
    let kill_on_drop = KillOnDrop::new(Arc::clone(&process.control), detach.clone());
    let mut held = session.budget.hold();
    let following = follow_captured(process, &mut streams, &session, deadline, &mut held);
    let ended = detach.until(following).await;
    kill_on_drop.disarm();
    let is_signalled = listed.running().is_signalled();
    let mut exit = end_of(&ended, &record, is_signalled);
    quota::check_after_exec(&session, &mut exit).await;
    let result = finish(record, &note, &streams, &mut exit);
    if streams.lingers {
        streams.answered();
    }
    if ended.is_unkillable() {
        registry.close_unkillable(&session);
    }
    Ok(result)
}

fn running(
    session: &Session,
    note: ExecNote,
    process: &Process,
    streams: &CapturedStreams,
    adopted: bool,
) -> Running {
    let control = Arc::clone(&process.control);
    Running::new(
        session.id.clone(),
        note,
        control,
        streams.journals(),
        adopted,
    )
}

async fn follow_captured(
    mut process: Process,
    streams: &mut CapturedStreams,
    session: &Session,
    deadline: Pin<&mut Sleep>,
    held: &mut Held,
) -> Ended {
    let feeder = streams.feeder(process.stdin.take());
    let mut pipes = Pipes::take(&mut process, streams.journals(), &session.read_rate);
    let stop = async {
        deadline.await;
        Stop::Timeout
    };
    let trim = |_, _| held.set(streams.trim());
    let ended = follow(&*process.control, &mut pipes, feeder, stop, trim).await;
    streams.lingers = pipes.is_open();
    pipes.discard_rest();
    ended
}

/// Follows a captured exec of an earlier daemon in a task and keeps the result. An error leaves the
/// process unchanged.
pub(crate) fn adopt(
    record: ExecRecord,
    note: ExecNote,
    program: KeptProcess,
    registry: &Arc<Registry>,
) -> Result<(), (io::Error, Process)> {
    let mut process = program.process;
    let limit = note
        .capture_bytes
        .unwrap_or(registry.settings.capture_bytes);
    let mut streams = match CapturedStreams::from_files(program.files, limit) {
        Ok(streams) => streams,
        Err(error) => return Err((error, process)),
    };
    let session = Arc::clone(record.session());
    if streams.is_answered() {
        record.skip_event();
        Pipes::take(&mut process, streams.journals(), &session.read_rate).discard_rest();
        return Ok(());
    }
    let remaining = note.deadline.since(BootTime::now());
    let listed = session
        .execs
        .list(running(&session, note, &process, &streams, true));
    let mut held = session.budget.hold();
    let registry = Arc::clone(registry);
    tokio::spawn(async move {
        let deadline = std::pin::pin!(sleep(remaining));
        let following = follow_captured(process, &mut streams, &session, deadline, &mut held);
        let ended = session.execs.detach_signal().until(following).await;
        let is_signalled = listed.running().is_signalled();
        let mut exit = end_of(&ended, &record, is_signalled);
        let result = finish(record, &listed.running().note, &streams, &mut exit);
        exit.notices.clone_from(&result.notices);
        if ended.is_unkillable() {
            registry.close_unkillable(&session);
        }
        listed.remember(exit, Outcome::Captured(Box::new(result)));
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
    exit: &mut ExecExit,
) -> ExecResult {
    let session = Arc::clone(record.session());
    record.finish(exit);
    let outputs = [streams.stdout.finish(), streams.stderr.finish()];
    let timed_out = exit.status == ExecStatus::TimedOut;
    let mut result = result(
        &session.id,
        session.backend.name(),
        note,
        exit.clone(),
        outputs,
    );
    if timed_out && result.stderr.is_empty() {
        // Not counted in the capture: the command has written nothing.
        let timeout = note.deadline.since(note.began).as_secs_f64();
        result.stderr = format!("Command timed out after {timeout} seconds.");
    }
    result
}

pub(crate) fn result(
    session_id: &SessionId,
    backend_name: &str,
    note: &ExecNote,
    exit: ExecExit,
    [(stdout, stdout_capture), (stderr, stderr_capture)]: [(String, StreamCapture); 2],
) -> ExecResult {
    ExecResult {
        session_id: session_id.clone(),
        backend_name: backend_name.to_owned(),
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
