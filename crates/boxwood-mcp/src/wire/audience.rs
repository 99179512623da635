//! Determines which clients may receive a notification of a shared process.
//!
//! Log messages do not name a request, so they may belong to any call, even a cancelled one. They are
//! delivered only as long as a single principal has used the process.

use std::sync::Arc;

/// Owner of the token; `None` without tokens.
pub(crate) type Principal = Option<Arc<str>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Audience {
    /// No call was made yet.
    #[default]
    All,
    /// The only principal that has made calls.
    Only(Principal),
    /// Several principals have made calls.
    None,
}

impl Audience {
    pub(crate) fn has(&self, principal: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Only(only) => only.as_deref() == principal,
            Self::None => false,
        }
    }

    pub(crate) fn add(&mut self, principal: &Principal) {
        match self {
            Self::All => *self = Self::Only(principal.clone()),
            Self::Only(only) if only == principal => {}
            Self::Only(_) | Self::None => *self = Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_for_the_only_principal_that_has_made_calls() {
        let mut audience = Audience::default();
        assert!(audience.has(Some("ann")) && audience.has(None));
        audience.add(&Some("ann".into()));
        audience.add(&Some("ann".into()));
        assert!(audience.has(Some("ann")) && !audience.has(Some("bob")) && !audience.has(None));
        audience.add(&None);
        assert!(!audience.has(Some("ann")) && !audience.has(None));
    }
}
