//! Why a server is not running: the phase, the words, and whether another attempt may help.

use boxwood_agent::BoxesError;
use boxwood_api::{ErrorCode, McpPhase};

use super::HostingError;
use super::retry::Mends;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) phase: McpPhase,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) mends: Mends,
    /// The main process ended by itself.
    pub(crate) main_ended: bool,
    /// What it answered, as it is, as far as it was kept: nobody sees it before it was redacted.
    pub(crate) said: Option<String>,
    /// What it wrote before, as it is: nobody sees it before it was redacted.
    pub(crate) stderr: Option<String>,
}

impl Fault {
    pub(crate) fn new(phase: McpPhase, message: impl Into<String>) -> Self {
        Self {
            phase,
            message: message.into(),
            hint: None,
            mends: Mends::Perhaps,
            main_ended: false,
            said: None,
            stderr: None,
        }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }

    pub(crate) fn for_good(mut self) -> Self {
        self.mends = Mends::Never;
        self
    }

    /// The server gave a reason.
    pub(crate) fn saying(mut self, words: String) -> Self {
        self.said = Some(words);
        self
    }

    pub(crate) fn of_ended_main(mut self) -> Self {
        self.main_ended = true;
        self
    }

    /// The runtime said no.
    pub(crate) fn of_runtime(phase: McpPhase, error: BoxesError) -> Self {
        if error.code == ErrorCode::BackendUnavailable {
            return Self::no_boxes(error.message, error.hint);
        }
        let mends = match error.code {
            ErrorCode::ValidationError
            | ErrorCode::Forbidden
            | ErrorCode::Unauthorized
            | ErrorCode::ImageNotFound
            | ErrorCode::SessionConflict
            | ErrorCode::PayloadTooLarge => Mends::Never,
            _ => Mends::Perhaps,
        };
        Self {
            mends,
            ..Self::new(phase, error.message).with_hint(error.hint)
        }
    }

    /// The words are the same everywhere, so that programs know them; people read the hint.
    pub(crate) fn no_boxes(why: String, hint: Option<String>) -> Self {
        let hint = match hint {
            Some(hint) => format!("{why}: {hint}"),
            None => why,
        };
        Self::new(McpPhase::BoxUnavailable, "box_unavailable")
            .with_hint(hint)
            .for_good()
    }

    pub(crate) fn of_storage(phase: McpPhase, doing: &str, error: &std::io::Error) -> Self {
        Self::new(phase, format!("{doing} failed: {error}")).with_hint(
            "look at the disk of the daemon's state directory, and at who may write there"
                .to_owned(),
        )
    }
}

impl From<Fault> for HostingError {
    fn from(fault: Fault) -> Self {
        if fault.phase == McpPhase::BoxUnavailable {
            return Self::Unavailable {
                message: fault.message,
                hint: fault.hint,
            };
        }
        Self::Failed {
            phase: fault.phase,
            message: fault.message,
            hint: fault.hint,
        }
    }
}
