//! Calls to sessions that both wire formats use, with admission and time limits.

use std::time::{Duration, Instant};

use boxwood_api::{ExecResult, ProcessId, ProcessSpec, SessionId, SessionInfo, SpecRequest};
use boxwood_policy::{Admission, Origin};
use boxwood_session::{Replace, SessionError};
use futures_util::future::join_all;
use serde_json::Value;

use crate::error::internal;
use crate::{ActionError, LangBot, results, workspace};

/// Runs a command, in a new session if there is none. Returns the response.
pub(crate) async fn exec(langbot: &LangBot, request: SpecRequest) -> Result<Value, ActionError> {
    // Checked before the session is created.
    if request.cmd.trim().is_empty() {
        return Err(ActionError::validation("cmd must not be empty"));
    }
    let admission = admit(langbot, request).await?;
    let timeout = admission.exec.timeout();
    let started = Instant::now();
    let limit = timeout + langbot.start_timeout;
    let result = within(limit, langbot.sessions.exec(admission)).await?;
    (langbot.record_exec)(started.elapsed());
    Ok(results::exec(&result, timeout.as_secs()))
}

/// Runs a command in a session that exists already.
pub(crate) async fn exec_existing(
    langbot: &LangBot,
    request: SpecRequest,
) -> Result<ExecResult, ActionError> {
    let admission = admit(langbot, request).await?;
    let limit = admission.exec.timeout() + langbot.backend_timeout;
    within(limit, langbot.sessions.exec_existing(admission)).await
}

pub(crate) async fn create(
    langbot: &LangBot,
    request: SpecRequest,
) -> Result<SessionInfo, ActionError> {
    let admission = admit(langbot, request).await?;
    let creating = langbot.sessions.get_or_create(admission.spec);
    within(langbot.start_timeout, creating).await
}

pub(crate) async fn delete(langbot: &LangBot, id: &SessionId) -> Result<(), ActionError> {
    let deleting = langbot.sessions.delete(id, "requested");
    within(langbot.backend_timeout, deleting).await
}

/// Deletes sessions concurrently. A failure is logged and does not affect the others. A removal that takes longer than
/// the time limit continues in the background.
pub(crate) async fn delete_all(
    langbot: &LangBot,
    ids: impl IntoIterator<Item = SessionId>,
    reason: &str,
) {
    let deleting = ids.into_iter().map(async |id| {
        let deleting = async {
            match langbot.sessions.delete(&id, reason).await {
                // It has ended in the meantime.
                Ok(()) | Err(SessionError::NotFound { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        };
        if let Err(error) = within(langbot.backend_timeout, deleting).await {
            tracing::warn!(session = %id, %error, "failed to delete a session");
        }
    });
    join_all(deleting).await;
}

pub(crate) async fn stop_process(
    langbot: &LangBot,
    id: &SessionId,
    process: &ProcessId,
) -> Result<(), ActionError> {
    let stopping = langbot.sessions.stop_process(id, process);
    within(langbot.backend_timeout, stopping).await?;
    Ok(())
}

pub(crate) async fn start_process(
    langbot: &LangBot,
    id: &SessionId,
    spec: ProcessSpec,
) -> Result<Value, ActionError> {
    let starting = langbot.sessions.start_process(id, spec, Replace::Running);
    let info = within(langbot.backend_timeout, starting).await?;
    Ok(results::process(&info))
}

/// Gathers the facts, creates a missing workspace, and applies policy.
async fn admit(langbot: &LangBot, mut request: SpecRequest) -> Result<Admission, ActionError> {
    request.backend = langbot.required_backend()?;
    let mut facts = (langbot.gather_facts)(&request, &langbot.skills).await;
    if request.host_path.is_some() && facts.host_path.is_none() {
        workspace::prepare(&request, &langbot.rules).await?;
        facts = (langbot.gather_facts)(&request, &langbot.skills).await;
    }
    Ok(boxwood_policy::admit(
        &request,
        Origin::LangBotPlatform,
        &facts,
        &langbot.rules,
    )?)
}

/// Fails after `limit`, so that a request gets a response even if the backend hangs.
async fn within<T, E: Into<ActionError>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, ActionError> {
    match tokio::time::timeout(limit, work).await {
        Ok(outcome) => outcome.map_err(Into::into),
        Err(_) => Err(internal(format!(
            "the backend did not answer within {} s",
            limit.as_secs()
        ))),
    }
}
