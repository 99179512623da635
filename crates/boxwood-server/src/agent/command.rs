//! A command in one of the daemon's boxes, followed by a tool.

use std::time::Duration;

use boxwood_agent::{Answer, Begun, BoxesError, Command, Running};
use boxwood_api::{ErrorCode, ExecExit, SessionId, SpecRequest};
use boxwood_policy::{Admission, Denial};
use boxwood_session::{LiveEvent, Resume, Sessions, Stdio};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::DaemonBoxes;
use crate::http::{ApiError, ApiResult, PATIENCE, within};

pub(super) async fn begin(boxes: &DaemonBoxes, spec: SpecRequest) -> ApiResult<Begun> {
    if spec.cmd.trim().is_empty() {
        return Err(Denial::EmptyCommand.into());
    }
    if spec.stdin.is_some() {
        return Err(ApiError::validation(
            "a tool's command has no standard input",
        ));
    }
    let admission = boxes.judge(spec).await?;
    follow(&boxes.sessions, admission, boxes.start_patience).await
}

/// Starts a command that was admitted, with an eye on it. Dropping what comes back kills it.
pub(crate) async fn follow(
    sessions: &Sessions,
    admission: Admission,
    start_patience: Duration,
) -> ApiResult<Begun> {
    let session_id = admission.spec.session().clone();
    let notices = admission.exec.notices().to_vec();
    let timeout = admission.exec.timeout();
    let starting = sessions.stream(admission, Stdio::Output, Resume::Never);
    let live = within(start_patience, starting).await?;
    let (_, events) = live.split();
    let backend = sessions.detail(&session_id);
    Ok(Begun {
        // A session that went away at once is told by the command's own end.
        backend: backend
            .map(|detail| detail.session.backend_name)
            .unwrap_or_default(),
        command: Box::new(Followed {
            events,
            // The session ends the command at its own limit; this is for a backend that does not come back.
            until: Instant::now() + timeout + PATIENCE,
            session_id: session_id.clone(),
        }),
        session_id,
        notices,
        timeout,
    })
}

/// Dropping the receiver kills the command's tree.
struct Followed {
    events: mpsc::Receiver<LiveEvent>,
    until: Instant,
    session_id: SessionId,
}

impl Command for Followed {
    fn next(&mut self) -> BoxFuture<'_, Answer<Running>> {
        async {
            match timeout_at(self.until, self.events.recv()).await {
                Ok(Some(LiveEvent::Stdout(bytes))) => Ok(Running::Stdout(bytes)),
                Ok(Some(LiveEvent::Stderr(bytes))) => Ok(Running::Stderr(bytes)),
                Ok(Some(LiveEvent::Exited {
                    exit_code,
                    status,
                    reason,
                    duration_ms,
                    notices,
                })) => Ok(Running::Exited(ExecExit {
                    exit_code,
                    status,
                    reason,
                    duration_ms,
                    notices,
                })),
                Ok(None) => Err(self.lost()),
                Err(_) => Err(self.stuck()),
            }
        }
        .boxed()
    }
}

impl Followed {
    /// The end of the events without the command's.
    fn lost(&self) -> BoxesError {
        BoxesError {
            code: ErrorCode::SessionGone,
            message: format!(
                "the daemon let go of session {} while the command ran",
                self.session_id
            ),
            hint: Some("the daemon is stopping; call again in a moment".to_owned()),
            reached: true,
        }
    }

    fn stuck(&self) -> BoxesError {
        BoxesError {
            code: ErrorCode::Timeout,
            message: format!(
                "the command in session {} did not end although its time was over",
                self.session_id
            ),
            hint: Some("delete the session and call again".to_owned()),
            reached: true,
        }
    }
}
