//! Starts a streamed exec, or adopts one that an earlier daemon started.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use boxwood_backend::{Keep, KeptProcess, Process, Stdio};
use boxwood_policy::AdmittedExec;
use tokio::sync::watch;

use super::follow::{Known, Task};
use super::{Resume, Streamed, StreamedExec};
use crate::SessionError;
use crate::exec::captured::{not_kept, note, request};
use crate::exec::table::Running;
use crate::program::{ExecNote, Fact, Files, KindNote, Note, Program, ReplayLimits, Since, spawn};
use crate::session::ExecRecord;

/// Starts it and follows it in a task. Calls `unkillable` if its box has to be removed.
pub(crate) async fn start(
    record: ExecRecord,
    exec: &AdmittedExec,
    argv: Vec<String>,
    how: Streaming,
    unkillable: impl FnOnce() + Send + 'static,
) -> Result<StreamedExec, SessionError> {
    let session = Arc::clone(record.session());
    let kind = KindNote::Live {
        stdio: how.stdio.into(),
        resumable: how.resume == Resume::Allowed,
    };
    let command = shown_command(exec, &argv);
    let note = note(record.exec_id, exec, &command, kind);
    let kept = Files::new(&session.budget).and_then(|files| {
        let keep = Keep {
            note: Note::Exec(note.clone()).bytes()?,
            files: files.all(),
        };
        Ok((files, keep))
    });
    let (files, keep) = kept.map_err(|error| not_kept(&record, error))?;
    let spawning = spawn(
        &session,
        request(exec, &session.spec, argv, how.stdio, keep),
    );
    let process = spawning
        .await
        .map_err(|error| session.spawn_failed(error))?;
    let task = assemble(record, note, how, process, files, None);
    let client = task.exec.attach(Since::Now, Since::Now)?;
    task.spawn(unkillable);
    Ok(client)
}

/// The shell command, or the argument vector if it is not run by a shell.
fn shown_command(exec: &AdmittedExec, argv: &[String]) -> String {
    if argv.last().is_some_and(|last| last == exec.cmd()) {
        exec.cmd().to_owned()
    } else {
        argv.join(" ")
    }
}

/// How an exec is streamed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streaming {
    pub(crate) stdio: Stdio,
    pub(crate) resume: Resume,
    pub(crate) limits: ReplayLimits,
}

/// Follows it in a task. The earlier daemon has reported its start. An error leaves the process unchanged.
pub(crate) fn adopt(
    record: ExecRecord,
    note: ExecNote,
    how: Streaming,
    program: KeptProcess,
    unkillable: impl FnOnce() + Send + 'static,
) -> Result<(), (io::Error, Process)> {
    let (files, facts) = match Files::kept(program.files, &record.session().budget) {
        Ok(files) => files,
        Err(error) => return Err((error, program.process)),
    };
    let known = Known {
        timed_out: facts.contains(&Fact::TimedOut),
        abandoned: facts.contains(&Fact::Abandoned),
        ended: Fact::end(&facts).map(|end| end.exit.clone()),
    };
    let task = assemble(record, note, how, program.process, files, Some(known));
    task.exec.program.restore_stop_request(&facts);
    task.spawn(unkillable);
    Ok(())
}

/// `known` is what an earlier daemon recorded of an exec that is adopted.
fn assemble(
    record: ExecRecord,
    note: ExecNote,
    how: Streaming,
    process: Process,
    files: Files,
    known: Option<Known>,
) -> Task {
    let session = Arc::clone(record.session());
    let (program, mut pipes, feeder) = Program::new(process, files, how.limits, &session.read_rate);
    pipes.limit_stdout(&program.stdout);
    pipes.limit_stderr(&program.stderr);
    let exec = Arc::new(Streamed {
        note,
        adopted: known.is_some(),
        program,
        resume: how.resume,
        resume_grace: how.limits.resume_grace,
        stdio: how.stdio,
        client: watch::Sender::new(None),
        attaching: Mutex::default(),
        exit: OnceLock::new(),
    });
    let running = Running::of_streamed(session.id.clone(), &exec);
    Task {
        listed: session.execs.list(running),
        record,
        exec,
        pipes,
        feeder,
        known: known.unwrap_or_default(),
    }
}
