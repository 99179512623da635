//! One session: its box, its spec, and its programs.

pub(crate) mod access;
pub(crate) mod activity;
mod add_mounts;
mod close;
pub(crate) mod compatibility;
mod file_tools;
pub(crate) mod freeze;
pub(crate) mod mounts;
pub(crate) mod reaper;
pub(crate) mod registry;
pub(crate) mod start;
pub(crate) mod state;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use boxwood_api::{EventKind, ExecExit, MountSpec, Reason, SessionDetail, SessionId, SessionInfo};
use boxwood_backend::{Backend, FileError, MountError, Sandbox, SpawnError};
use boxwood_policy::{AdmittedSpec, SpecRecord};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::admission::{Budget, RunPermit};
use crate::events::Events;
use crate::exec::table::ExecTable;
use crate::managed::ProcessTable;
use crate::program::{EndCause, ReadRate, exec_exit};
use crate::quota::{KillCount, Quota};
use crate::recovery::record::SessionRecord;
use crate::session::access::Access;
use crate::session::activity::{Activity, Use};
use crate::session::freeze::FreezeState;
use crate::session::mounts::Mounts;
use crate::session::registry::Registry;
use crate::{Result, SessionError};

/// A session id, with a certain incarnation if the caller requested one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle<'a> {
    pub(crate) id: &'a SessionId,
    pub(crate) incarnation: Option<u64>,
    pub(crate) access: Access,
}

/// The registry itself has access to every session.
impl<'a> From<&'a SessionId> for Handle<'a> {
    fn from(id: &'a SessionId) -> Self {
        Self {
            id,
            incarnation: None,
            access: Access::All,
        }
    }
}

impl Handle<'_> {
    /// Returns true if the session has the requested incarnation.
    pub(crate) fn matches(&self, session: &Session) -> bool {
        let requested = self.incarnation;
        requested.is_none_or(|requested| requested == session.incarnation)
    }
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A caller, the reaper or the shutdown closed it.
    Requested,
    /// The box died.
    Died,
}

pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) incarnation: u64,
    /// The spec it was created with; `mounts` has the current ones.
    pub(crate) spec: Arc<AdmittedSpec>,
    pub(crate) mounts: Mounts,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) processes: ProcessTable,
    pub(crate) execs: ExecTable,
    pub(crate) read_rate: ReadRate,
    pub(crate) quota: Quota,
    /// Counts output that is kept for clients.
    pub(crate) budget: Budget,
    pub(crate) events: Events,
    spec_record: SpecRecord,
    /// Locked while the record is written, so that the last write has the last state.
    writing_record: tokio::sync::Mutex<()>,
    created_at: Timestamp,
    adopted_at: Option<Timestamp>,
    detached: AtomicBool,
    ending: watch::Sender<Option<Ending>>,
}

/// What a session is created from.
pub(crate) struct Parts {
    pub(crate) incarnation: u64,
    pub(crate) spec: Arc<AdmittedSpec>,
    pub(crate) spec_record: SpecRecord,
    pub(crate) mounts: Mounts,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) created_at: Timestamp,
    /// When this daemon adopted the box.
    pub(crate) adopted_at: Option<Timestamp>,
}

impl Session {
    pub(crate) fn new(parts: Parts, registry: &Registry) -> Self {
        let events = registry.events.clone();
        let freeze_state = FreezeState::of(parts.spec.session(), &parts.sandbox, &events);
        Self {
            id: parts.spec.session().clone(),
            incarnation: parts.incarnation,
            mounts: parts.mounts,
            spec: parts.spec,
            sandbox: parts.sandbox,
            backend: parts.backend,
            activity: Arc::new(Activity::new(freeze_state)),
            processes: ProcessTable::default(),
            execs: ExecTable::default(),
            budget: registry.gate.budget.clone(),
            read_rate: ReadRate::default(),
            quota: Quota::default(),
            events,
            spec_record: parts.spec_record,
            writing_record: tokio::sync::Mutex::default(),
            created_at: parts.created_at,
            adopted_at: parts.adopted_at,
            detached: AtomicBool::new(false),
            ending: watch::Sender::new(None),
        }
    }

    pub(crate) fn end(&self, ending: Ending) {
        self.ending.send_replace(Some(ending));
    }

    /// Returns true if the session is being closed.
    pub(crate) fn is_over(&self) -> bool {
        self.ending.borrow().is_some()
    }

    /// Resolves when the session is being closed.
    pub(crate) async fn ended(&self) {
        // The sender is part of `self`, so the channel cannot close.
        let _ = self.ending.subscribe().wait_for(Option::is_some).await;
    }

    /// Leaves the box for the next daemon. From now on nothing here ends a program in it.
    pub(crate) fn detach(&self) {
        self.detached.store(true, Ordering::Release);
        self.execs.detach();
        self.sandbox.detach();
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Acquire)
    }

    /// Error for a box that is gone, or detached.
    pub(crate) fn gone(&self) -> SessionError {
        if self.is_detached() {
            SessionError::ShuttingDown
        } else {
            SessionError::died(&self.id)
        }
    }

    pub(crate) fn spawn_failed(&self, error: SpawnError) -> SessionError {
        match error {
            SpawnError::Gone => self.gone(),
            error => SessionError::Spawn {
                session: self.id.clone(),
                source: Arc::new(error),
            },
        }
    }

    /// Error for a program whose journals could not be created.
    pub(crate) fn journals_failed(&self, source: io::Error) -> SessionError {
        let step = "creating its journals".to_owned();
        self.spawn_failed(SpawnError::Step { step, source })
    }

    pub(crate) fn file_failed(&self, error: FileError) -> SessionError {
        match error {
            FileError::Gone => self.gone(),
            error => SessionError::File {
                source: Arc::new(error),
            },
        }
    }

    pub(crate) fn mount_failed(&self, error: MountError) -> SessionError {
        match error {
            MountError::Gone => self.gone(),
            error => SessionError::Mount {
                session: self.id.clone(),
                source: Arc::new(error),
            },
        }
    }

    /// Writes the record that the box keeps for the next daemon.
    pub(crate) async fn write_record(&self) -> Result<()> {
        let _guard = self.writing_record.lock().await;
        let (mounts, joined) = self.mounts.record();
        let record = SessionRecord {
            incarnation: self.incarnation,
            created_at: self.created_at,
            spec: self.spec_record.clone(),
            mounts,
            joined,
        };
        let record = serde_json::to_vec(&record)
            .map_err(|_| SessionError::internal("serialising the record of a box"))?;
        self.sandbox
            .remember(&record)
            .await
            .map_err(|error| SessionError::control_of(&self.id, error))
    }

    /// The cause of programs that ended with the box.
    pub(crate) fn end_cause(&self) -> EndCause {
        match *self.ending.borrow() {
            Some(Ending::Requested) => EndCause::Caller,
            Some(Ending::Died) | None => EndCause::Unknown,
        }
    }

    /// Returns true if nothing is running in it.
    pub(crate) fn is_idle(&self) -> bool {
        !self.activity.is_running() && !self.processes.any_running()
    }

    pub(crate) fn info(&self) -> SessionInfo {
        let spec = &*self.spec;
        let limits = spec.limits();
        let extra_mounts = self
            .mounts
            .present()
            .iter()
            .map(|mount| MountSpec {
                host_path: mount.source().given.clone(),
                mount_path: mount.mount_path().to_owned(),
                mode: mount.mode(),
            })
            .collect();
        SessionInfo {
            session_id: self.id.clone(),
            backend_name: self.backend.name().to_owned(),
            backend_session_id: self.sandbox.id().to_owned(),
            incarnation: self.incarnation,
            profile: spec.profile().to_owned(),
            image: spec.image_text().to_owned(),
            network: spec.network(),
            host_path: spec.host_path().map(str::to_owned),
            host_path_mode: spec.host_path_mode(),
            mount_path: spec.mount_path().to_owned(),
            extra_mounts,
            persistent: spec.persistent(),
            cpus: limits.cpus,
            memory_mb: limits.memory_mb,
            pids_limit: limits.pids,
            read_only_rootfs: spec.read_only_root(),
            workspace_quota_mb: limits.workspace_quota_mb,
            created_at: self.created_at,
            last_used_at: self.activity.last_used_at(),
            adopted_at: self.adopted_at,
            frozen: self.activity.freeze_state.is_frozen(),
            isolation: self.sandbox.label().clone(),
        }
    }

    /// The session without its programs.
    pub(crate) fn outline(&self) -> SessionDetail {
        SessionDetail {
            session: self.info(),
            config_hash: self.spec.config_hash(),
            managed_process: None,
            managed_processes: BTreeMap::new(),
            execs: Vec::new(),
        }
    }

    pub(crate) fn detail(&self) -> SessionDetail {
        let managed_processes = self.processes.infos();
        let main = managed_processes.get(&boxwood_api::ProcessId::default());
        SessionDetail {
            managed_process: main.cloned(),
            managed_processes,
            execs: self
                .execs
                .running()
                .iter()
                .map(|exec| exec.info())
                .collect(),
            ..self.outline()
        }
    }
}

/// A use of the session. The reaper keeps the session while one exists.
pub(crate) struct Lease {
    pub(crate) session: Arc<Session>,
    _use: Use,
}

impl Lease {
    /// Called under the registry's lock, so that the reaper does not decide in between.
    pub(crate) fn new(session: &Arc<Session>) -> Self {
        Self {
            session: Arc::clone(session),
            _use: Use::running(&session.activity),
        }
    }
}

/// One exec from start to end. Emits both events, the second one also if the caller has disconnected.
pub(crate) struct ExecRecord {
    pub(crate) exec_id: u64,
    pub(crate) lease: Lease,
    began: Instant,
    quota_kills: KillCount,
    finished: bool,
    permit: Option<RunPermit>,
}

impl ExecRecord {
    pub(crate) fn begin(exec_id: u64, lease: Lease) -> Self {
        let session = &lease.session;
        session
            .events
            .emit_inside(session, || EventKind::ExecStarted { exec_id });
        Self::continued(exec_id, lease, Duration::ZERO)
    }

    /// An exec that an earlier daemon started this long ago.
    pub(crate) fn continued(exec_id: u64, lease: Lease, ago: Duration) -> Self {
        let now = Instant::now();
        Self {
            exec_id,
            quota_kills: lease.session.quota.kill_count(),
            lease,
            began: now.checked_sub(ago).unwrap_or(now),
            finished: false,
            permit: None,
        }
    }

    /// An earlier daemon has reported the end.
    pub(crate) fn skip_event(mut self) {
        self.finished = true;
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.lease.session
    }

    /// Returns true if the programs of the box were killed because of the quota.
    pub(crate) fn is_over_quota(&self) -> bool {
        self.session().quota.killed_since(self.quota_kills)
    }

    /// Counts as a streamed command from now on.
    pub(crate) fn hold_permit(&mut self, permit: RunPermit) {
        self.permit = Some(permit);
    }

    /// Sets the duration.
    pub(crate) fn finish(mut self, exit: &mut ExecExit) {
        self.finished = true;
        self.emit_finished(exit);
    }

    fn emit_finished(&self, exit: &mut ExecExit) {
        let duration_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        exit.duration_ms = duration_ms;
        let session = self.session();
        session
            .events
            .emit_inside(session, || EventKind::ExecFinished {
                exec_id: self.exec_id,
                exit_code: exit.exit_code,
                reason: exit.reason.clone(),
                duration_ms,
            });
    }
}

impl Drop for ExecRecord {
    fn drop(&mut self) {
        if !self.finished {
            self.emit_finished(&mut exec_exit(None, Some(Reason::Cancelled)));
        }
    }
}
