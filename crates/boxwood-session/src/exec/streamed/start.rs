//! Starts a streamed exec, or adopts one that an earlier daemon started.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};

use boxwood_api::ExecExit;
use boxwood_backend::{Keep, Process, Stdio};
use boxwood_policy::AdmittedExec;
use tokio::sync::watch;

use super::follow::{Known, Task};
use super::{Resume, Streamed, StreamedExec};
use crate::SessionError;
use crate::exec::captured::{not_kept, note, request};
use crate::exec::table::Running;
use crate::program::{
    ExecNote, Fact, Files, KindNote, Note, Program, ReplayLimits, Since, StdioNote, spawn,
};
use crate::session::ExecRecord;

#[derive(Clone, Debug)]
pub(crate) struct StreamRequest {
    pub(crate) argv: Vec<String>,
    pub(crate) stdio: Stdio,
    pub(crate) resume: Resume,
    pub(crate) limits: ReplayLimits,
}

/// Starts it and follows it in a task. Calls `unkillable` if its box has to be removed.
pub(crate) async fn start(
    record: ExecRecord,
    exec: &AdmittedExec,
    wanted: StreamRequest,
    unkillable: impl FnOnce() + Send + 'static,
) -> Result<StreamedExec, SessionError> {
    let session = Arc::clone(record.session());
    let kind = KindNote::Live {
        stdio: wanted.stdio.into(),
        resumable: wanted.resume == Resume::Allowed,
    };
    let command = shown_command(exec, &wanted.argv);
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
        request(exec, &session.spec, wanted.argv, wanted.stdio, keep),
    );
    let process = spawning
        .await
        .map_err(|error| session.spawn_failed(error))?;
    let parts = Parts {
        record,
        note,
        stdio: wanted.stdio,
        resume: wanted.resume,
        limits: wanted.limits,
        process,
        files,
    };
    let task = parts.assemble(false, Known::default());
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

pub(crate) struct Adopted {
    /// The earlier daemon has reported its start.
    pub(crate) record: ExecRecord,
    pub(crate) note: ExecNote,
    pub(crate) stdio: StdioNote,
    pub(crate) resume: Resume,
    pub(crate) limits: ReplayLimits,
    pub(crate) process: Process,
    pub(crate) files: Vec<OwnedFd>,
}

/// Follows it in a task. An error leaves the process unchanged.
pub(crate) fn adopt(
    adopted: Adopted,
    unkillable: impl FnOnce() + Send + 'static,
) -> Result<(), (io::Error, Process)> {
    let (files, facts) = match Files::kept(adopted.files, &adopted.record.session().budget) {
        Ok(files) => files,
        Err(error) => return Err((error, adopted.process)),
    };
    let parts = Parts {
        record: adopted.record,
        note: adopted.note,
        stdio: adopted.stdio.stdio(),
        resume: adopted.resume,
        limits: adopted.limits,
        process: adopted.process,
        files,
    };
    let known = Known {
        timed_out: facts.contains(&Fact::TimedOut),
        abandoned: facts.contains(&Fact::Abandoned),
        ended: facts.iter().find_map(|fact| match fact {
            Fact::Ended(end) => Some(ExecExit {
                exit_code: end.exit_code,
                status: end.status,
                reason: end.reason.clone(),
                duration_ms: end.duration_ms,
                notices: Vec::new(),
            }),
            Fact::Asked | Fact::TimedOut | Fact::Abandoned => None,
        }),
    };
    let task = parts.assemble(true, known);
    task.exec.program.restore_stop_request(&facts);
    task.spawn(unkillable);
    Ok(())
}

struct Parts {
    record: ExecRecord,
    note: ExecNote,
    stdio: Stdio,
    resume: Resume,
    limits: ReplayLimits,
    process: Process,
    files: Files,
}

impl Parts {
    fn assemble(self, adopted: bool, known: Known) -> Task {
        let session = Arc::clone(self.record.session());
        let (program, mut pipes, feeder) =
            Program::new(self.process, self.files, self.limits, &session.read_rate);
        pipes.limit_stdout(&program.stdout);
        pipes.limit_stderr(&program.stderr);
        let exec = Arc::new(Streamed {
            note: self.note,
            adopted,
            program,
            resume: self.resume,
            resume_grace: self.limits.resume_grace,
            stdio: self.stdio,
            client: watch::Sender::new(None),
            attaching: Mutex::default(),
            exit: OnceLock::new(),
        });
        Task {
            listed: session
                .execs
                .list(Running::of_streamed(session.id.clone(), &exec)),
            record: self.record,
            exec,
            pipes,
            feeder,
            known,
        }
    }
}
