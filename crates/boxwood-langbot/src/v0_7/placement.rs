//! Maps session ids of a workspace (*logical*) to session ids of the daemon (*physical*) and back.
//!
//! LangBot computes physical ids itself for the relay, so the mapping must match exactly.

use boxwood_api::SessionId;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::ActionError;
use crate::error::value_error;
use crate::params::{is_lower_hex, is_python_space};

/// A generation of a workspace of a LangBot instance. Sessions belong to a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) workspace: Workspace,
    pub(crate) generation: u64,
}

/// A workspace, independent of its generation. Stored as a digest, because names have no length limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Workspace([u8; 32]);

impl Workspace {
    pub(crate) fn new(instance: &str, name: &str) -> Self {
        let mut digest = Sha256::new();
        digest.update(instance.as_bytes());
        digest.update([0]);
        digest.update(name.as_bytes());
        Self(digest.finalize().into())
    }

    /// `ws-` and 24 hex digits. The same for every generation, so that files are kept.
    pub(crate) fn namespace(&self) -> String {
        format!("ws-{}", HEXLOWER.encode(&self.0[..12]))
    }

    /// Prefix of all its session ids, of every generation.
    pub(crate) fn prefix(&self) -> String {
        format!("{}-", self.namespace())
    }
}

impl Placement {
    pub(crate) fn new(workspace: Workspace, generation: u64) -> Self {
        Self {
            workspace,
            generation,
        }
    }

    /// Prefix of its session ids.
    pub(crate) fn prefix(&self) -> String {
        format!("{}-g{}-", self.workspace.namespace(), self.generation)
    }

    /// Logical ids that differ only in characters that a physical id cannot have are the same session, as in
    /// LangBot.
    pub(crate) fn physical(&self, logical: &str) -> Result<SessionId, ActionError> {
        let logical = logical.trim_matches(is_python_space);
        if logical.is_empty() {
            return Err(value_error("Box session_id must not be empty"));
        }
        let is_unsafe = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '.' | '-');
        let parts = logical.split(is_unsafe).filter(|part| !part.is_empty());
        let safe = parts.collect::<Vec<_>>().join("-");
        let safe = safe.trim_matches('-');
        if safe.is_empty() {
            return Err(value_error("Box session_id must contain a valid character"));
        }
        SessionId::new(&format!("{}{safe}", self.prefix()))
            .map_err(|error| value_error(error.to_string()))
    }

    pub(crate) fn owns(&self, session: &SessionId) -> bool {
        session
            .as_str()
            .strip_prefix(&self.prefix())
            .is_some_and(|rest| !rest.is_empty())
    }

    /// The ids of other placements are returned unchanged.
    pub(crate) fn logical<'a>(&self, physical: &'a str) -> &'a str {
        physical.strip_prefix(&self.prefix()).unwrap_or(physical)
    }
}

/// Returns true if a session belongs to a workspace.
pub(crate) fn is_workspace_session(session: &SessionId) -> bool {
    let Some(rest) = session.as_str().strip_prefix("ws-") else {
        return false;
    };
    let Some((digest, rest)) = rest.split_at_checked(24) else {
        return false;
    };
    let Some((generation, name)) = rest.strip_prefix("-g").and_then(|it| it.split_once('-')) else {
        return false;
    };
    is_lower_hex(digest)
        && !generation.is_empty()
        && generation.bytes().all(|byte| byte.is_ascii_digit())
        && !name.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generated with the published package.
    const GOLDEN: &str = include_str!("testdata/physical_ids.json");

    fn placement(instance: &str, workspace: &str, generation: u64) -> Placement {
        Placement::new(Workspace::new(instance, workspace), generation)
    }

    #[test]
    fn physical_ids_match_those_of_langbot() {
        let golden: Vec<(String, String, u64, String, String)> =
            serde_json::from_str(GOLDEN).expect("golden values");
        assert!(golden.len() > 50);
        for (instance, workspace, generation, logical, expected) in golden {
            let got = match placement(&instance, &workspace, generation).physical(&logical) {
                Ok(id) => id.to_string(),
                Err(error) => format!("!{}", error.message()),
            };
            assert_eq!(got, expected, "{instance} {workspace} {logical:?}");
        }
    }

    #[test]
    fn a_generation_is_not_a_prefix_of_another() {
        let (one, eleven) = (placement("i", "w", 1), placement("i", "w", 11));
        let id = eleven.physical("1-x").expect("id");
        assert!(eleven.owns(&id) && !one.owns(&id));
        assert!(id.as_str().starts_with(&one.workspace.prefix()));
        assert_eq!(one.logical(id.as_str()), id.as_str());
    }

    #[test]
    fn ids_that_would_be_too_long_are_refused() {
        let error = placement("i", "w", 1).physical(&"x".repeat(300));
        assert_eq!(error.expect_err("too long").class(), "ValueError");
    }

    #[test]
    fn sessions_of_other_clients_belong_to_no_workspace() {
        let check = |id: &str, expected: bool| {
            let session = SessionId::new(id).expect("id");
            assert_eq!(is_workspace_session(&session), expected, "{id}");
        };
        check("ws-e882dffcfd5afa9cc1d5378c-g1-global", true);
        check("ws-e882dffcfd5afa9cc1d5378c-g12-a-b", true);
        check("ws-e882dffcfd5afa9cc1d5378c-g-global", false);
        check("ws-e882dffcfd5afa9cc1d5378c-g1-", false);
        check("ws-E882dffcfd5afa9cc1d5378c-g1-x", false);
        check("ws-e882dffcfd5afa9cc1d53-g1-x", false);
        check("ws-工作工作工作工作-g1-x", false);
        check("person_1", false);
    }

    proptest! {
        #[test]
        fn logical_ids_survive_the_round_trip(
            instance in "[A-Za-z0-9][A-Za-z0-9._:-]{0,40}",
            workspace in ".{1,40}",
            generation in 1_u64..,
            logical in "[A-Za-z0-9_.][A-Za-z0-9_.-]{0,40}[A-Za-z0-9_.]",
        ) {
            let placement = placement(&instance, &workspace, generation);
            let physical = placement.physical(&logical).expect("plain ids are fine");
            prop_assert!(placement.owns(&physical));
            prop_assert!(is_workspace_session(&physical));
            prop_assert_eq!(placement.logical(physical.as_str()), logical);
        }

        #[test]
        fn no_logical_id_escapes_its_placement(
            logical in "\\PC{0,60}",
            other in 1_u64..50,
        ) {
            let mine = placement("platform", "mine", 7);
            if let Ok(physical) = mine.physical(&logical) {
                prop_assert!(mine.owns(&physical));
                prop_assert!(!placement("platform", "theirs", other).owns(&physical));
                if other != 7 {
                    prop_assert!(!placement("platform", "mine", other).owns(&physical));
                }
            }
        }
    }
}
