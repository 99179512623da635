//! Errors of calls and reasons for closed connections.

use std::time::Duration;

use super::message::object::BadObject;
use crate::hosting::ProcessExit;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CloseReason {
    #[error("the server exited{}", exit_details(.0))]
    Exited(ProcessExit),
    #[error("the server closed its output, or another client attached to it")]
    OutputClosed,
    #[error("the server closed its input: {message}")]
    InputClosed { message: String },
    #[error(
        "the server wrote {lines} consecutive lines to stdout that are not MCP messages; a stdio server must log to stderr"
    )]
    Garbage { lines: usize },
    #[error("the server wrote a line of more than {limit} bytes")]
    TooLong { limit: usize },
    #[error("connection to the server closed")]
    Detached,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    #[error(transparent)]
    Closed(CloseReason),
    #[error("the server did not respond to `{method}` within {} s", .after.as_secs_f32())]
    TimedOut { method: String, after: Duration },
    #[error("server has {most} pending calls; try again later")]
    Busy { most: usize },
    #[error("message of {bytes} bytes exceeds the limit of {limit} bytes")]
    TooLarge { bytes: usize, limit: usize },
    #[error("response of the server exceeds {limit} bytes")]
    AnswerTooLong { limit: usize },
    #[error("invalid `params`: {0}")]
    BadParams(BadObject),
    #[error("the server does not read its input")]
    Stuck,
}

fn exit_details(exit: &ProcessExit) -> String {
    match (exit.exit_code, &exit.why) {
        (Some(code), Some(reason)) => format!(" with exit code {code} ({reason})"),
        (Some(code), None) => format!(" with exit code {code}"),
        (None, Some(reason)) => format!(" ({reason})"),
        (None, None) => String::new(),
    }
}
