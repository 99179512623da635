//! Limits what the commands of a session write to directories of the host.
//!
//! The workspace is measured before and after every command, and by a poll that is more frequent while
//! one runs ([`monitor`]). Private workspaces are limited by the kernel and are not measured here.

mod directory;
mod estimate;
mod monitor;
mod walk;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use boxwood_api::{ExecExit, MountMode, Reason, with_causes};
use tokio::sync::Notify;

use crate::session::Session;
use crate::settings::Settings;
use crate::{Result, SessionError};
use directory::Directory;
use estimate::Accuracy;

const MIB: u64 = 1024 * 1024;

/// A tree that takes longer to measure cannot be limited, so commands are refused.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(30);

/// The origin of a write to the files of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A caller of the daemon: the quota applies.
    Client,
    /// The daemon itself, which saves the output of a command and limits its size.
    Daemon,
}

/// The quota state of one session.
#[derive(Default)]
pub(crate) struct Quota {
    /// Writable directories of the host. Set once, when the session starts.
    directories: OnceLock<Vec<Directory>>,
    /// Wakes the poll of an idle session.
    started: Arc<Notify>,
    /// Incremented when a kill begins and again when it is complete.
    kills: AtomicU64,
}

/// The number of kills when a program was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KillCount(u64);

impl Quota {
    /// Read this before the program is started: it can be killed before the start returns.
    pub(crate) fn kill_count(&self) -> KillCount {
        KillCount(self.kills.load(Ordering::Acquire))
    }

    /// Returns true if the programs of the box were killed after, or while, the program was started.
    pub(crate) fn killed_since(&self, start: KillCount) -> bool {
        self.kills.load(Ordering::Acquire) != start.0
    }

    fn workspace(&self) -> Option<&Directory> {
        let mut directories = self.directories.get()?.iter();
        directories.find(|directory| directory.limit.is_some())
    }
}

/// Polls the writable host directories of the session until the session ends.
pub(crate) fn watch(session: &Arc<Session>, settings: &Settings) -> io::Result<()> {
    let quota_mb = session.spec.limits().workspace_quota_mb;
    let limit = (quota_mb > 0).then(|| quota_mb.saturating_mul(MIB));
    let workspace = session.spec.workspace().map(|mount| (mount, limit));
    let extra = session
        .spec
        .extra_mounts()
        .iter()
        .map(|mount| (mount, None));
    let writable = workspace
        .into_iter()
        .chain(extra)
        .filter(|(mount, _)| mount.mode() == MountMode::Rw && mount.source().is_dir);
    let directories = writable
        .map(|(mount, limit)| Directory::new(mount.source(), limit, settings.load.min_free_bytes))
        .collect::<io::Result<Vec<_>>>()?;
    if directories.is_empty() {
        return Ok(());
    }
    let quota = &session.quota;
    if quota.directories.set(directories).is_ok() {
        let polling = monitor::run(
            Arc::downgrade(session),
            Arc::clone(&quota.started),
            settings.quota_poll_interval,
        );
        tokio::spawn(polling);
    }
    Ok(())
}

/// Refuses a command in a workspace that is over its quota.
pub(crate) async fn check_before_exec(session: &Arc<Session>) -> Result<()> {
    session.quota.started.notify_one();
    check(session, "before execution", Accuracy::Command).await
}

/// Refuses a write to a workspace that is over its quota.
///
/// The path does not matter: a symlink in the box can lead any path into the workspace. Output that
/// the daemon saves is exempt, because it explains why a command was killed.
pub(crate) async fn check_before_write(session: &Arc<Session>, writer: Writer) -> Result<()> {
    match writer {
        Writer::Client => check_before_exec(session).await,
        Writer::Daemon => Ok(()),
    }
}

/// Adds a notice to the result if the workspace is over its quota after a command. A failure without
/// another reason gets the reason `disk_quota`.
pub(crate) async fn check_after_exec(session: &Arc<Session>, exit: &mut ExecExit) {
    let unexplained = exit.reason.is_none() && exit.exit_code != Some(0);
    let accuracy = if unexplained {
        Accuracy::Exact
    } else {
        Accuracy::Command
    };
    if let Err(over) = check(session, "after execution", accuracy).await {
        if unexplained {
            exit.reason = Some(Reason::DiskQuota);
        }
        exit.notices.push(over.to_string());
    }
}

async fn check(session: &Session, phase: &'static str, accuracy: Accuracy) -> Result<()> {
    let Some(workspace) = session.quota.workspace() else {
        return Ok(());
    };
    let unmeasured = |why: String| SessionError::Unmeasured {
        session: session.id.clone(),
        host_path: workspace.host_path.clone(),
        why,
    };
    let checking = tokio::time::timeout(MEASURE_TIMEOUT, workspace.over_limit(accuracy)).await;
    let used = match checking {
        Ok(Ok(None)) => return Ok(()),
        Ok(Ok(Some(used))) => used,
        Ok(Err(error)) => return Err(unmeasured(with_causes(&error))),
        Err(_) => {
            let seconds = MEASURE_TIMEOUT.as_secs();
            return Err(unmeasured(format!("it took longer than {seconds} s")));
        }
    };
    Err(SessionError::OverQuota {
        session: session.id.clone(),
        phase,
        used,
        limit: workspace.limit.unwrap_or_default(),
        host_path: workspace.host_path.clone(),
    })
}
