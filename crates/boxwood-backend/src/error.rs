//! What can fail below a session. Each knows its stable code.

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
    /// A required mechanism is not to be had here.
    #[error("`{mechanism}` is required and not available: {why}")]
    Missing { mechanism: Mechanism, why: String },
    /// The request cannot be done by this backend (no network, no mounts).
    #[error("{what}")]
    Unsupported { what: String },
    /// One step of the start failed; everything before it was undone.
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

/// A box of an earlier daemon that cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// It is dead; what is left of it goes with the settling.
    #[error("the box is gone")]
    Gone,
    /// It never got as far as to have a record, so nobody was told that it is there.
    #[error("the box was never finished")]
    Unfinished,
    #[error("this backend's boxes do not outlive the daemon")]
    Unsupported,
    #[error("the box could not be taken over: {step}")]
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
    /// The box's process limit leaves no room for another program.
    #[error("the box has reached its limit of processes")]
    PidsLimit,
    #[error("the arguments are longer than the kernel takes")]
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

/// A mount that did not join a running box. The box lives on without it.
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
    /// A place that cannot be mounted on is the caller's to change.
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
    /// A pattern that means nothing, or a text that is not there as often as was said.
    Unfit,
    /// More than is done in one call.
    TooLarge,
    Other,
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("the box is gone")]
    Gone,
    /// The box's process limit leaves no room for whoever would do it.
    #[error("the box has reached its limit of processes")]
    PidsLimit,
    #[error("`{path}`: {text}")]
    Fault {
        fault: FileFault,
        path: String,
        text: String,
    },
    /// A tool says no, in the words that agents know.
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
    fn a_missing_mechanism_is_named_as_it_was_asked_for() {
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
