//! Who may attach to a process of a workspace.
//!
//! Comes in: the headers of a handshake and the session in its path. Goes out: leave to attach for
//! as long as the placement is the newest. Never here: the lines themselves.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use boxwood_api::{ProcessId, SessionId};
use boxwood_session::Attachable;

use super::fence::Standing;
use super::instance::{Acquaint, Gate, Instance, only};
use super::tenancy::{Placement, Workspace};
use super::{admission, grants};
use crate::http::App;
use crate::langbot::Fault;
use crate::langbot::python::is_python_space;
use crate::langbot::relay::refused_with as refused;

const WORKSPACE: HeaderName = HeaderName::from_static("x-langbot-workspace-id");
const GENERATION: HeaderName = HeaderName::from_static("x-langbot-placement-generation");

const MAX_WORKSPACE_CHARS: usize = 256;

/// A process to attach to, and how long one may.
pub(crate) struct Leave {
    pub(crate) attachable: Attachable,
    pub(crate) standing: Standing,
}

/// `None` when it is not today's client that comes.
pub(crate) async fn judge(
    app: &Arc<App>,
    headers: &HeaderMap,
    session: &SessionId,
    process: &ProcessId,
) -> Option<Result<Leave, Response>> {
    if !Gate::speaks_today(headers) {
        return None;
    }
    Some(leave(app, headers, session, process).await)
}

async fn leave(
    app: &Arc<App>,
    headers: &HeaderMap,
    session: &SessionId,
    process: &ProcessId,
) -> Result<Leave, Response> {
    let state = &app.langbot.today;
    let instance = state
        .gate
        .judge(headers, Acquaint::Never)
        .ok_or_else(unauthorized)?;
    let placement = placement(headers, &instance).ok_or_else(unauthorized)?;
    let standing = state.fence.current(placement).map_err(|_| unauthorized())?;
    let settings = state.settings();
    if settings.policy.required {
        let grant = admission::require(app, &settings, placement).await;
        let permitted = grant.and_then(|grant| {
            if grant.max_managed_processes == 0 {
                Err(grants::denied(
                    "Sandbox admission grant does not permit managed process relay",
                ))
            } else {
                Ok(())
            }
        });
        permitted.map_err(|fault| refused(&fault))?;
    }
    if !placement.owns(session) {
        return Err(unauthorized());
    }
    let attachable = app
        .sessions
        .check_attachable(session, process)
        .map_err(|error| refused(&Fault::from(error)))?;
    Ok(Leave {
        attachable,
        standing,
    })
}

fn placement(headers: &HeaderMap, instance: &Instance) -> Option<Placement> {
    let text = |name| {
        let text = std::str::from_utf8(only(headers, name)?).ok()?;
        Some(text.trim_matches(is_python_space))
    };
    let (workspace, generation) = (text(&WORKSPACE)?, text(&GENERATION)?);
    if workspace.is_empty() || workspace.chars().count() > MAX_WORKSPACE_CHARS {
        return None;
    }
    let number: u64 = generation.parse().ok()?;
    // One spelling only: no sign, no zeros in front.
    if number == 0 || number.to_string() != generation {
        return None;
    }
    Some(Placement::new(
        Workspace::new(instance.as_str(), workspace),
        number,
    ))
}

/// Who may not speak learns nothing else.
pub(super) fn unauthorized() -> Response {
    (StatusCode::UNAUTHORIZED, "Unauthorized").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_read_in_one_spelling_only() {
        let instance = Instance::new("platform").expect("a name");
        let check = |workspace: &[u8], generation: &str, good: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(WORKSPACE, workspace.try_into().expect("value"));
            headers.insert(GENERATION, generation.parse().expect("value"));
            assert_eq!(
                placement(&headers, &instance).is_some(),
                good,
                "{generation}"
            );
        };
        check(b"w", "1", true);
        check("ä".as_bytes(), " 7 ", true);
        check("ä".repeat(256).as_bytes(), "7", true);
        check("ä".repeat(257).as_bytes(), "7", false);
        for wrong in [
            "",
            "0",
            "01",
            "+1",
            "-1",
            "1.0",
            "1_0",
            "x",
            "99999999999999999999",
        ] {
            check(b"w", wrong, false);
        }
        check(b" ", "1", false);
        check(b"\xff", "1", false);
        let twice = {
            let mut headers = HeaderMap::new();
            headers.append(WORKSPACE, "w".parse().expect("value"));
            headers.append(WORKSPACE, "v".parse().expect("value"));
            headers.insert(GENERATION, "1".parse().expect("value"));
            headers
        };
        assert!(placement(&twice, &instance).is_none());
        assert!(placement(&HeaderMap::new(), &instance).is_none());
    }
}
