//! The door to everything in this crate.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use boxwood_api::{
    EventKind, ExecResult, ProcessId, ProcessInfo, ProcessSpec, SessionDetail, SessionId,
    SessionInfo, Status,
};
use boxwood_backend::{FileAnswer, FileCall, Stdio};
use boxwood_ledger::Ledger;
use boxwood_policy::{Admission, AdmittedSpec};

use crate::admission::{Budget, Load, Turn};
use crate::adoption::Recovery;
use crate::backends::Backends;
use crate::events::Watching;
use crate::exec;
use crate::freeze;
use crate::live::{self, LiveExec, Resume};
use crate::managed::{Attachable, ProcessLogs, Replace};
use crate::processes;
use crate::quota::{self, Writer};
use crate::reach::Reach;
use crate::reaper;
use crate::registry::Registry;
use crate::session::{Ending, ExecRecord, Handle, Session};
use crate::warm::{self, WarmWish};
use crate::{SessionError, Settings, ShutdownBoxes};

const UNKILLABLE: &str = "a command in it could not be killed";

/// Every session of one daemon. Clones are the same sessions.
#[derive(Clone)]
pub struct Sessions {
    pub(crate) registry: Arc<Registry>,
    /// The one that is meant by a session's name, where only a certain one will do.
    pub(crate) incarnation: Option<u64>,
    reach: Reach,
}

/// Sessions and their managed processes, counted at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    pub sessions: usize,
    pub starting: usize,
    pub closing: usize,
    pub running_processes: usize,
    pub ended_processes: usize,
    /// Sessions whose boxes stand still.
    pub frozen: usize,
    /// Boxes that wait for a session.
    pub warm: usize,
}

impl Sessions {
    /// Of a daemon whose boxes end with it. Needs a Tokio runtime: the reaper starts here.
    pub fn new(backends: Backends, settings: Settings) -> Self {
        Self::open(Registry::new(backends, settings, Ledger::in_memory()).into())
    }

    /// Of a daemon that goes on where an earlier one on the same ledger left off: its sessions are
    /// taken over, and whatever else it left is removed.
    pub async fn recover(
        backends: Backends,
        settings: Settings,
        ledger: Ledger,
    ) -> (Self, Recovery) {
        let registry = Arc::new(Registry::new(backends, settings, ledger));
        let recovery = registry.recover().await;
        (Self::open(registry), recovery)
    }

    fn open(registry: Arc<Registry>) -> Self {
        let ttl = registry.settings.session_ttl;
        tokio::spawn(reaper::run(Arc::downgrade(&registry), ttl));
        tokio::spawn(freeze::run(Arc::downgrade(&registry)));
        Self {
            registry,
            incarnation: None,
            reach: Reach::default(),
        }
    }

    /// The same sessions for a caller to whom a session's name means one incarnation of it, and no
    /// other that came after. None is made for such a caller, and one that is gone is an error that
    /// says how it ended.
    #[must_use]
    pub fn expecting(&self, incarnation: Option<u64>) -> Self {
        Self {
            registry: Arc::clone(&self.registry),
            incarnation,
            reach: self.reach,
        }
    }

    /// The same sessions for a caller of another kind.
    #[must_use]
    pub fn reaching(&self, reach: Reach) -> Self {
        Self {
            reach,
            ..self.clone()
        }
    }

    pub(crate) fn handle<'a>(&self, id: &'a SessionId) -> Handle<'a> {
        Handle {
            id,
            incarnation: self.incarnation,
            reach: self.reach,
        }
    }

    /// From now on boxes of these kinds are made ahead, as many as requests seem to need.
    pub fn keep_warm(&self, wishes: Vec<WarmWish>) {
        let some = !wishes.is_empty();
        self.registry.warm.want(wishes);
        if some && self.registry.warm.needs_keeper() {
            tokio::spawn(warm::keep(Arc::downgrade(&self.registry)));
        }
    }

    /// Lets go of the boxes that were made ahead on this backend. To be called around a change of
    /// its images.
    pub async fn forget_warm(&self, backend: &str) {
        self.registry.warm.forget(backend).await;
    }

    pub fn backends(&self) -> &Backends {
        &self.registry.backends
    }

    pub async fn get_or_create(&self, spec: AdmittedSpec) -> Result<SessionInfo, SessionError> {
        let lease = self
            .registry
            .get_or_create(&Arc::new(spec), self.incarnation, self.reach)
            .await?;
        Ok(lease.session.info())
    }

    /// Runs one command with `/bin/sh -c` and waits for it, making the session when it is missing.
    /// Dropping the future kills the command's tree.
    pub async fn exec(&self, admission: Admission) -> Result<ExecResult, SessionError> {
        let Admission { spec, exec } = admission;
        if exec.cmd().trim().is_empty() {
            return Err(empty_command());
        }
        let spec = Arc::new(spec);
        let mut retried = false;
        loop {
            let (record, _turn) = self.begin_exec(&spec).await?;
            let session = Arc::clone(record.session());
            match exec::run(record, &exec, &self.registry.room()).await {
                Ok(done) => {
                    if done.unkillable {
                        self.close_unkillable(&session);
                    }
                    return Ok(done.result);
                }
                // The box died before the command began, so nothing was done twice.
                Err(SessionError::Gone { .. }) if !retried => {
                    retried = true;
                    self.close_dead(&session);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Like [`Sessions::exec`], in a session that is there already. None is made.
    pub async fn exec_existing(&self, admission: Admission) -> Result<ExecResult, SessionError> {
        let Admission { spec, exec } = admission;
        if exec.cmd().trim().is_empty() {
            return Err(empty_command());
        }
        let lease = self.registry.existing(self.handle(spec.session())).await?;
        let session = Arc::clone(&lease.session);
        let _turn = self.registry.gate.turn(session.incarnation).await?;
        quota::before(&session).await?;
        let exec_id = self.registry.exec_ids.fetch_add(1, Ordering::Relaxed);
        let record = ExecRecord::begin(exec_id, lease);
        let done = exec::run(record, &exec, &self.registry.room()).await?;
        if done.unkillable {
            self.close_unkillable(&session);
        }
        Ok(done.result)
    }

    /// Like [`Sessions::exec`], with input and output while it runs.
    pub async fn stream(
        &self,
        admission: Admission,
        stdio: Stdio,
        resume: Resume,
    ) -> Result<LiveExec, SessionError> {
        if admission.exec.cmd().trim().is_empty() {
            return Err(empty_command());
        }
        let argv = exec::shell(&admission.exec);
        self.stream_program(admission, argv, stdio, resume).await
    }

    /// Like [`Sessions::stream`], with a program and its arguments instead of a shell command.
    pub async fn stream_argv(
        &self,
        admission: Admission,
        argv: Vec<String>,
        stdio: Stdio,
        resume: Resume,
    ) -> Result<LiveExec, SessionError> {
        processes::check_argv(&argv)?;
        self.stream_program(admission, argv, stdio, resume).await
    }

    async fn stream_program(
        &self,
        admission: Admission,
        argv: Vec<String>,
        stdio: Stdio,
        resume: Resume,
    ) -> Result<LiveExec, SessionError> {
        let Admission { spec, exec } = admission;
        let spec = Arc::new(spec);
        let mut retried = false;
        loop {
            // The turn is for the start; what lasts has a seat.
            let (mut record, _turn) = self.begin_exec(&spec).await?;
            let session = Arc::clone(record.session());
            record.sit(self.registry.gate.live(session.incarnation)?);
            let backend = &session.backend;
            if matches!(stdio, Stdio::Terminal(_)) && !backend.capabilities().pty {
                return Err(SessionError::Invalid {
                    what: format!("the {} backend has no terminals", backend.name()),
                });
            }
            let wish = live::Wish {
                argv: argv.clone(),
                stdio,
                resume,
                limits: self.registry.settings.replay,
            };
            let unkillable = {
                let (sessions, session) = (self.clone(), Arc::clone(&session));
                move || sessions.close_unkillable(&session)
            };
            match live::start(record, &exec, wish, unkillable).await {
                Err(SessionError::Gone { .. }) if !retried => {
                    retried = true;
                    self.close_dead(&session);
                }
                outcome => return outcome,
            }
        }
    }

    async fn begin_exec(
        &self,
        spec: &Arc<AdmittedSpec>,
    ) -> Result<(ExecRecord, Turn), SessionError> {
        let lease = self
            .registry
            .get_or_create(spec, self.incarnation, self.reach)
            .await?;
        let turn = self.registry.gate.turn(lease.session.incarnation).await?;
        quota::before(&lease.session).await?;
        let exec_id = self.registry.exec_ids.fetch_add(1, Ordering::Relaxed);
        Ok((ExecRecord::begin(exec_id, lease), turn))
    }

    fn close_unkillable(&self, session: &Arc<Session>) {
        self.registry
            .close_if(session, Ending::Died, UNKILLABLE, |_| true);
    }

    fn close_dead(&self, session: &Arc<Session>) {
        self.registry
            .close_if(session, Ending::Died, "its box died", |_| true);
    }

    /// Living sessions, by id. That there are some for hosted servers is no secret; hosting sees only those.
    pub fn list(&self) -> Vec<SessionInfo> {
        let mut sessions = self.registry.ready();
        if self.reach == Reach::Hosting {
            sessions.retain(|session| session.spec.is_hosted());
        }
        sessions.sort_by(|one, other| one.id.cmp(&other.id));
        sessions.iter().map(|session| session.info()).collect()
    }

    /// Of living sessions and of those being started that the caller gets at, in no order.
    pub fn ids(&self) -> Vec<SessionId> {
        self.registry.ids(self.reach)
    }

    /// How many managed processes run in the sessions that are meant.
    pub fn running_processes(&self, is_meant: impl Fn(&SessionId) -> bool) -> u64 {
        let sessions = self.registry.ready();
        let meant = sessions.iter().filter(|session| is_meant(&session.id));
        let running: usize = meant.map(|session| session.processes.running()).sum();
        running as u64
    }

    /// Of a session of a hosted server, others than hosting learn what it is and not what goes on in it.
    pub fn detail(&self, id: &SessionId) -> Result<SessionDetail, SessionError> {
        match self.registry.peek(self.handle(id)) {
            Ok(session) => Ok(session.detail()),
            Err(SessionError::Hosted { .. }) => {
                let handle = Handle {
                    reach: Reach::All,
                    ..self.handle(id)
                };
                Ok(self.registry.peek(handle)?.outline())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns when nothing of the session is left. A session that is being started goes as soon
    /// as it is there.
    pub async fn delete(&self, id: &SessionId, why: &str) -> Result<(), SessionError> {
        self.registry.delete(self.handle(id), why).await
    }

    pub async fn start_process(
        &self,
        id: &SessionId,
        spec: ProcessSpec,
        replace: Replace,
    ) -> Result<ProcessInfo, SessionError> {
        processes::start(&self.registry, self.handle(id), spec, replace).await
    }

    pub fn process(
        &self,
        id: &SessionId,
        process: &ProcessId,
    ) -> Result<ProcessInfo, SessionError> {
        Ok(processes::get(&self.registry, self.handle(id), process)?.info())
    }

    /// By process id.
    pub fn processes(&self, id: &SessionId) -> Result<Vec<ProcessInfo>, SessionError> {
        let session = self.registry.peek(self.handle(id))?;
        Ok(session.processes.infos().into_values().collect())
    }

    /// Closes stdin, asks the process's tree to end, and kills it when the grace is over. The
    /// process is forgotten; what comes back is how it ended.
    pub async fn stop_process(
        &self,
        id: &SessionId,
        process: &ProcessId,
    ) -> Result<ProcessInfo, SessionError> {
        processes::stop(&self.registry, self.handle(id), process).await
    }

    pub async fn signal_process(
        &self,
        id: &SessionId,
        process: &ProcessId,
        signal: i32,
    ) -> Result<(), SessionError> {
        // A program that stands still hears nothing.
        let _lease = self.registry.existing(self.handle(id)).await?;
        processes::get(&self.registry, self.handle(id), process)?
            .signal(signal)
            .await
    }

    /// The process exists and runs, or has output that nobody has taken yet.
    pub fn check_attachable(
        &self,
        id: &SessionId,
        process: &ProcessId,
    ) -> Result<Attachable, SessionError> {
        Attachable::new(processes::get(&self.registry, self.handle(id), process)?)
    }

    pub fn logs(&self, id: &SessionId, process: &ProcessId) -> Result<ProcessLogs, SessionError> {
        Ok(processes::get(&self.registry, self.handle(id), process)?.logs())
    }

    pub async fn file(&self, id: &SessionId, call: FileCall) -> Result<FileAnswer, SessionError> {
        self.file_by(Writer::Client, id, call).await
    }

    pub async fn file_by(
        &self,
        writer: Writer,
        id: &SessionId,
        call: FileCall,
    ) -> Result<FileAnswer, SessionError> {
        let lease = self.registry.existing(self.handle(id)).await?;
        let _turn = self.registry.gate.turn(lease.session.incarnation).await?;
        if call.adds_to().is_some() {
            quota::before_write(&lease.session, writer).await?;
        }
        let session = &lease.session;
        let done = session.sandbox.file(call).await;
        done.map_err(|error| session.file_failed(error))
    }

    /// Whether the session's workspace may still grow. For whoever writes to a file of it for a while:
    /// the file was judged when it was opened.
    pub async fn check_room(&self, id: &SessionId) -> Result<(), SessionError> {
        let lease = self.registry.existing(self.handle(id)).await?;
        quota::before_write(&lease.session, Writer::Client).await
    }

    /// Tells watchers what happened around a session elsewhere in the daemon.
    pub fn announce(&self, session: &SessionId, kind: EventKind) {
        self.registry.events.emit(session, || kind);
    }

    /// From now on. Of a session of a hosted server, others than hosting learn that it is there and not
    /// what goes on in it.
    pub fn events(&self) -> Watching {
        self.registry.events.subscribe(self.reach)
    }

    /// Never waits: whether a backend works is known from the last look, and a new look is begun
    /// when that was long ago.
    pub fn status(&self) -> Status {
        let registry = &self.registry;
        let sessions = registry.ready();
        let running: usize = sessions
            .iter()
            .map(|session| session.processes.running())
            .sum();
        let frozen = sessions
            .iter()
            .filter(|session| session.activity.frost.is_frozen())
            .count();
        Status {
            backend: registry.backends.info(),
            active_sessions: sessions.len() as u64,
            managed_processes: running as u64,
            session_ttl_sec: registry.settings.session_ttl.as_secs(),
            warm_boxes: registry.warm.count() as u64,
            frozen_sessions: frozen as u64,
        }
    }

    /// What there is to look after, in numbers.
    pub fn workload(&self) -> Workload {
        let (starting, closing) = self.registry.in_motion();
        let mut workload = Workload {
            starting,
            closing,
            warm: self.registry.warm.count(),
            ..Workload::default()
        };
        for session in self.registry.ready() {
            let processes = session.processes.all();
            let running = processes.iter().filter(|it| it.is_running()).count();
            workload.sessions += 1;
            workload.frozen += usize::from(session.activity.frost.is_frozen());
            workload.running_processes += running;
            workload.ended_processes += processes.len() - running;
        }
        workload
    }

    /// What is going on at this moment, in numbers.
    pub fn load(&self) -> Load {
        self.registry.gate.load()
    }

    /// What everything that is in memory on a caller's behalf counts against.
    pub fn budget(&self) -> &Budget {
        &self.registry.gate.budget
    }

    /// The part of a shutdown that takes no time: nothing new starts, and boxes that are to outlive this
    /// daemon are let go of. Whoever still follows a command in one of them may be sent away after
    /// this, and the command goes on.
    pub fn begin_shutdown(&self, boxes: ShutdownBoxes) {
        self.registry.begin_shutdown(boxes);
    }

    /// Removes every session whose box is not to outlive this daemon, all at the same time, lets go of
    /// the others, then of the backends. Nothing new starts.
    pub async fn shutdown(&self, boxes: ShutdownBoxes) {
        self.registry.shutdown(boxes).await;
    }
}

fn empty_command() -> SessionError {
    SessionError::Invalid {
        what: "cmd must not be empty".to_owned(),
    }
}
