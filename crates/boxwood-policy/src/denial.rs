//! Why policy denied a request. Variants contain the requested and, if there is one, the allowed
//! value.

use boxwood_api::{ErrorCode, FieldError, Mechanism};

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Denial {
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("cmd must not be empty")]
    EmptyCommand,
    #[error("unknown box profile '{name}', available profiles: {}", available.join(", "))]
    UnknownProfile {
        name: String,
        available: Vec<String>,
    },
    /// `field` is `host_path` or `extra_mounts[n].host_path`; `given` is the path in the request.
    #[error("{field} {given} is blocked for security")]
    Blocked { field: String, given: String },
    #[error("{field} mounting is disabled because no allowed_mount_roots are configured")]
    MountsDisabled { field: String },
    #[error("{field} is outside allowed_mount_roots: {}", roots.join(", "))]
    OutsideRoots { field: String, roots: Vec<String> },
    /// The store has no skill with this name.
    #[error("skill `{name}` not found")]
    SkillNotFound { name: String },
    /// The facts belong to another request. Indicates a bug in the caller.
    #[error("internal error: the path that was opened for {field} does not belong to this request")]
    ForeignFacts { field: String },
    #[error(
        "{field} must not be `{target}`: that path is reserved for the system files of the box"
    )]
    SystemTarget { field: String, target: String },
    #[error("{field} `{target}` is used by two mounts")]
    SameTarget { field: String, target: String },
    #[error("{field} `{target}` would hide the workspace at `{workspace}`")]
    HidesWorkspace {
        field: String,
        target: String,
        workspace: String,
    },
    /// Exceeds the limits of the profile or the operator.
    #[error("{field} of {requested} is more than {allowed}, the most that {by} allows")]
    TooMuch {
        field: &'static str,
        requested: String,
        allowed: String,
        by: String,
    },
    #[error("`{mechanism}` is required and not in force: {why}")]
    Missing { mechanism: Mechanism, why: String },
    /// The box has more network access than was admitted.
    #[error("the box must have {expected}, but has {found}")]
    Network {
        expected: &'static str,
        found: &'static str,
    },
}

impl Denial {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::SkillNotFound { .. } => ErrorCode::NotFound,
            Self::ForeignFacts { .. } | Self::Network { .. } => ErrorCode::InternalError,
            // All others concern a value of the request.
            _ => ErrorCode::ValidationError,
        }
    }

    /// What the caller, or the operator, can do next.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::MountsDisabled { .. } => {
                "add the directory to `allowed_roots` under `[mounts]` (LangBot: `[langbot]`) in Boxwood's configuration"
            }
            Self::OutsideRoots { .. } => {
                "use a directory below one of these, or add another to `allowed_roots` under `[mounts]` (LangBot: `[langbot]`)"
            }
            Self::TooMuch { field, allowed, .. } => {
                return Some(format!("ask for {field} of at most {allowed}"));
            }
            Self::SkillNotFound { .. } => "see `boxwood skill ls` for the skills of this store",
            Self::Missing { .. } => "run `boxwood doctor` to see how to get it",
            Self::SystemTarget { .. } | Self::HidesWorkspace { .. } => {
                "mount it below the workspace or in a directory of its own"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
