//! What every request passes before its route, and every answer on its way out.
//!
//! Comes in: a request from a judged peer. Goes out: the same request, or a refusal; and on each
//! answer an id, a count and, when it is our fault, a log line. Never here: what routes do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use boxwood_api::ErrorCode;
use boxwood_session::Reach;

use super::App;
use super::error::{ApiError, Cause};
use super::ids::has_valid_escapes;
use crate::auth::{Peer, Transport, Who, check_browser, check_host};
use crate::load::{Weight, weigh};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Whoever sends it means to go where clients may not.
const OPERATOR: HeaderName = HeaderName::from_static("boxwood-operator");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Probes of load balancers and orchestrators have no token and any `Host`.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// The outermost layer: gives each request an id and writes down how it ended.
pub(crate) async fn account(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    // Whoever reads the body adds to it; it is all given back when the answer is there, or when a call that
    // goes on after that has let the body go.
    let weight = Weight::new(app.sessions.budget());
    request.extensions_mut().insert(weight.clone());
    let id = request_id(request.headers(), &app.request_ids);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = weigh(next.run(request).await, app.sessions.budget());
    drop(weight);
    let status = response.status();
    let route = route.as_ref().map_or("unknown", MatchedPath::as_str);
    let elapsed = started.elapsed();
    app.metrics.request(&method, route, status.as_u16());
    let shown = id.to_str().unwrap_or_default();
    if let Some(Cause(cause)) = response.extensions_mut().remove() {
        tracing::error!(request_id = shown, %method, route, status = status.as_u16(), cause, "request failed");
    } else {
        tracing::debug!(request_id = shown, %method, route, status = status.as_u16(), ?elapsed, "request");
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Ids of this daemon: a random start, then counting.
pub(crate) struct RequestIds {
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        // Uniqueness across restarts is a convenience for log readers, so a clock will do.
        let seed = jiff::Timestamp::now().as_microsecond().cast_unsigned();
        Self {
            next: AtomicU64::new(seed << 12),
        }
    }
}

/// The caller's own id when it is short and plain, so that nobody can write into our log.
fn request_id(headers: &HeaderMap, ids: &RequestIds) -> HeaderValue {
    let given = headers.get(REQUEST_ID).filter(|value| {
        (1..=128).contains(&value.len())
            && value
                .as_bytes()
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte))
    });
    given.cloned().unwrap_or_else(|| {
        let number = ids.next.fetch_add(1, Ordering::Relaxed);
        HeaderValue::try_from(format!("{number:016x}"))
            .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    })
}

/// Lets a request through to its route, or says why not.
pub(crate) async fn admit(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let judged = judge(&app, &request).and_then(|caller| {
        let reach = reach(&caller, request.headers())?;
        Ok((caller, reach))
    });
    match judged {
        Ok((caller, reach)) => {
            let extensions = request.extensions_mut();
            extensions.insert(reach);
            if let Some(principal) = caller.principal() {
                extensions.insert(principal);
            }
            next.run(request).await
        }
        Err(error) => {
            if is_langbots(request.uri().path()) {
                app.langbot.note_refusal(error.message());
            }
            super::json::discard_briefly(request).await;
            error.into_response()
        }
    }
}

/// On whose behalf a request is: a token, or a local user who needs none. In the extensions of a request
/// for which that is known, and the same for all of theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal(pub(crate) String);

/// Who was let in, and by what.
enum Caller {
    /// A probe, or LangBot at its own routes.
    Nameless,
    /// By the name of its token.
    Token(String),
    Local(Peer),
}

impl Caller {
    fn principal(&self) -> Option<Principal> {
        match self {
            Self::Nameless => None,
            Self::Token(name) => Some(Principal(format!("token {name}"))),
            Self::Local(peer) => match peer.who {
                Who::Uid(uid) => Some(Principal(format!("uid {uid}"))),
                Who::Address(address) => Some(Principal(format!("address {address}"))),
                Who::Unknown => None,
            },
        }
    }
}

/// Which sessions a request may have to do with.
///
/// Being the operator is not enough, he must say so: agents run under his uid as well, and which
/// session they mean is often a model's choice.
fn reach(caller: &Caller, headers: &HeaderMap) -> Result<Reach, ApiError> {
    if !headers.contains_key(OPERATOR) {
        return Ok(Reach::Clients);
    }
    match caller {
        Caller::Local(peer) if peer.operator => Ok(Reach::All),
        _ => Err(ApiError::new(
            ErrorCode::Forbidden,
            "only root and the daemon's own user act as its operator, on its machine and without a token",
        )
        .hint("leave `Boxwood-Operator` (BOXWOOD_OPERATOR for the command line) out")),
    }
}

fn judge(app: &App, request: &Request) -> Result<Caller, ApiError> {
    let (headers, uri) = (request.headers(), request.uri());
    if !has_valid_escapes(uri.path()) {
        return Err(ApiError::validation(
            "the path has a `%` that is not followed by two hexadecimal digits",
        ));
    }
    if OPEN.contains(&uri.path()) {
        return Ok(Caller::Nameless);
    }
    let refuse = |reason: crate::auth::FromElsewhere| {
        ApiError::new(ErrorCode::Forbidden, reason.to_string()).hint(reason.hint())
    };
    check_browser(headers, uri).map_err(refuse)?;
    match presented(headers) {
        Presented::Token(token) => match app.tokens.check(token) {
            // A page cannot know a token, so a caller with one may use any name for us.
            Some(name) => return Ok(Caller::Token(name)),
            None => return Err(unauthorized("the token is not known")),
        },
        Presented::Unreadable => {
            return Err(unauthorized(
                "the Authorization or X-API-Key header cannot be read",
            ));
        }
        Presented::Nothing => {}
    }
    if is_langbots(uri.path()) && app.langbot.today.shows_token(headers) {
        return Ok(Caller::Nameless);
    }
    // Absent only when somebody wires the router without its listener: then nobody is trusted.
    let Some(peer) = request.extensions().get::<Peer>() else {
        return Err(unauthorized("a token is needed"));
    };
    if !peer.trusted {
        if peer.langbot && is_langbots(uri.path()) && !is_page(headers) {
            return Ok(Caller::Nameless);
        }
        return Err(unauthorized("a token is needed"));
    }
    if let Transport::Tcp { local } = peer.transport {
        check_host(headers, uri, local, &app.http.hosts).map_err(refuse)?;
    }
    Ok(Caller::Local(*peer))
}

/// LangBot's own client can send no token and does not know our name, so its `Host` is not looked at.
/// It is no browser either: a page whose name was made to point here would look like our own.
fn is_page(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site")
}

/// Action RPC and the relay, which are all that LangBot uses.
fn is_langbots(path: &str) -> bool {
    let relay = path
        .strip_prefix("/v1/sessions/")
        .and_then(|rest| rest.strip_suffix("/ws"))
        .is_some_and(|rest| rest.split('/').nth(1) == Some("managed-process"));
    path == "/rpc/ws" || relay
}

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, message).hint(
        "make a token with `boxwood token create NAME` and send it as `Authorization: Bearer …`",
    )
}

enum Presented<'a> {
    Nothing,
    Token(&'a [u8]),
    /// Two different ones, or a scheme that is not ours.
    Unreadable,
}

fn presented(headers: &HeaderMap) -> Presented<'_> {
    let bearer = |value: &'_ HeaderValue| -> Option<(usize, usize)> {
        let bytes = value.as_bytes();
        let scheme = bytes.get(..7)?;
        scheme
            .eq_ignore_ascii_case(b"bearer ")
            .then_some((7, bytes.len()))
    };
    let mut found: Option<&[u8]> = None;
    for value in headers.get_all(header::AUTHORIZATION) {
        let Some((start, end)) = bearer(value) else {
            return Presented::Unreadable;
        };
        let token = value.as_bytes()[start..end].trim_ascii();
        if found.is_some_and(|known| known != token) {
            return Presented::Unreadable;
        }
        found = Some(token);
    }
    for value in headers.get_all(API_KEY) {
        let token = value.as_bytes().trim_ascii();
        if found.is_some_and(|known| known != token) {
            return Presented::Unreadable;
        }
        found = Some(token);
    }
    found.map_or(Presented::Nothing, Presented::Token)
}

/// The answer after a handler has panicked. The daemon goes on.
#[expect(
    clippy::needless_pass_by_value,
    reason = "this is the shape the layer calls"
)]
pub(crate) fn after_panic(panic: Box<dyn std::any::Any + Send>) -> Response {
    let words = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    let error = std::io::Error::other(format!("panic: {words}"));
    ApiError::internal("the daemon made a mistake with this request", &error).into_response()
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
            let got = match presented(&headers) {
                Presented::Token(token) => Some(String::from_utf8_lossy(token).into_owned()),
                Presented::Nothing => None,
                Presented::Unreadable => Some("unreadable".to_owned()),
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
    fn a_page_is_no_langbot() {
        let handshake = [("host", "evil.example:5410"), ("connection", "Upgrade")];
        assert!(!is_page(&headers(&handshake)));
        for (name, value) in [
            ("origin", "http://evil.example:5410"),
            ("sec-fetch-site", "same-origin"),
        ] {
            let mut sent = handshake.to_vec();
            sent.push((name, value));
            // Passes for a page of the daemon's own.
            assert_eq!(
                check_browser(&headers(&sent), &"/rpc/ws".parse().expect("path")),
                Ok(())
            );
            assert!(is_page(&headers(&sent)), "{name}");
        }
    }

    #[test]
    fn only_plain_request_ids_are_echoed() {
        let ids = RequestIds::new();
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
