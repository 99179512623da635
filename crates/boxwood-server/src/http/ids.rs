//! Ids and queries out of request targets.

use axum::extract::{FromRequestParts, Query, RawPathParams};
use axum::http::request::Parts;
use boxwood_api::{ProcessId, SessionId};
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// The session in the path.
pub(crate) struct InSession(pub(crate) SessionId);

/// The session and the process in the path; `default` where the path has no process.
pub(crate) struct InProcess(pub(crate) SessionId, pub(crate) ProcessId);

impl<S: Send + Sync> FromRequestParts<S> for InSession {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        InProcess::from_request_parts(parts, state)
            .await
            .map(|InProcess(session, _)| Self(session))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InProcess {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        // Decoded once, by the router.
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::validation("the path is not valid UTF-8 once decoded"))?;
        let find = |wanted: &str| {
            params
                .iter()
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| value)
        };
        let session = SessionId::new(find("session_id").unwrap_or_default())?;
        let process = match find("process_id") {
            Some(process) => ProcessId::new(process)?,
            None => ProcessId::default(),
        };
        Ok(Self(session, process))
    }
}

/// A typed query string.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Query::try_from_uri(&parts.uri)
            .map(|Query(params)| Self(params))
            .map_err(|error| ApiError::validation(format!("the query is wrong: {}", cause(&error))))
    }
}

fn cause(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// Whether every `%` in a path starts an escape.
pub(crate) fn has_valid_escapes(path: &str) -> bool {
    let bytes = path.as_bytes();
    bytes.iter().enumerate().all(|(at, byte)| {
        *byte != b'%'
            || bytes
                .get(at + 1..at + 3)
                .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_escapes_are_seen() {
        for good in ["/", "/a%2Fb", "/%00", "/%e5%AD%97"] {
            assert!(has_valid_escapes(good), "{good}");
        }
        for bad in ["/%", "/%2", "/%zz", "/a%2/b", "/%%20"] {
            assert!(!has_valid_escapes(bad), "{bad}");
        }
    }
}
