//! Runs commands of agent tools in boxes of this daemon.

use std::time::Duration;

use async_trait::async_trait;
use boxwood_agent::{Answer, Begun, BoxesError, Command, Running};
use boxwood_api::{ErrorCode, SessionId, SpecRequest};
use boxwood_policy::Admission;
use boxwood_session::{ExecEvent, Resume, Sessions, Stdio, StreamedExec};
use tokio::time::{Instant, timeout_at};

use super::DaemonBoxes;
use crate::http::{ApiError, ApiResult, BACKEND_TIMEOUT, with_timeout};

pub(super) async fn begin(boxes: &DaemonBoxes, spec: SpecRequest) -> ApiResult<Begun> {
    if spec.stdin.is_some() {
        return Err(ApiError::validation(
            "a tool's command has no standard input",
        ));
    }
    let admission = boxes.admit(spec).await?;
    follow(&boxes.sessions, admission, boxes.start_timeout).await
}

/// Starts an admitted command. Dropping the result kills it.
pub(crate) async fn follow(
    sessions: &Sessions,
    admission: Admission,
    start_timeout: Duration,
) -> ApiResult<Begun> {
    let session_id = admission.spec.session().clone();
    let notices = admission.exec.notices().to_vec();
    let timeout = admission.exec.timeout();
    let starting = sessions.stream(admission, Stdio::Output, Resume::Never);
    let exec = with_timeout(start_timeout, starting).await?;
    let backend = sessions.detail(&session_id);
    Ok(Begun {
        // If the session is already gone, the command's exit reports it.
        backend: backend
            .map(|detail| detail.session.backend_name)
            .unwrap_or_default(),
        command: Box::new(FollowedExec {
            exec,
            // The session enforces the timeout; this covers a backend that hangs.
            until: Instant::now() + timeout + BACKEND_TIMEOUT,
            session_id: session_id.clone(),
        }),
        session_id,
        notices,
        timeout,
    })
}

/// Dropping it kills the command and its child processes.
struct FollowedExec {
    exec: StreamedExec,
    until: Instant,
    session_id: SessionId,
}

#[async_trait]
impl Command for FollowedExec {
    async fn next(&mut self) -> Answer<Running> {
        match timeout_at(self.until, self.exec.next()).await {
            Ok(Some(ExecEvent::Stdout(bytes))) => Ok(Running::Stdout(bytes)),
            Ok(Some(ExecEvent::Stderr(bytes))) => Ok(Running::Stderr(bytes)),
            Ok(Some(ExecEvent::Exited(exit))) => Ok(Running::Exited(exit)),
            // The event stream ended without an exit.
            Ok(None) => Err(BoxesError {
                code: ErrorCode::SessionGone,
                message: format!(
                    "the daemon detached from session {} while the command was running",
                    self.session_id
                ),
                hint: Some("the daemon is stopping; call again in a moment".to_owned()),
                reached: true,
            }),
            Err(_) => Err(BoxesError {
                code: ErrorCode::Timeout,
                message: format!(
                    "the command in session {} did not end after its timeout",
                    self.session_id
                ),
                hint: Some("delete the session and call again".to_owned()),
                reached: true,
            }),
        }
    }
}
