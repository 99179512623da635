//! What both eras ask of the layers below, once their words are understood.
//!
//! Comes in: requests whose session ids are the ones inside. Goes out: answers or faults. Never here:
//! what a client calls things.

use std::time::Duration;

use boxwood_api::{ExecResult, ProcessId, SessionId, SessionInfo, SpecRequest};
use boxwood_policy::{Admission, Origin};
use futures_util::future::join_all;

use super::Fault;
use super::workspace;
use crate::facts;
use crate::http::{App, PATIENCE};

/// A command's answer and the timeout it ran under.
pub(super) struct Executed {
    pub(super) result: ExecResult,
    pub(super) timeout_sec: u64,
}

pub(super) async fn exec(app: &App, request: SpecRequest) -> Result<Executed, Fault> {
    // Before anything is made: a session for no command would only be in the way.
    if request.cmd.trim().is_empty() {
        return Err(Fault::validation("cmd must not be empty"));
    }
    let admission = judge(app, request).await?;
    let timeout = admission.exec.timeout();
    let started = std::time::Instant::now();
    let result = within(timeout + app.start_patience, app.sessions.exec(admission)).await?;
    app.metrics.exec(started.elapsed());
    Ok(Executed {
        result,
        timeout_sec: timeout.as_secs(),
    })
}

/// The same in a session that is there already.
pub(super) async fn exec_existing(app: &App, request: SpecRequest) -> Result<ExecResult, Fault> {
    let admission = judge(app, request).await?;
    let limit = admission.exec.timeout() + PATIENCE;
    within(limit, app.sessions.exec_existing(admission)).await
}

pub(super) async fn create(app: &App, request: SpecRequest) -> Result<SessionInfo, Fault> {
    let admission = judge(app, request).await?;
    within(
        app.start_patience,
        app.sessions.get_or_create(admission.spec),
    )
    .await
}

pub(super) async fn delete(app: &App, id: &SessionId) -> Result<(), Fault> {
    within(PATIENCE, app.sessions.delete(id, "requested")).await
}

/// All at the same time. One that is gone already, or goes badly, does not keep the others.
pub(super) async fn delete_all(app: &App, ids: impl IntoIterator<Item = SessionId>, why: &str) {
    let deleting = ids.into_iter().map(async |id| {
        if let Err(error) = app.sessions.delete(&id, why).await {
            tracing::debug!(session = %id, %error, "a session was not deleted");
        }
    });
    join_all(deleting).await;
}

pub(super) async fn stop_process(
    app: &App,
    id: &SessionId,
    process: &ProcessId,
) -> Result<(), Fault> {
    within(PATIENCE, app.sessions.stop_process(id, process)).await?;
    Ok(())
}

pub(super) async fn start_process(
    app: &App,
    id: &SessionId,
    spec: boxwood_api::ProcessSpec,
) -> Result<boxwood_api::ProcessInfo, Fault> {
    let start = app
        .sessions
        .start_process(id, spec, boxwood_session::Replace::Running);
    within(PATIENCE, start).await
}

/// The door: facts, then policy.
async fn judge(app: &App, mut request: SpecRequest) -> Result<Admission, Fault> {
    request.backend = app.langbot.required_backend(app)?;
    let mut facts = facts::gather(&request, &app.skills).await;
    // Only a workspace that is not there costs a second look.
    if request.host_path.is_some() && facts.host_path.is_none() {
        workspace::prepare(&request, &app.rules).await?;
        facts = facts::gather(&request, &app.skills).await;
    }
    Ok(boxwood_policy::admit(
        &request,
        Origin::LangBotPlatform,
        &facts,
        &app.rules,
    )?)
}

/// Every request gets an answer, also from a backend that does not come back.
async fn within<T, E: Into<Fault>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(limit, work).await {
        Ok(outcome) => outcome.map_err(Into::into),
        Err(_) => Err(Fault::new(
            "BoxError",
            format!("the backend did not answer within {} s", limit.as_secs()),
        )),
    }
}
