//! Extractors for path and query parameters.

use std::fs::File;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Query, RawPathParams};
use axum::http::Uri;
use axum::http::request::Parts;
use boxwood_api::{FileEntry, FileList, ProcessId, SessionId};
use boxwood_session::{Access, FileAnswer, FileCall, OpenFor, Sessions, Since};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{ApiError, ApiResult};
use super::{App, BACKEND_TIMEOUT, with_timeout};

/// The session in the path. With `?incarnation=`, only that incarnation is accessed.
#[derive(Clone)]
pub(crate) struct InSession {
    pub(crate) id: SessionId,
    pub(crate) sessions: Sessions,
}

/// The session and the process in the path; `default` where the path has no process.
pub(crate) struct InProcess(
    pub(crate) Sessions,
    pub(crate) SessionId,
    pub(crate) ProcessId,
);

/// The session and the command in the path.
pub(crate) struct InExec(pub(crate) Sessions, pub(crate) SessionId, pub(crate) u64);

impl InSession {
    pub(crate) async fn file(&self, call: FileCall) -> ApiResult<FileAnswer> {
        with_timeout(BACKEND_TIMEOUT, self.sessions.file(&self.id, call)).await
    }

    pub(crate) async fn open(&self, path: &str) -> ApiResult<(File, FileEntry)> {
        let call = FileCall::Open {
            path: path.to_owned(),
            how: OpenFor::Read,
        };
        match self.file(call).await? {
            FileAnswer::Opened { file, entry } => Ok((file, entry)),
            other => Err(unexpected("open", &other)),
        }
    }

    pub(crate) async fn list(&self, path: &str, limit: usize) -> ApiResult<FileList> {
        let path = path.to_owned();
        let call = FileCall::List {
            path: path.clone(),
            limit,
        };
        match self.file(call).await? {
            FileAnswer::Entries { entries, truncated } => Ok(FileList {
                path,
                entries,
                truncated,
            }),
            other => Err(unexpected("list", &other)),
        }
    }

    pub(crate) async fn stat(&self, path: &str, follow: bool) -> ApiResult<FileEntry> {
        let path = path.to_owned();
        match self.file(FileCall::Stat { path, follow }).await? {
            FileAnswer::Entry(entry) => Ok(entry),
            other => Err(unexpected("stat", &other)),
        }
    }
}

/// The backend violated its contract.
pub(super) fn unexpected(call: &str, answer: &FileAnswer) -> ApiError {
    let cause = std::io::Error::other(format!("unexpected result of `{call}`: {answer:?}"));
    ApiError::internal("unexpected response from the backend", &cause)
}

impl FromRequestParts<Arc<App>> for InSession {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        let id = path_value(parts, app, "session_id").await?;
        Ok(Self {
            id: SessionId::new(&id.unwrap_or_default())?,
            sessions: accessible(parts, app)?,
        })
    }
}

impl FromRequestParts<Arc<App>> for InProcess {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        let InSession { id, sessions } = InSession::from_request_parts(parts, app).await?;
        let process = match path_value(parts, app, "process_id").await? {
            Some(process) => ProcessId::new(&process)?,
            None => ProcessId::default(),
        };
        Ok(Self(sessions, id, process))
    }
}

impl FromRequestParts<Arc<App>> for InExec {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        let InSession { id, sessions } = InSession::from_request_parts(parts, app).await?;
        let exec_id = path_value(parts, app, "exec_id").await?.unwrap_or_default();
        let exec_id = exec_id
            .parse()
            .map_err(|_| ApiError::validation("exec_id must be a number"))?;
        Ok(Self(sessions, id, exec_id))
    }
}

/// The decoded value of a path parameter.
pub(crate) async fn path_value<S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
    param: &str,
) -> ApiResult<Option<String>> {
    let params = RawPathParams::from_request_parts(parts, state)
        .await
        .map_err(|_| ApiError::validation("the decoded path is not valid UTF-8"))?;
    let found = params.iter().find(|(name, _)| *name == param);
    Ok(found.map(|(_, value)| value.to_owned()))
}

/// Query parameter of all session routes.
const INCARNATION: &str = "incarnation";

/// Reads [`INCARNATION`] and ignores the parameters of the route.
#[derive(Deserialize)]
struct SessionQuery {
    incarnation: Option<u64>,
}

/// The sessions, restricted to what the caller may access.
fn accessible(parts: &Parts, app: &App) -> ApiResult<Sessions> {
    // Set by the guard for callers with more rights.
    let access = parts.extensions.get().copied().unwrap_or(Access::Clients);
    let sessions = app.sessions.with_access(access);
    let Some(query) = parts.uri.query() else {
        return Ok(sessions);
    };
    let query: SessionQuery = parse_query(query)?;
    Ok(sessions.expecting(query.incarnation))
}

/// A typed query string. `incarnation` is not part of the route's parameters.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = parts.uri.query().unwrap_or_default();
        if !parts.uri.path().starts_with("/v1/sessions/") {
            return parse_query(query).map(Self);
        }
        let is_own = |pair: &&str| pair.split('=').next() != Some(INCARNATION);
        let own: Vec<_> = query.split('&').filter(is_own).collect();
        parse_query(&own.join("&")).map(Self)
    }
}

pub(crate) fn parse_query<T: DeserializeOwned>(query: &str) -> ApiResult<T> {
    let invalid = |error: &dyn std::error::Error| {
        // The source names the parameter.
        let why = error.source().unwrap_or(error);
        ApiError::validation(format!("invalid query: {why}"))
    };
    let uri: Uri = format!("/?{query}")
        .parse()
        .map_err(|error| invalid(&error))?;
    match Query::try_from_uri(&uri) {
        Ok(Query(params)) => Ok(params),
        Err(error) => Err(invalid(&error)),
    }
}

/// Parses the query parameter `name`, which is an offset into an output stream or `now`.
pub(super) fn offset(name: &str, text: &str) -> ApiResult<Since> {
    // `parse` would accept a leading `+`.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        _ if text == "now" => Ok(Since::Now),
        Ok(offset) if is_number => Ok(Since::Offset(offset)),
        _ => Err(ApiError::validation(format!(
            "{name} must be `now` or a number of bytes"
        ))),
    }
}

/// A limit between 1 and `max`.
pub(super) fn limit(name: &str, limit: usize, max: usize) -> ApiResult<usize> {
    if (1..=max).contains(&limit) {
        return Ok(limit);
    }
    let message = format!("{name} must be between 1 and {max}");
    Err(ApiError::validation(message))
}

/// Whether every `%` in a path starts an escape.
pub(crate) fn has_valid_escapes(path: &str) -> bool {
    let bytes = path.as_bytes();
    bytes.iter().enumerate().all(|(index, byte)| {
        *byte != b'%'
            || bytes
                .get(index + 1..index + 3)
                .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_percent_escapes_are_detected() {
        for good in ["/", "/a%2Fb", "/%00", "/%e5%AD%97"] {
            assert!(has_valid_escapes(good), "{good}");
        }
        for bad in ["/%", "/%2", "/%zz", "/a%2/b", "/%%20"] {
            assert!(!has_valid_escapes(bad), "{bad}");
        }
    }

    #[test]
    fn an_offset_is_digits_or_now() {
        let check = |text: &str, expected: Option<Since>| {
            assert_eq!(offset("since", text).ok(), expected, "{text}");
        };
        check("now", Some(Since::Now));
        check("0", Some(Since::Offset(0)));
        check("18446744073709551615", Some(Since::Offset(u64::MAX)));
        for wrong in ["", "-1", "+1", "1.0", "NOW", "18446744073709551616", " 1"] {
            check(wrong, None);
        }
    }
}
