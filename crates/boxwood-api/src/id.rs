//! Ids chosen by callers: any text without control characters.

use crate::FieldError;

/// Maximum id length in bytes.
const MAX_ID_BYTES: usize = 256;

fn checked(field: &str, text: &str) -> Result<String, FieldError> {
    let text = text.trim();
    let rule = if text.is_empty() {
        "must not be empty".to_owned()
    } else if text.len() > MAX_ID_BYTES {
        format!("must be at most {MAX_ID_BYTES} bytes, not {}", text.len())
    } else if text.chars().any(char::is_control) {
        "must not contain control characters".to_owned()
    } else {
        return Ok(text.to_owned());
    };
    Err(FieldError::new(field, rule))
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
    FieldError
);
checked_text!(
    /// The id of a managed process within its session.
    #[schema(value_type = String)]
    ProcessId,
    FieldError
);

impl SessionId {
    pub fn new(text: &str) -> Result<Self, FieldError> {
        checked("session_id", text).map(Self)
    }
}

impl ProcessId {
    pub fn new(text: &str) -> Result<Self, FieldError> {
        checked("process_id", text).map(Self)
    }
}

impl Default for ProcessId {
    /// Used if a request names no process.
    fn default() -> Self {
        Self("default".to_owned())
    }
}
