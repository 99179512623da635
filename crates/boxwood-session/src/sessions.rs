//! The public interface of this crate.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use boxwood_api::{
    EventKind, ExecResult, ProcessId, ProcessInfo, ProcessLogs, ProcessSpec, SessionDetail,
    SessionId, SessionInfo, Status,
};
use boxwood_backend::{FileAnswer, FileCall, Stdio};
use boxwood_ledger::Ledger;
use boxwood_policy::{Admission, AdmittedExec, AdmittedSpec};

use crate::admission::{Budget, Load, StartPermit};
use crate::backends::Backends;
use crate::events::EventStream;
use crate::exec::captured;
use crate::exec::streamed::{self, Resume, StreamedExec};
use crate::managed::{self, Attachable, Managed, Replace};
use crate::program::Since;
use crate::quota::{self, Writer};
use crate::recovery::Recovery;
use crate::session::access::Access;
use crate::session::freeze;
use crate::session::reaper;
use crate::session::registry::Registry;
use crate::session::{ExecRecord, Handle, Lease};
use crate::warm_pool::{self, WarmPoolSpec};
use crate::{Result, SessionError, Settings, ShutdownBoxes};

/// All sessions of one daemon. Clones share them.
#[derive(Clone)]
pub struct Sessions {
    pub(crate) registry: Arc<Registry>,
    /// The incarnation that callers of this value refer to, if they named one.
    pub(crate) incarnation: Option<u64>,
    access: Access,
}

/// Numbers of sessions and managed processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    pub sessions: usize,
    pub starting: usize,
    pub closing: usize,
    pub running_processes: usize,
    pub ended_processes: usize,
    /// Sessions whose boxes are frozen.
    pub frozen: usize,
    /// Prewarmed boxes.
    pub warm: usize,
}

impl Sessions {
    /// For a daemon whose boxes end with it. Needs a Tokio runtime, because it starts the reaper.
    pub fn new(backends: Backends, settings: Settings) -> Self {
        Self::open(Registry::new(backends, settings, Ledger::in_memory()).into())
    }

    /// For a daemon that continues with the ledger of an earlier one. Adopts its sessions and removes
    /// its other leftovers.
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
            access: Access::default(),
        }
    }

    /// The same sessions for a caller that refers to one incarnation. No session is created for it. If
    /// the incarnation is gone, the error contains how it ended.
    #[must_use]
    pub fn expecting(&self, incarnation: Option<u64>) -> Self {
        Self {
            incarnation,
            ..self.clone()
        }
    }

    /// The same sessions for a caller with other access rights.
    #[must_use]
    pub fn with_access(&self, access: Access) -> Self {
        Self {
            access,
            ..self.clone()
        }
    }

    pub(crate) fn handle<'a>(&self, id: &'a SessionId) -> Handle<'a> {
        Handle {
            id,
            incarnation: self.incarnation,
            access: self.access,
        }
    }

    /// Keeps boxes of these kinds prewarmed, as many as recent requests needed.
    pub fn keep_warm(&self, specs: Vec<WarmPoolSpec>) {
        let has_specs = !specs.is_empty();
        self.registry.warm.set_specs(specs);
        if has_specs && self.registry.warm.needs_keeper() {
            tokio::spawn(warm_pool::keep(Arc::downgrade(&self.registry)));
        }
    }

    /// Removes the prewarmed boxes of this backend. To be called around a change of its images.
    pub async fn remove_prewarmed(&self, backend: &str) {
        self.registry.warm.forget(backend).await;
    }

    pub fn backends(&self) -> &Backends {
        &self.registry.backends
    }

    pub async fn get_or_create(&self, spec: AdmittedSpec) -> Result<SessionInfo> {
        Ok(self.lease(&Arc::new(spec)).await?.session.info())
    }

    /// Runs one command with `/bin/sh -c` and waits for it. Creates the session if it is missing.
    /// Dropping the future kills the command and its children.
    pub async fn exec(&self, admission: Admission) -> Result<ExecResult> {
        let Admission { spec, exec } = admission;
        check_command(&exec)?;
        let spec = Arc::new(spec);
        let mut retried = false;
        loop {
            let (record, _permit) = self.begin_exec(self.lease(&spec).await?).await?;
            let session = Arc::clone(record.session());
            match captured::run(record, &exec, &self.registry).await {
                // The box died before the command was started, so the command can be retried.
                Err(SessionError::Gone { .. }) if !retried => {
                    retried = true;
                    self.registry.close_dead(&session);
                }
                outcome => return outcome,
            }
        }
    }

    /// Like [`Sessions::exec`] in an existing session.
    pub async fn exec_existing(&self, admission: Admission) -> Result<ExecResult> {
        let Admission { spec, exec } = admission;
        check_command(&exec)?;
        let lease = self.registry.existing(self.handle(spec.session())).await?;
        let (record, _permit) = self.begin_exec(lease).await?;
        captured::run(record, &exec, &self.registry).await
    }

    /// Like [`Sessions::exec`] with streamed input and output.
    pub async fn stream(
        &self,
        admission: Admission,
        stdio: Stdio,
        resume: Resume,
    ) -> Result<StreamedExec> {
        check_command(&admission.exec)?;
        let argv = captured::shell(&admission.exec);
        self.stream_program(admission, argv, stdio, resume).await
    }

    /// Like [`Sessions::stream`], with a program and its arguments instead of a shell command.
    pub async fn stream_argv(
        &self,
        admission: Admission,
        argv: Vec<String>,
        stdio: Stdio,
        resume: Resume,
    ) -> Result<StreamedExec> {
        managed::check_argv(&argv)?;
        self.stream_program(admission, argv, stdio, resume).await
    }

    async fn stream_program(
        &self,
        admission: Admission,
        argv: Vec<String>,
        stdio: Stdio,
        resume: Resume,
    ) -> Result<StreamedExec> {
        let Admission { spec, exec } = admission;
        let spec = Arc::new(spec);
        let mut retried = false;
        loop {
            // The start permit is released when the command has started.
            let (mut record, _permit) = self.begin_exec(self.lease(&spec).await?).await?;
            let session = Arc::clone(record.session());
            record.hold_permit(self.registry.gate.streamed(session.incarnation)?);
            let backend = &session.backend;
            if matches!(stdio, Stdio::Terminal(_)) && !backend.capabilities().pty {
                return Err(SessionError::invalid(format!(
                    "the `{}` backend does not support terminals",
                    backend.name()
                )));
            }
            let (argv, options) = (argv.clone(), (stdio, resume));
            match streamed::start(record, &exec, argv, options, &self.registry).await {
                Err(SessionError::Gone { .. }) if !retried => {
                    retried = true;
                    self.registry.close_dead(&session);
                }
                outcome => return outcome,
            }
        }
    }

    /// Creates the session if it is missing.
    async fn lease(&self, spec: &Arc<AdmittedSpec>) -> Result<Lease> {
        let handle = self.handle(spec.session());
        self.registry.get_or_create(spec, handle).await
    }

    async fn begin_exec(&self, lease: Lease) -> Result<(ExecRecord, StartPermit)> {
        let incarnation = lease.session.incarnation;
        let permit = self.registry.gate.start_permit(incarnation).await?;
        quota::check_before_exec(&lease.session).await?;
        let exec_id = self.registry.exec_ids.fetch_add(1, Ordering::Relaxed);
        Ok((ExecRecord::begin(exec_id, lease), permit))
    }

    /// Sessions by id. Hosting sees only those of hosted servers.
    pub fn list(&self) -> Vec<SessionInfo> {
        let mut sessions = self.registry.ready();
        if self.access == Access::Hosting {
            sessions.retain(|session| session.spec.is_hosted());
        }
        sessions.sort_by(|one, other| one.id.cmp(&other.id));
        sessions.iter().map(|session| session.info()).collect()
    }

    /// Ids of running and starting sessions that the caller has access to, in no order.
    pub fn ids(&self) -> Vec<SessionId> {
        self.registry.ids(self.access)
    }

    /// The number of running managed processes in the sessions that `is_selected` selects.
    pub fn running_processes(&self, is_selected: impl Fn(&SessionId) -> bool) -> u64 {
        let sessions = self.registry.ready();
        let selected = sessions.iter().filter(|session| is_selected(&session.id));
        let running: usize = selected.map(|session| session.processes.running()).sum();
        running as u64
    }

    /// For sessions of hosted servers, callers other than hosting get the session without its programs.
    pub fn detail(&self, id: &SessionId) -> Result<SessionDetail> {
        match self.registry.peek(self.handle(id)) {
            Ok(session) => Ok(session.detail()),
            Err(SessionError::Hosted { .. }) => {
                let handle = Handle {
                    access: Access::All,
                    ..self.handle(id)
                };
                Ok(self.registry.peek(handle)?.outline())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns when the session is removed. A session that is being started is removed after its start.
    pub async fn delete(&self, id: &SessionId, why: &str) -> Result<()> {
        self.registry.delete(self.handle(id), why).await
    }

    pub async fn start_process(
        &self,
        id: &SessionId,
        spec: ProcessSpec,
        replace: Replace,
    ) -> Result<ProcessInfo> {
        managed::start(&self.registry, self.handle(id), spec, replace).await
    }

    pub fn process(&self, id: &SessionId, process: &ProcessId) -> Result<ProcessInfo> {
        Ok(self.managed(id, process)?.info())
    }

    pub(crate) fn managed(&self, id: &SessionId, process: &ProcessId) -> Result<Arc<Managed>> {
        let handle = self.handle(id);
        let entry = self.registry.peek(handle)?.processes.get(process);
        entry.ok_or_else(|| managed::not_found(handle, process))
    }

    /// Sorted by process id.
    pub fn processes(&self, id: &SessionId) -> Result<Vec<ProcessInfo>> {
        let session = self.registry.peek(self.handle(id))?;
        Ok(session.processes.infos().into_values().collect())
    }

    /// Closes stdin, sends SIGTERM to the process and its children, and kills them after the grace
    /// period. The process is forgotten. Returns how it ended.
    pub async fn stop_process(&self, id: &SessionId, process: &ProcessId) -> Result<ProcessInfo> {
        managed::stop(&self.registry, self.handle(id), process).await
    }

    pub async fn signal_process(
        &self,
        id: &SessionId,
        process: &ProcessId,
        signal: i32,
    ) -> Result<()> {
        // A frozen program does not handle signals.
        let _lease = self.registry.existing(self.handle(id)).await?;
        self.managed(id, process)?.signal(signal).await
    }

    /// Fails unless the process is running or has unread output.
    pub fn check_attachable(&self, id: &SessionId, process: &ProcessId) -> Result<Attachable> {
        self.check_attachable_at(id, process, Since::Now)
    }

    pub fn logs(&self, id: &SessionId, process: &ProcessId) -> Result<ProcessLogs> {
        Ok(self.managed(id, process)?.logs())
    }

    pub async fn file(&self, id: &SessionId, call: FileCall) -> Result<FileAnswer> {
        self.file_by(Writer::Client, id, call).await
    }

    pub async fn file_by(
        &self,
        writer: Writer,
        id: &SessionId,
        call: FileCall,
    ) -> Result<FileAnswer> {
        let lease = self.registry.existing(self.handle(id)).await?;
        let gate = &self.registry.gate;
        let _permit = gate.start_permit(lease.session.incarnation).await?;
        if call.adds_to().is_some() {
            quota::check_before_write(&lease.session, writer).await?;
        }
        let session = &lease.session;
        let answer = session.sandbox.file(call).await;
        answer.map_err(|error| session.file_failed(error))
    }

    /// Fails if the workspace is over its quota. For writers that keep a file open, because the quota
    /// was checked when it was opened.
    pub async fn check_room(&self, id: &SessionId) -> Result<()> {
        let lease = self.registry.existing(self.handle(id)).await?;
        quota::check_before_write(&lease.session, Writer::Client).await
    }

    /// Emits an event of another part of the daemon.
    pub fn announce(&self, session: &SessionId, kind: EventKind) {
        self.registry.events.emit(session, || kind);
    }

    /// Events from now on. Callers other than hosting do not get events from inside the boxes of hosted
    /// servers.
    pub fn events(&self) -> EventStream {
        self.registry.events.subscribe(self.access)
    }

    /// Never waits: uses the last probes of the backends and starts new ones if they are old.
    pub fn status(&self) -> Status {
        let workload = self.workload();
        Status {
            backend: self.registry.backends.info(),
            active_sessions: workload.sessions as u64,
            managed_processes: workload.running_processes as u64,
            session_ttl_sec: self.registry.settings.session_ttl.as_secs(),
            warm_boxes: workload.warm as u64,
            frozen_sessions: workload.frozen as u64,
        }
    }

    /// Current numbers of sessions and processes.
    pub fn workload(&self) -> Workload {
        let (starting, closing) = self.registry.starting_and_closing();
        let mut workload = Workload {
            starting,
            closing,
            warm: self.registry.warm.count(),
            ..Workload::default()
        };
        for session in self.registry.ready() {
            let processes = session.processes.all();
            let running = processes
                .iter()
                .filter(|process| process.is_running())
                .count();
            workload.sessions += 1;
            workload.frozen += usize::from(session.activity.freeze_state.is_frozen());
            workload.running_processes += running;
            workload.ended_processes += processes.len() - running;
        }
        workload
    }

    /// Current load.
    pub fn load(&self) -> Load {
        self.registry.gate.load()
    }

    /// The budget for bytes in memory.
    pub fn budget(&self) -> &Budget {
        &self.registry.gate.budget
    }

    /// The part of a shutdown that takes no time: refuses new sessions and detaches boxes that outlive
    /// this daemon. Clients of their commands may be disconnected afterwards; the commands run on.
    pub fn begin_shutdown(&self, boxes: ShutdownBoxes) {
        self.registry.begin_shutdown(boxes);
    }

    /// Removes all sessions whose boxes do not outlive this daemon, in parallel, detaches the others,
    /// and shuts the backends down.
    pub async fn shutdown(&self, boxes: ShutdownBoxes) {
        self.registry.shutdown(boxes).await;
    }
}

fn check_command(exec: &AdmittedExec) -> Result<()> {
    if exec.cmd().trim().is_empty() {
        return Err(SessionError::invalid("cmd must not be empty"));
    }
    Ok(())
}
