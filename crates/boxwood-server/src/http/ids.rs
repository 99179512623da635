//! Ids and queries out of request targets.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Query, RawPathParams};
use axum::http::Uri;
use axum::http::request::Parts;
use boxwood_api::{ProcessId, SessionId};
use boxwood_session::{FileAnswer, FileCall, Reach, Sessions};
use serde::de::DeserializeOwned;

use super::error::{ApiError, ApiResult};
use super::{App, PATIENCE, within};

/// The session in the path. Whoever says which incarnation is meant reaches no other.
pub(crate) struct InSession {
    pub(crate) id: SessionId,
    pub(crate) sessions: Sessions,
}

/// The session and the process in the path; `default` where the path has no process.
pub(crate) struct InProcess {
    pub(crate) id: SessionId,
    pub(crate) process: ProcessId,
    pub(crate) sessions: Sessions,
}

/// The session and the command in the path.
pub(crate) struct InExec {
    pub(crate) id: SessionId,
    pub(crate) exec_id: u64,
    pub(crate) sessions: Sessions,
}

impl InSession {
    pub(crate) async fn file(&self, call: FileCall) -> ApiResult<FileAnswer> {
        within(PATIENCE, self.sessions.file(&self.id, call)).await
    }
}

impl FromRequestParts<Arc<App>> for InSession {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        let named = named(parts, app, &["session_id"]).await?;
        Ok(Self {
            id: SessionId::new(named[0].as_deref().unwrap_or_default())?,
            sessions: meant(parts, app)?,
        })
    }
}

impl FromRequestParts<Arc<App>> for InProcess {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        let named = named(parts, app, &["session_id", "process_id"]).await?;
        Ok(Self {
            id: SessionId::new(named[0].as_deref().unwrap_or_default())?,
            process: match &named[1] {
                Some(process) => ProcessId::new(process)?,
                None => ProcessId::default(),
            },
            sessions: meant(parts, app)?,
        })
    }
}

impl FromRequestParts<Arc<App>> for InExec {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        let named = named(parts, app, &["session_id", "exec_id"]).await?;
        let exec_id = named[1].as_deref().unwrap_or_default();
        Ok(Self {
            id: SessionId::new(named[0].as_deref().unwrap_or_default())?,
            exec_id: exec_id
                .parse()
                .map_err(|_| ApiError::validation("exec_id must be a number"))?,
            sessions: meant(parts, app)?,
        })
    }
}

/// The values of these parts of the path, decoded once, by the router.
async fn named<const N: usize>(
    parts: &mut Parts,
    app: &Arc<App>,
    wanted: &[&str; N],
) -> ApiResult<[Option<String>; N]> {
    let params = RawPathParams::from_request_parts(parts, app)
        .await
        .map_err(|_| ApiError::validation("the path is not valid UTF-8 once decoded"))?;
    Ok(wanted.map(|wanted| {
        params
            .iter()
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| value.to_owned())
    }))
}

/// The one word of a query that every route about a session knows.
const INCARNATION: &str = "incarnation";

/// The sessions as the caller means them.
fn meant(parts: &Parts, app: &App) -> ApiResult<Sessions> {
    // The guard says more of whoever may more.
    let reach = parts.extensions.get().copied().unwrap_or(Reach::Clients);
    let sessions = app.sessions.reaching(reach);
    let query = parts.uri.query().unwrap_or_default();
    let mut given = query
        .split('&')
        .filter_map(|pair| pair.strip_prefix(INCARNATION)?.strip_prefix('='));
    match (given.next(), given.next()) {
        (None, _) => Ok(sessions),
        (Some(number), None) => match number.parse() {
            Ok(number) => Ok(sessions.expecting(Some(number))),
            Err(_) => Err(ApiError::validation(format!(
                "{INCARNATION} must be a number, as the session's own `incarnation` is"
            ))),
        },
        (Some(_), Some(_)) => Err(ApiError::validation(format!(
            "{INCARNATION} is given twice"
        ))),
    }
}

/// The query without what is not the route's own.
fn own_query(parts: &Parts) -> Cow<'_, Uri> {
    let about_session = parts.uri.path().starts_with("/v1/sessions/");
    match parts.uri.query() {
        Some(query) if about_session && query.contains(INCARNATION) => {
            let own: Vec<_> = query
                .split('&')
                .filter(|pair| pair.split('=').next() != Some(INCARNATION))
                .collect();
            // Parts of a query are a query.
            match format!("/?{}", own.join("&")).parse() {
                Ok(own) => Cow::Owned(own),
                Err(_) => Cow::Borrowed(&parts.uri),
            }
        }
        _ => Cow::Borrowed(&parts.uri),
    }
}

/// A typed query string.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Query::try_from_uri(&own_query(parts))
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
