//! What the layers that run boxes on this machine say, as failures of a verb.

use boxwood_api::ErrorCode;
use boxwood_policy::{Denial, RulesError};
use boxwood_server::{ConfigError, ServeError};
use boxwood_session::SessionError;

use crate::failure::{EXIT_USAGE, Failure};

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let exit = match &error {
            ConfigError::Flag { .. } => EXIT_USAGE,
            _ => crate::failure::EXIT_ERROR,
        };
        Self::new(ErrorCode::ValidationError, error).exit(exit)
    }
}

impl From<RulesError> for Failure {
    fn from(error: RulesError) -> Self {
        Self::new(ErrorCode::ValidationError, error)
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let hint = error.hint();
        Self::new(ErrorCode::InternalError, error).maybe_hint(hint)
    }
}

impl From<Denial> for Failure {
    fn from(denial: Denial) -> Self {
        let hint = denial.hint();
        Self::new(denial.code(), denial).maybe_hint(hint)
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let hint = error.hint();
        Self::new(error.code(), error).maybe_hint(hint)
    }
}
