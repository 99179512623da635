//! Managed processes: long-running programs of a session, identified by an id.
//!
//! One client at a time is attached to stdin and stdout; others wait. Callers restart processes.

mod attach;
mod follow;
mod lifecycle;
mod logs;
mod preview;
mod stop;
mod table;

use std::sync::Arc;

use boxwood_api::{ProcessExit, ProcessId, ProcessInfo, ProcessSpec, ProcessStatus, SessionId};
use boxwood_backend::ProcessControl;
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};

use crate::program::{Program, scope_of};
use crate::quota::KillCount;
use crate::session::activity::Activity;
use crate::{Result, SessionError};

pub use attach::{Attachable, Attachment};
pub(crate) use follow::{Start, follow_process};
pub(crate) use lifecycle::{check_argv, not_found, start, stop, terminate};
pub(crate) use table::ProcessTable;

/// What a start does if a process with that id is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Stops and replaces it.
    Running,
    /// Fails.
    Refuse,
}

pub(crate) struct Managed {
    session: SessionId,
    spec: ProcessSpec,
    started_at: Timestamp,
    quota_kills: KillCount,
    program: Program,
    activity: Arc<Activity>,
    /// Set when the process has ended and its output has been read.
    end: watch::Sender<Option<ProcessExit>>,
    /// One permit for the attached client. Closed when the process is stopped or replaced.
    attachment: Arc<Semaphore>,
}

impl Managed {
    pub(crate) fn id(&self) -> &ProcessId {
        &self.spec.process_id
    }

    pub(crate) fn is_running(&self) -> bool {
        self.end.borrow().is_none()
    }

    /// `None` while it runs. Decides which ended process is forgotten first.
    pub(crate) fn ended_at(&self) -> Option<Timestamp> {
        self.end.borrow().as_ref().map(|ended| ended.exited_at)
    }

    pub(crate) async fn exited(&self) -> ProcessExit {
        let mut ended = self.end.subscribe();
        // The sender is part of `self`, so the channel cannot close.
        let ended = ended.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|ended| ended.clone());
        ended.unwrap_or_else(|| ProcessExit {
            exit_code: None,
            exited_at: Timestamp::now(),
            reason: None,
        })
    }

    pub(crate) fn info(&self) -> ProcessInfo {
        let ended = self.end.borrow().clone();
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
            exited_at: ended.as_ref().map(|ended| ended.exited_at),
            exit_code: ended.as_ref().and_then(|ended| ended.exit_code),
            reason: ended.and_then(|ended| ended.reason),
            stderr_preview: self.stderr_preview(),
        }
    }

    pub(crate) fn control(&self) -> Arc<dyn ProcessControl> {
        Arc::clone(&self.program.control)
    }

    pub(crate) async fn signal(&self, signal: i32) -> Result<()> {
        if !self.is_running() {
            return Err(self.not_running());
        }
        let sent = self.program.control.signal(signal, scope_of(signal)).await;
        sent.map_err(SessionError::control)
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
