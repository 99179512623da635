//! `/mcp/{name}` and `/mcp/_all`: hosted servers for MCP clients.
//!
//! Comes in: a request that the guard has admitted. Goes out: the gateway's answer, which may be a
//! stream. Never here: the protocol; `boxwood-mcp` speaks it.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use boxwood_api::McpServerName;
use boxwood_mcp::{Burden, Target};
use bytes::Bytes;

use super::error::{ApiError, ApiResult};
use super::guard::Principal;
use super::mcp::until;
use super::{App, json};
use crate::load::Weight;

/// In the place of a name: every server. No name begins so.
const ALL: &str = "_all";

pub(super) fn routes(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .route("/mcp/{name}", any(streamable))
        .route("/mcp/{name}/sse", get(sse))
        .route("/mcp/{name}/messages", post(message))
}

/// Every method: the gateway knows which it has.
async fn streamable(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let gateway = app.mcp.gateway()?;
    let target = target(&name)?;
    let waits_for_news = request.method() == Method::GET || listens(request.headers());
    let (principal, request) = match whole(&app, request).await {
        Ok(read) => read,
        Err(error) => return Ok(error.into_response()),
    };
    let answer = gateway.answer(target, principal, request).await;
    Ok(answer.map(|body| {
        let body = Body::new(body);
        if waits_for_news {
            until(app.stopping.clone(), body)
        } else {
            body
        }
    }))
}

/// The older way: one stream for everything that the server says.
async fn sse(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let gateway = app.mcp.gateway()?;
    let target = target(&name)?;
    let (principal, request) = whole(&app, request).await?;
    let answer = gateway.sse_open(target, principal, request).await;
    Ok(answer.map(|body| until(app.stopping.clone(), Body::new(body))))
}

async fn message(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    let gateway = app.mcp.gateway()?;
    let target = target(&name)?;
    let (principal, request) = whole(&app, request).await?;
    let answer = gateway.sse_message(target, principal, request).await;
    Ok(answer.map(Body::new))
}

fn target(name: &str) -> ApiResult<Target> {
    if name == ALL {
        return Ok(Target::All);
    }
    let name = McpServerName::new(name).map_err(|error| {
        ApiError::validation(error.to_string()).hint("`GET /v1/mcp/servers` lists all servers")
    })?;
    Ok(Target::One(name))
}

/// A request whose answer goes on for as long as the client likes.
fn listens(headers: &HeaderMap) -> bool {
    let method = headers.get("mcp-method");
    method.is_some_and(|method| method == "subscriptions/listen")
}

/// Who asks, and the request with all of its body.
async fn whole(
    app: &App,
    request: Request,
) -> ApiResult<(Option<String>, axum::http::Request<Bytes>)> {
    let principal = request.extensions().get::<Principal>();
    let principal = principal.map(|principal| principal.0.clone());
    let weight = Weight::of(&request, app.sessions.budget());
    let (mut parts, body) = request.into_parts();
    let mut reading = Request::new(body);
    *reading.headers_mut() = parts.headers.clone();
    let limit = app.http.max_body_bytes;
    let bytes = json::read(reading, limit, app.body_timeout(), &weight).await?;
    let shares = &app.mcp_shares;
    let share = shares.take(principal.as_deref(), bytes.len(), app.sessions.budget())?;
    // The call may hold on to what was read long after its answer has begun.
    parts.extensions.insert(Burden::new((weight, share)));
    Ok((principal, axum::http::Request::from_parts(parts, bytes)))
}

#[cfg(test)]
mod tests {
    use boxwood_session::Budget;

    use super::*;

    #[test]
    fn a_body_weighs_for_as_long_as_a_call_holds_on_to_it() {
        let budget = Budget::new(1000);
        let weight = Weight::new(&budget);
        weight.take(100).expect("room");
        let burden = Burden::new(weight.clone());
        // As when the answer has begun.
        drop(weight);
        assert_eq!(budget.used(), 100);
        drop(burden);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_name_or_all_of_them() {
        assert!(matches!(target("_all"), Ok(Target::All)));
        assert!(matches!(target("time"), Ok(Target::One(name)) if name.as_str() == "time"));
        for bad in ["", "_other", "a/b", "..", "a b"] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }
}
