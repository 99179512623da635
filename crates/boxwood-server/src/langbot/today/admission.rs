//! Grants at work: who is admitted, and which sessions go with a change of mind.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boxwood_api::{ProcessStatus, SessionId};
use jiff::{SignedDuration, Timestamp};

use super::grants::{Grant, Keep};
use super::policy::MANAGED_SESSION;
use super::state::Settings;
use super::tenancy::{Placement, Workspace, is_tenants};
use crate::http::App;
use crate::langbot::{Fault, calls};

const TAKEN_AWAY: &str = "its admission grant was taken away";
const RUN_OUT: &str = "its admission grant ran out";

/// How long something may be over before it is noticed without anybody asking.
const ROUND: Duration = Duration::from_secs(5);

pub(super) async fn require(
    app: &Arc<App>,
    settings: &Settings,
    placement: Placement,
) -> Result<Grant, Fault> {
    let state = &app.langbot.today;
    state.readiness.require(app, settings).await?;
    state
        .grants
        .require(placement, &settings.policy, Timestamp::now())
}

/// Removes the sessions of a workspace that its new grant does not cover.
pub(super) async fn drop_sessions(app: &App, workspace: Workspace, keep: Keep) {
    let kept: Option<SessionId> = match keep {
        Keep::Everything => return,
        Keep::Managed(placement) => placement.physical(MANAGED_SESSION).ok(),
        Keep::Nothing => None,
    };
    let prefix = workspace.prefix();
    let going = app
        .sessions
        .ids()
        .into_iter()
        .filter(|id| id.as_str().starts_with(&prefix) && kept.as_ref() != Some(id));
    calls::delete_all(app, going, TAKEN_AWAY).await;
}

/// Looks after what is over and nobody asks about: grants that ran out, processes that ended. Started
/// with the first connection of today's dialect, ends with the daemon.
pub(super) fn start_janitor(app: &Arc<App>) {
    if app
        .langbot
        .today
        .janitor_is_there
        .swap(true, Ordering::AcqRel)
    {
        return;
    }
    let app = Arc::downgrade(app);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(ROUND).await;
            let Some(app) = app.upgrade() else {
                return;
            };
            expire_grants(&app).await;
            forget_processes(&app).await;
        }
    });
}

async fn expire_grants(app: &App) {
    for workspace in app.langbot.today.grants.expire(Timestamp::now()) {
        let prefix = workspace.prefix();
        let going = app
            .sessions
            .ids()
            .into_iter()
            .filter(|id| id.as_str().starts_with(&prefix));
        calls::delete_all(app, going, RUN_OUT).await;
    }
}

/// Ended processes stay for a while so that one can ask how they ended, and not for ever.
async fn forget_processes(app: &App) {
    let limits = app.langbot.today.settings().limits;
    let kept_for = i64::try_from(limits.completed_process_retention_sec).unwrap_or(i64::MAX);
    let deadline = Timestamp::now() - SignedDuration::from_secs(kept_for);
    let mut ended = Vec::new();
    for session in app.sessions.list() {
        if !is_tenants(&session.session_id) {
            continue;
        }
        for process in app
            .sessions
            .processes(&session.session_id)
            .unwrap_or_default()
        {
            if process.status == ProcessStatus::Exited
                && let Some(at) = process.exited_at
            {
                ended.push((at, session.session_id.clone(), process.process_id));
            }
        }
    }
    ended.sort_by_key(|(at, ..)| *at);
    let most = usize::try_from(limits.max_completed_processes).unwrap_or(usize::MAX);
    let too_many = ended.len().saturating_sub(most);
    for (place, (at, session, process)) in ended.into_iter().enumerate() {
        if place >= too_many && at > deadline {
            continue;
        }
        // One that was replaced meanwhile runs, and stays.
        let still_over = app
            .sessions
            .process(&session, &process)
            .is_ok_and(|info| info.exited_at == Some(at));
        if still_over && let Err(error) = app.sessions.stop_process(&session, &process).await {
            tracing::debug!(%session, %process, %error, "an ended process was not forgotten");
        }
    }
}
