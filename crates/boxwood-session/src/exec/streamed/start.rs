//! Starts a streamed exec, or adopts one that an earlier daemon started.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use boxwood_backend::{KeptProcess, Process, Stdio};
use boxwood_policy::AdmittedExec;
use tokio::sync::watch;

use super::follow::Task;
use super::{Resume, Streamed, StreamedExec};
use crate::Result;
use crate::exec::captured::{note, request, shell};
use crate::exec::table::Running;
use crate::program::{ExecNote, Fact, Files, KindNote, Note, Program, Since, Streaming, spawn};
use crate::session::ExecRecord;
use crate::session::registry::Registry;

/// Starts it and follows it in a task.
pub(crate) async fn start(
    record: ExecRecord,
    exec: &AdmittedExec,
    argv: Vec<String>,
    (stdio, resume): (Stdio, Resume),
    registry: &Arc<Registry>,
) -> Result<StreamedExec> {
    let session = Arc::clone(record.session());
    let streaming = Streaming {
        stdio: stdio.into(),
        resumable: resume == Resume::Allowed,
    };
    let kind = KindNote::Live(streaming);
    let command = shown_command(exec, &argv);
    let note = note(record.exec_id, exec, &command, kind);
    let prepared = Files::new(&session.budget)
        .and_then(|files| Ok((Note::Exec(note.clone()).keep(files.all())?, files)));
    let (keep, files) = prepared.map_err(|error| session.journals_failed(error))?;
    let request = request(exec, &session.spec, argv, stdio, keep);
    let process = spawn(&session, request)
        .await
        .map_err(|error| session.spawn_failed(error))?;
    let task = assemble(record, note, streaming, process, files, None, registry);
    let client = task.exec.attach(Since::Now, Since::Now)?;
    task.spawn();
    Ok(client)
}

/// The shell command, or the argument vector if it is not run by a shell.
fn shown_command(exec: &AdmittedExec, argv: &[String]) -> String {
    if shell(exec) == argv {
        exec.cmd().to_owned()
    } else {
        argv.join(" ")
    }
}

/// Follows it in a task. The earlier daemon has reported its start. An error leaves the process unchanged.
pub(crate) fn adopt(
    record: ExecRecord,
    note: ExecNote,
    streaming: Streaming,
    program: KeptProcess,
    registry: &Arc<Registry>,
) -> Result<(), (io::Error, Process)> {
    let (files, facts) = match Files::from_files(program.files, &record.session().budget) {
        Ok(files) => files,
        Err(error) => return Err((error, program.process)),
    };
    let process = program.process;
    let task = assemble(
        record,
        note,
        streaming,
        process,
        files,
        Some(facts),
        registry,
    );
    task.exec.program.restore_stop_request(&task.facts);
    task.spawn();
    Ok(())
}

/// `facts` are what an earlier daemon recorded of an exec that is adopted.
fn assemble(
    record: ExecRecord,
    note: ExecNote,
    streaming: Streaming,
    process: Process,
    files: Files,
    facts: Option<Vec<Fact>>,
    registry: &Arc<Registry>,
) -> Task {
    let session = Arc::clone(record.session());
    let limits = registry.settings.replay;
    let (program, mut pipes, feeder) =
        Program::new(process, files, limits.bytes, &session.read_rate);
    pipes.limit_stdout(&program.stdout);
    pipes.limit_stderr(&program.stderr);
    let exec = Arc::new(Streamed {
        session: session.id.clone(),
        backend: session.backend.name(),
        note,
        adopted: facts.is_some(),
        program,
        streaming,
        resume_grace: limits.resume_grace,
        client: watch::Sender::new(None),
        attaching: Mutex::default(),
        exit: OnceLock::new(),
    });
    Task {
        registry: Arc::clone(registry),
        listed: session.execs.list(Running::of_streamed(&exec)),
        record,
        exec,
        pipes,
        feeder,
        facts: facts.unwrap_or_default(),
    }
}
