//! Whose sessions a caller gets at.
//!
//! Comes in: who asks, and whether the session was made for a hosted MCP server. Goes out: nothing, or
//! why not. Never here: who may say of himself that he is more than a client.

use boxwood_api::SessionId;

use crate::SessionError;

/// The secrets of a hosted server are in its box, and its tool filter is outside. Whoever could run a
/// command there would have the one and be past the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Of every session but those of hosted servers.
    #[default]
    Clients,
    /// Of those of hosted servers alone: what somebody else made under such a name is no place for
    /// secrets.
    Hosting,
    /// Of all of them.
    All,
}

impl Reach {
    pub(crate) fn includes(self, is_hosted: bool) -> bool {
        match self {
            Self::Clients => !is_hosted,
            Self::Hosting => is_hosted,
            Self::All => true,
        }
    }

    /// For whoever wants to be in the session, or to have it made.
    pub(crate) fn check(self, session: &SessionId, is_hosted: bool) -> Result<(), SessionError> {
        if self.includes(is_hosted) {
            return Ok(());
        }
        let session = session.clone();
        Err(if is_hosted {
            SessionError::Hosted { session }
        } else {
            SessionError::NotHosted { session }
        })
    }
}
