//! Starts a live command.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use boxwood_backend::{Keep, Process, Stdio};
use boxwood_policy::AdmittedExec;
use tokio::sync::Notify;

use super::follow::{Known, Task};
use super::{Door, Live, LiveExec, Resume};
use crate::SessionError;
use crate::drain::{Intake, Intakes, outputs};
use crate::exec::{not_kept, note, request};
use crate::execs::Running;
use crate::files::Files;
use crate::input;
use crate::notes::{ExecNote, KindNote, Note};
use crate::replay::ReplayLimits;
use crate::session::ExecRecord;
use crate::spawning::spawn;

/// How a command is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) argv: Vec<String>,
    pub(crate) stdio: Stdio,
    pub(crate) resume: Resume,
    pub(crate) limits: ReplayLimits,
}

/// Starts it, and follows it in a task of its own. `unkillable` is called when its box has to go.
pub(crate) async fn start(
    record: ExecRecord,
    exec: &AdmittedExec,
    wish: Wish,
    unkillable: impl FnOnce() + Send + 'static,
) -> Result<LiveExec, SessionError> {
    let session = Arc::clone(record.session());
    let kind = KindNote::Live {
        stdio: wish.stdio.into(),
        resumable: wish.resume == Resume::Allowed,
    };
    let note = note(record.exec_id, exec, &shown_command(exec, &wish.argv), kind);
    let files = Files::new(&session.budget).map_err(|error| not_kept(&record, error))?;
    let keep = Keep {
        note: Note::Exec(note.clone())
            .bytes()
            .map_err(|error| not_kept(&record, error))?,
        files: files.all(),
    };
    let wanted = request(exec, &session.spec, wish.argv, wish.stdio, keep);
    let process = spawn(&session, wanted)
        .await
        .map_err(|error| session.spawn_failed(error))?;
    let parts = Parts {
        record,
        note,
        stdio: wish.stdio,
        resume: wish.resume,
        limits: wish.limits,
        process,
        files,
    };
    let (mut task, feeder) = parts.assemble(false, Known::default());
    let (reader, exec) = task.live.reader(0, 0);
    task.reader = Some(reader);
    task.live
        .attached
        .store(true, std::sync::atomic::Ordering::Release);
    set_off(task, feeder, unkillable);
    Ok(exec)
}

/// As a shell would be given it.
fn shown_command(exec: &AdmittedExec, argv: &[String]) -> String {
    if argv.last().is_some_and(|last| last == exec.cmd()) {
        exec.cmd().to_owned()
    } else {
        argv.join(" ")
    }
}

/// Everything that a command is made of, before somebody follows it.
pub(super) struct Parts {
    pub(super) record: ExecRecord,
    pub(super) note: ExecNote,
    pub(super) stdio: Stdio,
    pub(super) resume: Resume,
    pub(super) limits: ReplayLimits,
    pub(super) process: Process,
    pub(super) files: Files,
}

impl Parts {
    pub(super) fn assemble(mut self, adopted: bool, known: Known) -> (Task, input::Feeder) {
        let (stdout, stderr) = outputs(&mut self.process);
        let has_input = self.process.stdin.is_some() || self.files.stdin.end() > 0;
        let (stdin, feeder) = input::begin(self.process.stdin, self.files.stdin);
        let session = Arc::clone(self.record.session());
        let live = Arc::new(Live {
            note: self.note,
            adopted,
            control: self.process.control,
            signalled: Arc::new(AtomicBool::new(false)),
            resume: self.resume,
            stdio: self.stdio,
            stdin: has_input.then(|| Arc::new(stdin)),
            stdout: Arc::new(self.files.stdout),
            stderr: Arc::new(self.files.stderr),
            facts: self.files.facts,
            limits: self.limits,
            attached: AtomicBool::new(false),
            door: Mutex::new(Door::Open(None)),
            knock: Notify::new(),
            end: OnceLock::new(),
            parting: session.execs.parting(),
        });
        let running = Running::of_live(session.id.clone(), &live);
        let task = Task {
            listed: session.execs.list(running),
            backend: session.backend.name().to_owned(),
            record: self.record,
            intakes: Intakes {
                stdout: Intake::new(Some(stdout), Arc::clone(&live.stdout), &session.pace),
                stderr: Intake::new(stderr, Arc::clone(&live.stderr), &session.pace),
            },
            reader: None,
            known,
            live,
        };
        (task, feeder)
    }
}

pub(super) fn set_off(
    task: Task,
    feeder: input::Feeder,
    unkillable: impl FnOnce() + Send + 'static,
) {
    let parting = task.record.session().execs.parting();
    let feeding = parting.clone();
    tokio::spawn(async move { feeding.until(feeder.run()).await });
    tokio::spawn(async move { parting.until(task.run(unkillable)).await });
}
