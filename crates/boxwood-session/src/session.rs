//! One living session: its box, what it was made from, and the processes it keeps.

use std::sync::Arc;

use boxwood_api::{
    EventKind, ExecStatus, MountSpec, Reason, SessionDetail, SessionId, SessionInfo,
};
use boxwood_backend::{Backend, Sandbox};
use boxwood_policy::AdmittedSpec;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::activity::{Activity, Running};
use crate::admission::Seat;
use crate::events::Events;
use crate::execs::ExecTable;
use crate::freeze::Frost;
use crate::managed::ProcessTable;
use crate::mounts::Mounts;
use crate::reason::Asked;

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
    pub(crate) events: Events,
    created_at: Timestamp,
    ending: watch::Sender<Option<Ending>>,
}

impl Session {
    pub(crate) fn new(
        spec: Arc<AdmittedSpec>,
        sandbox: Arc<dyn Sandbox>,
        backend: Arc<dyn Backend>,
        incarnation: u64,
        events: Events,
    ) -> Self {
        let frost = Frost::of(spec.session(), &sandbox, &events);
        Self {
            id: spec.session().clone(),
            incarnation,
            mounts: Mounts::new(&spec),
            spec,
            sandbox,
            backend,
            activity: Arc::new(Activity::new(frost)),
            processes: ProcessTable::default(),
            execs: ExecTable::default(),
            events,
            created_at: Timestamp::now(),
            ending: watch::Sender::new(None),
        }
    }

    pub(crate) fn end(&self, ending: Ending) {
        self.ending.send_replace(Some(ending));
    }

    /// Resolves once the session's end has begun.
    pub(crate) async fn ended(&self) {
        // The sender is part of `self`, so the channel cannot close meanwhile.
        let _ = self.ending.subscribe().wait_for(Option::is_some).await;
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
            adopted_at: None,
            frozen: self.activity.frost.is_frozen(),
            isolation: self.sandbox.label().clone(),
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
    finished: bool,
    seat: Option<Seat>,
}

impl ExecRecord {
    pub(crate) fn begin(exec_id: u64, lease: Lease) -> Self {
        let session = &lease.session;
        session
            .events
            .emit(&session.id, || EventKind::ExecStarted { exec_id });
        Self {
            exec_id,
            lease,
            began: Instant::now(),
            finished: false,
            seat: None,
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.lease.session
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
            .emit(&session.id, || EventKind::ExecFinished {
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
