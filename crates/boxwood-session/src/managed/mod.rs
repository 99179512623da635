//! Managed processes: long-lived programs of a session, found again by their id.
//!
//! Comes in: a spawned process. Goes out: its state, its recent output, and one attachment at a
//! time. Never here: restarts (that is for whoever wants the process alive), HTTP.

mod attach;
mod follow;
mod logs;
mod outlet;
mod preview;
mod stop;
mod table;

use std::sync::{Arc, Mutex};

use boxwood_api::{
    ProcessExit, ProcessId, ProcessInfo, ProcessSpec, ProcessStatus, Reason, SessionId,
};
use boxwood_backend::ProcessControl;
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};

use crate::SessionError;
use crate::activity::{Activity, lock};
use crate::facts::Facts;
use crate::input::Stdin;
use crate::quota::Before;

pub use attach::{Attachable, Attachment};
pub(crate) use follow::{Start, adopt, launch};
pub use logs::{LogChunk, LogStream, ProcessLogs};
pub(crate) use table::{Claim, ProcessTable, Ticket};

use logs::Logs;
use outlet::Outlet;
use preview::Preview;

/// What a start does when a process of that id is running already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Stops it and takes its place.
    Running,
    /// Leaves it alone and says so.
    Refuse,
}

/// How a managed process ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    at: Timestamp,
    exit_code: Option<i32>,
    reason: Option<Reason>,
}

pub(crate) struct Managed {
    session: SessionId,
    spec: ProcessSpec,
    started_at: Timestamp,
    began_after: Before,
    control: Arc<dyn ProcessControl>,
    activity: Arc<Activity>,
    /// Set once the process has ended and its last words have been read.
    ended: watch::Sender<Option<Ended>>,
    /// Somebody asked for the end, so the signal that brings it is no riddle.
    asked: watch::Sender<bool>,
    /// What the next daemon has to know of both.
    facts: Facts,
    /// One permit: the attachment. Closed when the process is stopped or replaced.
    attachment: Arc<Semaphore>,
    stdin: Stdin,
    outlet: Outlet,
    preview: Mutex<Preview>,
    logs: Mutex<Logs>,
}

impl Managed {
    pub(crate) fn id(&self) -> &ProcessId {
        &self.spec.process_id
    }

    pub(crate) fn is_running(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// When it ended, for choosing which one to forget first.
    pub(crate) fn ended_at(&self) -> Option<Timestamp> {
        self.ended.borrow().as_ref().map(|ended| ended.at)
    }

    pub(crate) async fn exited(&self) -> ProcessExit {
        let mut ended = self.ended.subscribe();
        // The sender is part of `self`, so the channel cannot close meanwhile.
        let ended = ended.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|ended| ended.clone());
        ProcessExit {
            exit_code: ended.as_ref().and_then(|ended| ended.exit_code),
            exited_at: ended.as_ref().map_or_else(Timestamp::now, |ended| ended.at),
            reason: ended.and_then(|ended| ended.reason),
        }
    }

    pub(crate) fn info(&self) -> ProcessInfo {
        let ended = self.ended.borrow().clone();
        ProcessInfo {
            session_id: self.session.clone(),
            process_id: self.id().clone(),
            status: if ended.is_some() {
                ProcessStatus::Exited
            } else {
                ProcessStatus::Running
            },
            command: self.spec.command.clone(),
            args: self.spec.args.clone(),
            cwd: self.spec.cwd.clone(),
            env_keys: self.spec.env.keys().cloned().collect(),
            attached: self.attachment.available_permits() == 0,
            started_at: self.started_at,
            exited_at: ended.as_ref().map(|ended| ended.at),
            exit_code: ended.as_ref().and_then(|ended| ended.exit_code),
            reason: ended.and_then(|ended| ended.reason),
            stderr_preview: lock(&self.preview).text(),
        }
    }

    pub(crate) fn control(&self) -> Arc<dyn ProcessControl> {
        Arc::clone(&self.control)
    }

    pub(crate) fn logs(&self) -> ProcessLogs {
        lock(&self.logs).snapshot()
    }

    pub(crate) async fn signal(&self, signal: i32) -> Result<(), SessionError> {
        if !self.is_running() {
            return Err(self.not_running());
        }
        self.control
            .signal(signal, crate::leash::scope_of(signal))
            .await
            .map_err(SessionError::control)
    }

    fn not_running(&self) -> SessionError {
        SessionError::ProcessNotRunning {
            session: self.session.clone(),
            process: self.id().clone(),
        }
    }

    fn replaced(&self) -> SessionError {
        SessionError::ProcessReplaced {
            session: self.session.clone(),
            process: self.id().clone(),
        }
    }
}
