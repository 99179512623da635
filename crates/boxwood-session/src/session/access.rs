//! Which sessions a caller has access to.

use boxwood_api::SessionId;

use crate::{Result, SessionError};

/// The box of a hosted server has its secrets, and the tool filter is outside of it. A caller that
/// could run a command there would get the secrets and bypass the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// All sessions except those of hosted servers.
    #[default]
    Clients,
    /// Sessions of hosted servers only. A session with such a name that another caller created must not
    /// get secrets.
    Hosting,
    /// All sessions.
    All,
}

impl Access {
    pub(crate) fn includes(self, is_hosted: bool) -> bool {
        match self {
            Self::Clients => !is_hosted,
            Self::Hosting => is_hosted,
            Self::All => true,
        }
    }

    /// Fails if the caller may not use or create the session.
    pub(crate) fn check(self, session: &SessionId, is_hosted: bool) -> Result<()> {
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
