//! Middleware of all routes: authentication, request ids, metrics and error logging.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use boxwood_api::ErrorCode;
use boxwood_session::Access;

use super::App;
use super::error::{ApiError, Cause};
use super::params::has_valid_escapes;
use crate::auth::{Peer, PeerIdentity, Transport, check_browser, check_host};
use crate::load::{RequestMemory, charge_response};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Requests operator rights, such as access to sessions of MCP servers.
const OPERATOR: HeaderName = HeaderName::from_static("boxwood-operator");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Probes of load balancers and orchestrators send no token and an arbitrary `Host`.
const UNAUTHENTICATED_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// The outermost layer: assigns a request id, counts and logs the outcome.
pub(crate) async fn account(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    // Charged as the body is read. Released with the response, or later by a call that keeps the body.
    let memory = RequestMemory::new(app.sessions.budget());
    request.extensions_mut().insert(memory.clone());
    let id = request_id(request.headers(), &app.next_request_id);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = charge_response(next.run(request).await, app.sessions.budget());
    drop(memory);
    let status = response.status();
    let route = route.as_ref().map_or("unknown", MatchedPath::as_str);
    let elapsed = started.elapsed();
    app.metrics.request(&method, route, status.as_u16());
    let id_text = id.to_str().unwrap_or_default();
    if let Some(Cause(cause)) = response.extensions_mut().remove() {
        tracing::error!(request_id = id_text, %method, route, status = status.as_u16(), cause, "request failed");
    } else {
        tracing::debug!(request_id = id_text, %method, route, status = status.as_u16(), ?elapsed, "request");
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The first generated request id; the following ones count up. Need not be unique across restarts, so the
/// clock is enough.
pub(crate) fn first_request_id() -> AtomicU64 {
    let seed = jiff::Timestamp::now().as_microsecond().cast_unsigned();
    AtomicU64::new(seed << 12)
}

/// Uses the caller's id only if it is short and plain, to prevent log injection.
fn request_id(headers: &HeaderMap, next: &AtomicU64) -> HeaderValue {
    let client_id = headers.get(REQUEST_ID).filter(|value| {
        (1..=128).contains(&value.len())
            && value
                .as_bytes()
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte))
    });
    client_id.cloned().unwrap_or_else(|| {
        let number = next.fetch_add(1, Ordering::Relaxed);
        HeaderValue::try_from(format!("{number:016x}"))
            .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    })
}

/// Authenticates the request, or refuses it.
pub(crate) async fn admit(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let authenticated = authenticate(&app, &request).and_then(|caller| {
        let access = access(&caller, request.headers())?;
        Ok((caller, access))
    });
    match authenticated {
        Ok((caller, access)) => {
            let extensions = request.extensions_mut();
            extensions.insert(access);
            if let Some(principal) = caller.principal() {
                extensions.insert(principal);
            }
            next.run(request).await
        }
        Err(error) => {
            if is_langbot_route(request.uri().path()) {
                app.langbot.log_refusal(error.message());
            }
            super::body::discard_briefly(request).await;
            error.into_response()
        }
    }
}

/// The token or local user that a request is authenticated as. A request extension, where known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal(pub(crate) String);

/// How a request was authenticated.
enum Caller {
    /// A probe, or LangBot on its own routes.
    Anonymous,
    /// The name of the token.
    Token(String),
    Local(Peer),
}

impl Caller {
    fn principal(&self) -> Option<Principal> {
        match self {
            Self::Anonymous => None,
            Self::Token(name) => Some(Principal(format!("token {name}"))),
            Self::Local(peer) => match peer.identity {
                PeerIdentity::Uid(uid) => Some(Principal(format!("uid {uid}"))),
                PeerIdentity::Address(address) => Some(Principal(format!("address {address}"))),
                PeerIdentity::Unknown => None,
            },
        }
    }
}

/// Which sessions a request may access.
///
/// Operator rights must be requested explicitly: agents often run under the operator's uid, and a
/// model chooses the session id.
fn access(caller: &Caller, headers: &HeaderMap) -> Result<Access, ApiError> {
    if !headers.contains_key(OPERATOR) {
        return Ok(Access::Clients);
    }
    match caller {
        Caller::Local(peer) if peer.operator => Ok(Access::All),
        _ => Err(ApiError::new(
            ErrorCode::Forbidden,
            "operator access is limited to root and the daemon's user, locally and without a token",
        )
        .hint("remove the header `Boxwood-Operator` (BOXWOOD_OPERATOR on the command line)")),
    }
}

fn authenticate(app: &App, request: &Request) -> Result<Caller, ApiError> {
    let (headers, uri) = (request.headers(), request.uri());
    if !has_valid_escapes(uri.path()) {
        return Err(ApiError::validation(
            "the path has a `%` that is not followed by two hexadecimal digits",
        ));
    }
    if UNAUTHENTICATED_PATHS.contains(&uri.path()) {
        return Ok(Caller::Anonymous);
    }
    let refuse = |reason: crate::auth::BrowserRefusal| {
        ApiError::new(ErrorCode::Forbidden, reason.to_string()).hint(reason.hint())
    };
    check_browser(headers, uri).map_err(refuse)?;
    if let Some(token) = presented_token(headers)? {
        // A web page cannot know a token, so `Host` need not be checked.
        return match app.tokens.check(token) {
            Some(name) => Ok(Caller::Token(name)),
            None => Err(unauthorized("unknown token")),
        };
    }
    if is_langbot_route(uri.path()) && app.langbot.has_control_token(headers) {
        return Ok(Caller::Anonymous);
    }
    // Absent only if the router runs without the listener; no peer is trusted then.
    let Some(peer) = request.extensions().get::<Peer>() else {
        return Err(unauthorized("a token is required"));
    };
    if !peer.trusted {
        if peer.langbot && is_langbot_route(uri.path()) && !is_browser(headers) {
            return Ok(Caller::Anonymous);
        }
        return Err(unauthorized("a token is required"));
    }
    if let Transport::Tcp { local } = peer.transport {
        check_host(headers, uri, local, &app.http.hosts).map_err(refuse)?;
    }
    Ok(Caller::Local(*peer))
}

/// Whether a browser sent the request. LangBot's client can send neither a token nor a known `Host`, so
/// `Host` is not checked for it; requests from browsers must be refused then, because of DNS rebinding.
fn is_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site")
}

/// The routes that LangBot uses: action RPC and the process relay.
fn is_langbot_route(path: &str) -> bool {
    let relay = path
        .strip_prefix("/v1/sessions/")
        .and_then(|rest| rest.strip_suffix("/ws"))
        .is_some_and(|rest| rest.split('/').nth(1) == Some("managed-process"));
    path == "/rpc/ws" || relay
}

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, message).hint(
        "create a token with `boxwood token create NAME` and send it as `Authorization: Bearer …`",
    )
}

/// The presented token, if any. Two different tokens and unsupported schemes are refused.
fn presented_token(headers: &HeaderMap) -> Result<Option<&[u8]>, ApiError> {
    let malformed = || unauthorized("the Authorization or X-API-Key header is malformed");
    let bearer = headers.get_all(header::AUTHORIZATION).iter().map(|value| {
        let (scheme, token) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
    });
    let keys = headers.get_all(API_KEY).iter();
    let mut found = None;
    for token in bearer.chain(keys.map(|value| Some(value.as_bytes()))) {
        let token = token.ok_or_else(malformed)?.trim_ascii();
        if found.replace(token).is_some_and(|known| known != token) {
            return Err(malformed());
        }
    }
    Ok(found)
}

/// The response after a handler has panicked.
#[expect(
    clippy::needless_pass_by_value,
    reason = "signature required by the layer"
)]
pub(crate) fn after_panic(panic: Box<dyn std::any::Any + Send>) -> Response {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    let error = std::io::Error::other(format!("panic: {message}"));
    ApiError::internal("internal error: a request handler panicked", &error).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    value.parse().expect("header value"),
                )
            })
            .collect()
    }

    #[test]
    fn a_token_is_read_from_either_header() {
        let check = |pairs: &[(&'static str, &str)], expected: Option<&str>| {
            let headers = headers(pairs);
            let got = match presented_token(&headers) {
                Ok(token) => token.map(|token| String::from_utf8_lossy(token).into_owned()),
                Err(_) => Some("unreadable".to_owned()),
            };
            assert_eq!(got.as_deref(), expected, "{pairs:?}");
        };
        check(&[], None);
        check(&[("authorization", "Bearer abc")], Some("abc"));
        check(&[("authorization", "bearer  abc ")], Some("abc"));
        check(&[("x-api-key", "abc")], Some("abc"));
        check(
            &[("authorization", "Bearer abc"), ("x-api-key", "abc")],
            Some("abc"),
        );
        check(
            &[("authorization", "Bearer abc"), ("x-api-key", "def")],
            Some("unreadable"),
        );
        check(&[("authorization", "Basic abc")], Some("unreadable"));
        check(
            &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
            Some("unreadable"),
        );
    }

    #[test]
    fn browser_requests_are_not_accepted_as_langbot() {
        let handshake = [("host", "evil.example:5410"), ("connection", "Upgrade")];
        assert!(!is_browser(&headers(&handshake)));
        for (name, value) in [
            ("origin", "http://evil.example:5410"),
            ("sec-fetch-site", "same-origin"),
        ] {
            let mut sent = handshake.to_vec();
            sent.push((name, value));
            // Passes the browser check, because host and origin agree.
            assert_eq!(
                check_browser(&headers(&sent), &"/rpc/ws".parse().expect("path")),
                Ok(())
            );
            assert!(is_browser(&headers(&sent)), "{name}");
        }
    }

    #[test]
    fn only_plain_request_ids_are_echoed() {
        let ids = first_request_id();
        let check = |value: &str, echoed: bool| {
            let got = request_id(&headers(&[("x-request-id", value)]), &ids);
            assert_eq!(got == value, echoed, "{value}");
        };
        check("abc-1.2:3_4", true);
        check("a b", false);
        check("", false);
        check(&"x".repeat(129), false);
        let (one, two) = (
            request_id(&HeaderMap::new(), &ids),
            request_id(&HeaderMap::new(), &ids),
        );
        assert_ne!(one, two);
    }
}
