//! Checks admission grants, and removes the sessions and processes that they no longer cover.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_api::{ProcessStatus, SessionId};
use jiff::{SignedDuration, Timestamp};

pub(crate) mod grants;
pub(crate) mod managed_spec;
pub(crate) mod policy;
pub(crate) mod readiness;

use super::placement::{Placement, Workspace, is_workspace_session};
use super::state::Settings;
use crate::models::AdmissionGrant;
use crate::{ActionError, LangBot, session_calls};
use grants::Keep;
use policy::MANAGED_SESSION;

const REVOKED: &str = "its admission grant was replaced or revoked";
const EXPIRED: &str = "its admission grant expired";

/// Interval of the cleanup.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) async fn require(
    langbot: &Arc<LangBot>,
    settings: &Settings,
    placement: Placement,
) -> Result<AdmissionGrant, ActionError> {
    let state = &langbot.v0_7;
    state.readiness.require(langbot, settings).await?;
    state
        .grants
        .require(placement, &settings.policy, Timestamp::now())
}

/// Removes the sessions of a workspace that its new grant does not cover.
pub(crate) async fn drop_sessions(langbot: &LangBot, workspace: Workspace, keep: Keep) {
    let kept_session: Option<SessionId> = match keep {
        Keep::Everything => return,
        Keep::Managed(placement) => placement.physical(MANAGED_SESSION).ok(),
        Keep::Nothing => None,
    };
    delete_sessions(langbot, workspace, kept_session.as_ref(), REVOKED).await;
}

async fn delete_sessions(
    langbot: &LangBot,
    workspace: Workspace,
    kept_session: Option<&SessionId>,
    reason: &str,
) {
    let prefix = workspace.prefix();
    let mut ids = langbot.sessions.ids();
    ids.retain(|id| id.as_str().starts_with(&prefix) && Some(id) != kept_session);
    session_calls::delete_all(langbot, ids, reason).await;
}

/// Starts the periodic removal of expired grants and ended processes, with the first connection of SDK 0.7.
pub(crate) fn start_cleanup(langbot: &Arc<LangBot>) {
    if langbot.v0_7.cleanup_started.swap(true, Ordering::AcqRel) {
        return;
    }
    let langbot = Arc::downgrade(langbot);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(CLEANUP_INTERVAL).await;
            let Some(langbot) = langbot.upgrade() else {
                return;
            };
            expire_grants(&langbot).await;
            forget_processes(&langbot).await;
        }
    });
}

async fn expire_grants(langbot: &LangBot) {
    for workspace in langbot.v0_7.grants.expire(Timestamp::now()) {
        delete_sessions(langbot, workspace, None, EXPIRED).await;
    }
}

/// Ended processes are kept for a while, so that clients can read their exit status.
async fn forget_processes(langbot: &LangBot) {
    let limits = langbot.v0_7.settings().limits;
    let retention_sec = i64::try_from(limits.completed_process_retention_sec).unwrap_or(i64::MAX);
    let deadline = Timestamp::now() - SignedDuration::from_secs(retention_sec);
    let sessions = &langbot.sessions;
    let mut ended = Vec::new();
    for session in sessions.ids().into_iter().filter(is_workspace_session) {
        for process in sessions.processes(&session).unwrap_or_default() {
            if process.status == ProcessStatus::Exited
                && let Some(exited_at) = process.exited_at
            {
                ended.push((exited_at, session.clone(), process.process_id));
            }
        }
    }
    ended.sort_by_key(|(exited_at, ..)| *exited_at);
    let max_completed = usize::try_from(limits.max_completed_processes).unwrap_or(usize::MAX);
    let too_many = ended.len().saturating_sub(max_completed);
    for (index, (exited_at, session, process)) in ended.into_iter().enumerate() {
        if index >= too_many && exited_at > deadline {
            continue;
        }
        // A process that was restarted meanwhile is kept.
        let current = sessions.process(&session, &process);
        if current.is_ok_and(|info| info.exited_at == Some(exited_at))
            && let Err(error) = sessions.stop_process(&session, &process).await
        {
            tracing::debug!(%session, %process, %error, "failed to remove an ended process");
        }
    }
}
