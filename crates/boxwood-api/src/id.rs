//! Ids chosen by callers: any text without control characters.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum id length in bytes.
pub(crate) const MAX_ID_BYTES: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("{what} must not be empty")]
    Empty { what: &'static str },
    #[error("{what} must be at most {MAX_ID_BYTES} bytes, not {len}")]
    TooLong { what: &'static str, len: usize },
    #[error("{what} must not contain control characters")]
    ControlCharacter { what: &'static str },
}

fn checked(what: &'static str, text: &str) -> Result<String, IdError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(IdError::Empty { what });
    }
    if text.len() > MAX_ID_BYTES {
        return Err(IdError::TooLong {
            what,
            len: text.len(),
        });
    }
    if text.chars().any(char::is_control) {
        return Err(IdError::ControlCharacter { what });
    }
    Ok(text.to_owned())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schema(value_type = String)]
        pub struct $name(String);

        impl $name {
            pub fn new(text: &str) -> Result<Self, IdError> {
                checked($what, text).map(Self)
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// A session id, chosen by the caller. Never used as part of a host path.
    SessionId,
    "session_id"
);
id!(
    /// The id of a managed process within its session.
    ProcessId,
    "process_id"
);

impl Default for ProcessId {
    /// Used if a request names no process.
    fn default() -> Self {
        Self("default".to_owned())
    }
}
