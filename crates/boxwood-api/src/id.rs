//! Ids chosen by callers: any text without control characters.

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

/// A string type whose values are checked by its `new`.
macro_rules! checked_text {
    ($(#[$attribute:meta])* $name:ident, $error:ty) => {
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
        #[serde(try_from = "String", into = "String")]
        $(#[$attribute])*
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = $error;
            fn try_from(text: String) -> Result<Self, $error> {
                Self::new(&text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = $error;
            fn from_str(text: &str) -> Result<Self, $error> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

pub(crate) use checked_text;

checked_text!(
    /// A session id, chosen by the caller. Never used as part of a host path.
    #[schema(value_type = String)]
    SessionId,
    IdError
);
checked_text!(
    /// The id of a managed process within its session.
    #[schema(value_type = String)]
    ProcessId,
    IdError
);

impl SessionId {
    pub fn new(text: &str) -> Result<Self, IdError> {
        checked("session_id", text).map(Self)
    }
}

impl ProcessId {
    pub fn new(text: &str) -> Result<Self, IdError> {
        checked("process_id", text).map(Self)
    }
}

impl Default for ProcessId {
    /// Used if a request names no process.
    fn default() -> Self {
        Self("default".to_owned())
    }
}
