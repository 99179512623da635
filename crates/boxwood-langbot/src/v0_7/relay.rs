//! Authorizes clients that attach to a process of a workspace.

use std::sync::Arc;

use boxwood_api::{ProcessId, SessionId};
use boxwood_session::Attachable;
use http::{HeaderMap, HeaderName};

use super::admission;
use super::generations::CurrentPlacement;
use super::instance::{Enrollment, Instance, InstanceGate, single_header};
use super::placement::{Placement, Workspace};
use crate::error::denied;
use crate::params::is_python_space;
use crate::{ActionError, LangBot};

const WORKSPACE: HeaderName = HeaderName::from_static("x-langbot-workspace-id");
const GENERATION: HeaderName = HeaderName::from_static("x-langbot-placement-generation");

const MAX_WORKSPACE_CHARS: usize = 256;

/// A process to attach to, for as long as the placement is the current one.
pub struct RelayAccess {
    pub attachable: Attachable,
    pub placement: CurrentPlacement,
}

pub enum RelayRefusal {
    /// Wrong instance, workspace, generation or session. The response must not say which.
    Unauthorized,
    Error(ActionError),
}

impl LangBot {
    /// Checks whether a client may attach to a process. `None` if it is not a client of SDK 0.7.
    pub async fn authorize_relay(
        self: &Arc<Self>,
        headers: &HeaderMap,
        session: &SessionId,
        process: &ProcessId,
    ) -> Option<Result<RelayAccess, RelayRefusal>> {
        if !InstanceGate::is_v0_7(headers) {
            return None;
        }
        Some(authorize(self, headers, session, process).await)
    }
}

async fn authorize(
    langbot: &Arc<LangBot>,
    headers: &HeaderMap,
    session: &SessionId,
    process: &ProcessId,
) -> Result<RelayAccess, RelayRefusal> {
    let state = &langbot.v0_7;
    let instance = state
        .gate
        .authenticate(headers, Enrollment::KnownOnly)
        .ok_or(RelayRefusal::Unauthorized)?;
    let placement = placement(headers, &instance).ok_or(RelayRefusal::Unauthorized)?;
    let current = state
        .generations
        .current(placement)
        .map_err(|_| RelayRefusal::Unauthorized)?;
    let settings = state.settings();
    if settings.policy.required {
        let grant = admission::require(langbot, &settings, placement)
            .await
            .map_err(RelayRefusal::Error)?;
        if grant.max_managed_processes == 0 {
            return Err(RelayRefusal::Error(denied(
                "Sandbox admission grant does not permit managed process relay",
            )));
        }
    }
    if !placement.owns(session) {
        return Err(RelayRefusal::Unauthorized);
    }
    let attachable = langbot
        .sessions
        .check_attachable(session, process)
        .map_err(|error| RelayRefusal::Error(error.into()))?;
    Ok(RelayAccess {
        attachable,
        placement: current,
    })
}

fn placement(headers: &HeaderMap, instance: &Instance) -> Option<Placement> {
    let text = |name| {
        let text = std::str::from_utf8(single_header(headers, name)?).ok()?;
        Some(text.trim_matches(is_python_space))
    };
    let (workspace, generation) = (text(&WORKSPACE)?, text(&GENERATION)?);
    if workspace.is_empty() || workspace.chars().count() > MAX_WORKSPACE_CHARS {
        return None;
    }
    let number: u64 = generation.parse().ok()?;
    // Only the canonical spelling: no sign, no leading zeros.
    if number == 0 || number.to_string() != generation {
        return None;
    }
    Some(Placement::new(
        Workspace::new(instance.as_str(), workspace),
        number,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_has_only_one_spelling() {
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
