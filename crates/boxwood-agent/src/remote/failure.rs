//! Errors of the connection, as tools report them.

use std::time::Duration;

use boxwood_api::{ErrorCode, with_causes};
use boxwood_client::ClientError;

use crate::boxes::BoxesError;

fn unreached(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> BoxesError {
    BoxesError {
        code,
        message: message.into(),
        hint: Some(hint.into()),
        reached: false,
    }
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
pub(super) fn uncertain(effect: &str) -> BoxesError {
    unreached(
        ErrorCode::BackendUnavailable,
        format!("the connection to the box runtime was lost; whether {effect} is not known"),
        "check the result before trying again",
    )
}

/// A runtime that does not accept the token counts as unreachable: the caller of the tool cannot correct that.
pub(super) fn of(error: ClientError) -> BoxesError {
    let hint = match &error {
        ClientError::Unreachable { endpoint, .. } => Some(format!(
            "start `boxwood serve` so that it listens at {endpoint}, or correct the address (box.runtime.endpoint; of `boxwood mcp-server`: --url); the next call connects again"
        )),
        other => other.hint(),
    };
    match error {
        ClientError::Refused { code, message, .. } if code != ErrorCode::Unauthorized => {
            BoxesError {
                code,
                message,
                hint,
                reached: true,
            }
        }
        error => BoxesError {
            code: ErrorCode::BackendUnavailable,
            message: format!("box runtime connection failed: {}", with_causes(&error)),
            hint,
            reached: false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: ErrorCode, hint: Option<&str>) -> BoxesError {
        of(ClientError::Refused {
            status: 400,
            code,
            message: "it differs".to_owned(),
            hint: hint.map(str::to_owned),
            phase: None,
        })
    }

    #[test]
    fn the_message_of_the_runtime_is_kept() {
        let error = refused(ErrorCode::SessionConflict, Some("use another"));
        assert_eq!(error.code, ErrorCode::SessionConflict);
        assert_eq!(error.message, "it differs");
        assert_eq!(error.hint.as_deref(), Some("use another"));
        assert!(error.reached);
    }

    #[test]
    fn a_runtime_that_refuses_the_token_is_unavailable_and_the_hint_names_the_variable() {
        let error = refused(ErrorCode::Unauthorized, None);
        assert_eq!(error.code, ErrorCode::BackendUnavailable);
        assert_eq!(error.message, "box runtime connection failed: it differs");
        let hint = error.hint.expect("a hint");
        assert!(hint.contains("BOXWOOD_TOKEN"), "{hint}");
        assert!(!error.reached);
    }

    #[test]
    fn an_unreachable_runtime_was_not_reached() {
        let error = of(ClientError::Unreachable {
            endpoint: "http://x:1".to_owned(),
            source: "Connection refused".into(),
        });
        assert_eq!(error.code, ErrorCode::BackendUnavailable);
        assert!(!error.reached);
        assert_eq!(
            error.message,
            "box runtime connection failed: no daemon answers at http://x:1: Connection refused"
        );
        let hint = error.hint.expect("a hint");
        assert!(hint.starts_with("start `boxwood serve`"), "{hint}");
    }
}
