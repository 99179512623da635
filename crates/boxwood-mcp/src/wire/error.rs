//! How a call fails, and how a conversation ends.

use std::time::Duration;

use super::object::BadObject;
use crate::hosting::Gone;

/// Why nothing more will come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the server ended{}", in_words(.0))]
    Exited(Gone),
    #[error("the server closed its output, or somebody else attached to it")]
    OutputClosed,
    #[error("the server takes no more input: {message}")]
    InputClosed { message: String },
    #[error(
        "the server wrote {lines} lines in a row to stdout that are no MCP messages; a stdio server must log to stderr"
    )]
    Garbage { lines: usize },
    #[error("the server wrote a line of more than {limit} bytes")]
    TooLong { limit: usize },
    #[error("the connection to the server was let go")]
    Detached,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    #[error(transparent)]
    Ended(Ended),
    #[error("the server did not answer `{method}` within {} s", .after.as_secs_f32())]
    TimedOut { method: String, after: Duration },
    #[error("{most} calls wait for this server already; try again when some have ended")]
    Busy { most: usize },
    #[error("the message has {bytes} bytes; the server is sent at most {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("the server's answer has more than {limit} bytes")]
    AnswerTooLong { limit: usize },
    #[error("`params` cannot be passed on: {0}")]
    BadParams(BadObject),
    #[error("only a request can be answered")]
    NoRequest,
    #[error("the server does not read its input")]
    Stuck,
    #[error("the server has asked nothing with this id, or it was answered already")]
    NotAsked,
}

fn in_words(gone: &Gone) -> String {
    match (gone.exit_code, &gone.why) {
        (Some(code), Some(why)) => format!(" with exit code {code} ({why})"),
        (Some(code), None) => format!(" with exit code {code}"),
        (None, Some(why)) => format!(" ({why})"),
        (None, None) => String::new(),
    }
}
