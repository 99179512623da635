//! Errors of backends, with their stable codes.

use std::io;

use boxwood_api::{ErrorCode, Mechanism};

#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct ProbeError {
    pub what: String,
    #[source]
    pub source: Option<io::Error>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The host cannot run this backend at all.
    #[error("{why}")]
    Unavailable { why: String, hint: String },
    #[error("image `{image}` was not found")]
    ImageNotFound { image: String, hint: String },
    /// A required mechanism is not available on this host.
    #[error("`{mechanism}` is required and not available: {why}")]
    Missing { mechanism: Mechanism, why: String },
    /// This backend does not support the request.
    #[error("{what}")]
    Unsupported { what: String },
    /// One step of the start failed. Earlier steps were undone.
    #[error("the box could not be started: {step}")]
    Step {
        step: String,
        #[source]
        source: io::Error,
    },
}

impl StartError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Unavailable { .. } => ErrorCode::BackendUnavailable,
            Self::ImageNotFound { .. } => ErrorCode::ImageNotFound,
            Self::Missing { .. } | Self::Unsupported { .. } => ErrorCode::ValidationError,
            Self::Step { .. } => ErrorCode::InternalError,
        }
    }

    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unavailable { hint, .. } | Self::ImageNotFound { hint, .. } => Some(hint),
            Self::Missing { .. } => Some("run `boxwood doctor` to see how to get it"),
            Self::Unsupported { .. } | Self::Step { .. } => None,
        }
    }
}

/// For `map_err`: names the step of a start that failed.
pub fn start_step(step: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    let step = step.into();
    move |source| StartError::Step { step, source }
}

/// Why a box of an earlier daemon could not be adopted.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The box is dead. `finish_adoption` removes its leftovers.
    #[error("the box is gone")]
    Gone,
    /// The box has no record: its start was interrupted before it was returned to a caller.
    #[error("the start of the box was interrupted")]
    Unfinished,
    #[error("this backend's boxes do not outlive the daemon")]
    Unsupported,
    #[error("the box could not be adopted: {step}")]
    Step {
        step: String,
        #[source]
        source: io::Error,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("the box is gone")]
    Gone,
    #[error("the box has reached its limit of processes")]
    PidsLimit,
    #[error("an argument is longer than the kernel allows")]
    TooLong,
    #[error("the program could not be started: {step}")]
    Step {
        step: String,
        #[source]
        source: io::Error,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("the box is gone")]
    Gone,
    #[error("the process has ended")]
    Ended,
    #[error("the process has no terminal")]
    NoTerminal,
    #[error("signal {0} does not exist")]
    BadSignal(i32),
    #[error("the process could not be controlled")]
    Io(#[source] io::Error),
}

/// Why a mount could not be added to a running box. The box keeps running without it.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("the box is gone")]
    Gone,
    #[error("this backend cannot add mounts to a running box")]
    Unsupported,
    #[error("`{mount_path}` could not be mounted in the running box: {step}")]
    Step {
        mount_path: String,
        step: String,
        source: io::Error,
    },
}

impl MountError {
    /// A failed step is a validation error because the mount path is the caller's choice.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Gone => ErrorCode::SessionGone,
            Self::Unsupported | Self::Step { .. } => ErrorCode::ValidationError,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFault {
    NotFound,
    Exists,
    Denied,
    NotADirectory,
    IsADirectory,
    NotAFile,
    NotEmpty,
    NoSpace,
    ReadOnly,
    TooManyLinks,
    BadPath,
    /// An invalid pattern, or a text that does not occur as often as expected.
    Unfit,
    /// More than one call may process.
    TooLarge,
    Other,
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("the box is gone")]
    Gone,
    /// The process limit leaves no room for the process that carries out the operation.
    #[error("the box has reached its limit of processes")]
    PidsLimit,
    #[error("`{path}`: {text}")]
    Fault {
        fault: FileFault,
        path: String,
        text: String,
    },
    /// A tool refused the request. The text is meant for agents.
    #[error("{text}")]
    Refused { fault: FileFault, text: String },
    #[error("the file operation could not be carried out: {step}")]
    Step {
        step: String,
        #[source]
        source: io::Error,
    },
}

#[derive(Debug, thiserror::Error)]
#[error("the box could not be removed: {step}")]
pub struct StopError {
    pub step: String,
    #[source]
    pub source: io::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_mechanism_is_named_as_in_the_request() {
        let error = StartError::Missing {
            mechanism: Mechanism::MemoryLimit,
            why: "no cgroup".to_owned(),
        };
        assert_eq!(
            error.to_string(),
            "`memory_limit` is required and not available: no cgroup"
        );
    }
}
