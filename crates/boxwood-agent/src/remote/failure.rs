//! Errors of the connection, as tools report them.

use std::time::Duration;

use boxwood_api::ErrorCode;
use boxwood_client::ClientError;

use super::connector::Outage;
use crate::boxes::BoxesError;

fn unreached(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> BoxesError {
    BoxesError {
        code,
        message: message.into(),
        hint: Some(hint.into()),
        reached: false,
    }
}

pub(super) fn down(outage: Outage) -> BoxesError {
    let Outage { reason, fix } = outage;
    unreached(ErrorCode::BackendUnavailable, reason, fix)
}

pub(super) fn connecting() -> BoxesError {
    unreached(
        ErrorCode::BackendUnavailable,
        "the connection to the box runtime is still being made",
        "try again in a moment",
    )
}

pub(super) fn disposed() -> BoxesError {
    unreached(
        ErrorCode::BackendUnavailable,
        "the connection to the box runtime was closed",
        "this program is exiting; start it again",
    )
}

pub(super) fn late(within: Duration) -> BoxesError {
    unreached(
        ErrorCode::Timeout,
        format!(
            "the box runtime did not answer within {} s",
            within.as_secs()
        ),
        "check whether it is overloaded or stopped",
    )
}

/// The connection was lost during a change that may or may not have been made.
pub(super) fn in_doubt(what: &str) -> BoxesError {
    unreached(
        ErrorCode::BackendUnavailable,
        format!("the connection to the box runtime was lost; whether {what} is not known"),
        "check the result before trying again",
    )
}

/// An error and its causes, on one line.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

pub(super) fn of(error: ClientError) -> BoxesError {
    let hint = error.hint();
    let (code, reached) = match &error {
        ClientError::Refused { code, .. } => (*code, true),
        ClientError::Unexpected { .. } => (ErrorCode::InternalError, true),
        ClientError::BadUrl { .. } | ClientError::BadToken => (error.code(), false),
        ClientError::Unreachable { .. } | ClientError::Lost { .. } => {
            (ErrorCode::BackendUnavailable, false)
        }
    };
    let message = match error {
        ClientError::Refused { message, .. } => message,
        ClientError::Unreachable { .. } => {
            format!("box runtime connection failed: {}", with_causes(&error))
        }
        error => with_causes(&error),
    };
    BoxesError {
        code,
        message,
        hint,
        reached,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_the_runtime_is_kept() {
        let error = of(ClientError::Refused {
            status: 409,
            code: ErrorCode::SessionConflict,
            message: "it differs".to_owned(),
            hint: Some("use another".to_owned()),
            phase: None,
        });
        assert_eq!(error.code, ErrorCode::SessionConflict);
        assert_eq!(error.message, "it differs");
        assert_eq!(error.hint.as_deref(), Some("use another"));
        assert!(error.reached);
    }

    #[test]
    fn an_unreachable_runtime_was_not_reached() {
        let error = of(ClientError::Unreachable {
            endpoint: "http://x:1".to_owned(),
            source: "Connection refused".into(),
        });
        assert_eq!(error.code, ErrorCode::BackendUnavailable);
        assert!(!error.reached);
        assert!(error.message.starts_with("box runtime connection failed: "));
        assert!(error.hint.is_some());
    }
}
