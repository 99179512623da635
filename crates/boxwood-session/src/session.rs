//! One living session: its box, what it was made from, and the processes it keeps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use boxwood_api::{
    EventKind, ExecStatus, MountSpec, Reason, SessionDetail, SessionId, SessionInfo,
};
use boxwood_backend::{Backend, FileError, MountError, Sandbox, SpawnError};
use boxwood_policy::{AdmittedSpec, SpecRecord};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::SessionError;
use crate::activity::{Activity, Running};
use crate::admission::{Budget, Seat};
use crate::events::Events;
use crate::execs::ExecTable;
use crate::freeze::Frost;
use crate::managed::ProcessTable;
use crate::mounts::Mounts;
use crate::pace::Pace;
use crate::quota::{Before, Bounds, Stops};
use crate::reach::Reach;
use crate::reason::Asked;
use crate::record::SessionRecord;

/// Which session is meant: the one of that name, or only a certain one of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle<'a> {
    pub(crate) id: &'a SessionId,
    pub(crate) incarnation: Option<u64>,
    pub(crate) reach: Reach,
}

/// The registry's own business is with every session.
impl<'a> From<&'a SessionId> for Handle<'a> {
    fn from(id: &'a SessionId) -> Self {
        Self {
            id,
            incarnation: None,
            reach: Reach::All,
        }
    }
}

impl Handle<'_> {
    /// Whether the session that has the name is the one.
    pub(crate) fn means(&self, session: &Session) -> bool {
        let wanted = self.incarnation;
        wanted.is_none_or(|wanted| wanted == session.incarnation)
    }
}

/// Why a session came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Somebody wanted it: a caller, the reaper, the shutdown.
    Asked,
    /// The box died by itself.
    Died,
}

pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) incarnation: u64,
    /// What it was made from; `mounts` are those it has now.
    pub(crate) spec: Arc<AdmittedSpec>,
    pub(crate) mounts: Mounts,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) processes: ProcessTable,
    pub(crate) execs: ExecTable,
    pub(crate) pace: Pace,
    pub(crate) bounds: Bounds,
    pub(crate) stops: Stops,
    /// What the output that is kept for whoever comes back counts against.
    pub(crate) budget: Budget,
    pub(crate) events: Events,
    spec_record: SpecRecord,
    /// Held by the one who tells the box what to remember: what was told last is what is true last.
    remembering: tokio::sync::Mutex<()>,
    created_at: Timestamp,
    adopted_at: Option<Timestamp>,
    let_go: AtomicBool,
    ending: watch::Sender<Option<Ending>>,
}

/// What a session is put together from.
pub(crate) struct Parts {
    pub(crate) incarnation: u64,
    pub(crate) spec: Arc<AdmittedSpec>,
    pub(crate) spec_record: SpecRecord,
    pub(crate) mounts: Mounts,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) created_at: Timestamp,
    /// When this daemon took its box over from an earlier one.
    pub(crate) adopted_at: Option<Timestamp>,
}

impl Session {
    pub(crate) fn new(parts: Parts, events: Events, budget: Budget) -> Self {
        let frost = Frost::of(parts.spec.session(), &parts.sandbox, &events);
        Self {
            id: parts.spec.session().clone(),
            incarnation: parts.incarnation,
            mounts: parts.mounts,
            spec: parts.spec,
            sandbox: parts.sandbox,
            backend: parts.backend,
            activity: Arc::new(Activity::new(frost)),
            processes: ProcessTable::default(),
            execs: ExecTable::default(),
            budget,
            pace: Pace::default(),
            bounds: Bounds::default(),
            stops: Stops::default(),
            events,
            spec_record: parts.spec_record,
            remembering: tokio::sync::Mutex::default(),
            created_at: parts.created_at,
            adopted_at: parts.adopted_at,
            let_go: AtomicBool::new(false),
            ending: watch::Sender::new(None),
        }
    }

    pub(crate) fn end(&self, ending: Ending) {
        self.ending.send_replace(Some(ending));
    }

    /// Its end has begun.
    pub(crate) fn is_over(&self) -> bool {
        self.ending.borrow().is_some()
    }

    /// Resolves once the session's end has begun.
    pub(crate) async fn ended(&self) {
        // The sender is part of `self`, so the channel cannot close meanwhile.
        let _ = self.ending.subscribe().wait_for(Option::is_some).await;
    }

    /// The daemon ends and the box does not. From here on nothing here ends anything in it.
    pub(crate) fn let_go(&self) {
        self.let_go.store(true, Ordering::Release);
        self.execs.let_go();
        self.sandbox.let_go();
    }

    pub(crate) fn is_let_go(&self) -> bool {
        self.let_go.load(Ordering::Acquire)
    }

    /// What to say to whoever finds that its box is not there, or not there for this daemon.
    pub(crate) fn gone(&self) -> SessionError {
        if self.is_let_go() {
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

    /// What the session is made of now, as the ledger keeps it.
    pub(crate) fn spec_text(&self) -> String {
        let (mounts, _) = self.mounts.record();
        let now = self.spec_record.with_mounts(mounts);
        // It was written before, when the session was made.
        serde_json::to_string(&now).unwrap_or_default()
    }

    /// Gives the box what the next daemon has to know of it, as it is now.
    pub(crate) async fn remember(&self) -> Result<(), SessionError> {
        let _alone = self.remembering.lock().await;
        let (mounts, joined) = self.mounts.record();
        let record = SessionRecord {
            incarnation: self.incarnation,
            created_at: self.created_at,
            spec: self.spec_record.clone(),
            mounts,
            joined,
        };
        let record = serde_json::to_vec(&record).map_err(|_| SessionError::Internal {
            step: "writing down what a box has to remember",
        })?;
        self.sandbox
            .remember(&record)
            .await
            .map_err(|error| SessionError::control_of(&self.id, error))
    }

    /// Who is to blame when the box takes a program with it.
    pub(crate) fn asked(&self) -> Asked {
        match *self.ending.borrow() {
            Some(Ending::Asked) => Asked::Caller,
            Some(Ending::Died) | None => Asked::Nobody,
        }
    }

    /// Nothing runs in it, no matter for how long.
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
            frozen: self.activity.frost.is_frozen(),
            isolation: self.sandbox.label().clone(),
        }
    }

    /// What it is, and nothing of what goes on in it.
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
        SessionDetail {
            session: self.info(),
            config_hash: self.spec.config_hash(),
            managed_process: managed_processes
                .get(&boxwood_api::ProcessId::default())
                .cloned(),
            managed_processes,
            execs: self.execs.running(),
        }
    }
}

/// A session in use: as long as one of these lives the reaper leaves it alone.
pub(crate) struct Lease {
    pub(crate) session: Arc<Session>,
    _running: Running,
}

impl Lease {
    /// Called under the registry's lock, so that no reaper can decide in between.
    pub(crate) fn new(session: &Arc<Session>) -> Self {
        Self {
            session: Arc::clone(session),
            _running: Running::new(&session.activity),
        }
    }
}

/// How one exec ended, for the answer and for the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecEnd {
    pub(crate) status: ExecStatus,
    pub(crate) exit_code: Option<i32>,
    pub(crate) reason: Option<Reason>,
}

/// One exec from its start to its end. Says so to whoever watches, also when its caller left.
pub(crate) struct ExecRecord {
    pub(crate) exec_id: u64,
    pub(crate) lease: Lease,
    began: Instant,
    began_after: Before,
    finished: bool,
    seat: Option<Seat>,
}

impl ExecRecord {
    pub(crate) fn begin(exec_id: u64, lease: Lease) -> Self {
        let session = &lease.session;
        session
            .events
            .emit_inside(session, || EventKind::ExecStarted { exec_id });
        Self {
            exec_id,
            began: Instant::now(),
            began_after: session.stops.before(),
            lease,
            finished: false,
            seat: None,
        }
    }

    /// One that an earlier daemon began, and told of, so long ago.
    pub(crate) fn continued(exec_id: u64, lease: Lease, ago: Duration) -> Self {
        let now = Instant::now();
        Self {
            exec_id,
            began_after: lease.session.stops.before(),
            lease,
            began: now.checked_sub(ago).unwrap_or(now),
            finished: false,
            seat: None,
        }
    }

    /// An earlier daemon has told of its end.
    pub(crate) fn forget(mut self) {
        self.finished = true;
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.lease.session
    }

    /// Its box was stopped because of what was written.
    pub(crate) fn is_over_quota(&self) -> bool {
        self.session().stops.met(self.began_after)
    }

    /// Counts among the streamed commands from now on.
    pub(crate) fn sit(&mut self, seat: Seat) {
        self.seat = Some(seat);
    }

    /// Returns the duration in milliseconds.
    pub(crate) fn finish(mut self, end: &ExecEnd) -> u64 {
        self.finished = true;
        self.tell(end)
    }

    fn tell(&self, end: &ExecEnd) -> u64 {
        let duration_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let session = self.session();
        session
            .events
            .emit_inside(session, || EventKind::ExecFinished {
                exec_id: self.exec_id,
                exit_code: end.exit_code,
                reason: end.reason.clone(),
                duration_ms,
            });
        duration_ms
    }
}

impl Drop for ExecRecord {
    fn drop(&mut self) {
        if !self.finished {
            self.tell(&ExecEnd {
                status: ExecStatus::Completed,
                exit_code: None,
                reason: Some(Reason::Cancelled),
            });
        }
    }
}
