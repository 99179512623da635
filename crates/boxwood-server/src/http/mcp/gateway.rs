//! `/mcp/{name}` and `/mcp/_all`: the MCP gateway to hosted servers. `boxwood-mcp` implements the
//! protocol.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method};
use axum::routing::{any, get, post};
use boxwood_api::McpServerName;
use boxwood_mcp::{BodyPermit, Target};
use bytes::Bytes;

use super::until_stopped;
use crate::http::error::{ApiError, ApiResult};
use crate::http::guard::Principal;
use crate::http::{App, body};

/// Stands for all servers. Server names cannot start with an underscore.
const ALL: &str = "_all";

pub(crate) fn routes(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .route("/mcp/{name}", any(streamable))
        .route("/mcp/{name}/sse", get(sse))
        .route("/mcp/{name}/messages", post(message))
}

/// All methods are passed on; the gateway rejects those it does not support.
async fn streamable(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> ApiResult {
    let gateway = app.mcp.gateway()?;
    let target = target(&name)?;
    let is_long_lived = request.method() == Method::GET || listens(request.headers());
    let (principal, request) = read_request(&app, request).await?;
    let answer = gateway.answer(target, principal, request).await;
    Ok(answer.map(|body| {
        let body = Body::new(body);
        if is_long_lived {
            until_stopped(&app, body)
        } else {
            body
        }
    }))
}

/// The deprecated HTTP+SSE transport.
async fn sse(State(app): State<Arc<App>>, Path(name): Path<String>, request: Request) -> ApiResult {
    let gateway = app.mcp.gateway()?;
    let target = target(&name)?;
    let (principal, request) = read_request(&app, request).await?;
    let answer = gateway.sse_open(target, principal, request).await;
    Ok(answer.map(|body| until_stopped(&app, Body::new(body))))
}

async fn message(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> ApiResult {
    let gateway = app.mcp.gateway()?;
    let target = target(&name)?;
    let (principal, request) = read_request(&app, request).await?;
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

/// A request for a long-lived stream.
fn listens(headers: &HeaderMap) -> bool {
    let method = headers.get("mcp-method");
    method.is_some_and(|method| method == "subscriptions/listen")
}

/// The principal, and the request with its complete body.
async fn read_request(
    app: &App,
    request: Request,
) -> ApiResult<(Option<String>, axum::http::Request<Bytes>)> {
    let principal = request.extensions().get::<Principal>();
    let principal = principal.map(|principal| principal.0.clone());
    let (mut request, memory) = body::read_whole(app, request).await?;
    let (budget, length) = (app.sessions.budget(), request.body().len());
    let share = app.mcp_limit.take(principal.as_deref(), length, budget)?;
    // The call may keep the body long after the response has started.
    let permit = BodyPermit::new((memory, share));
    request.extensions_mut().insert(permit);
    Ok((principal, request))
}

#[cfg(test)]
mod tests {
    use boxwood_session::Budget;

    use super::*;
    use crate::load::RequestMemory;

    #[test]
    fn a_body_is_charged_until_the_call_releases_its_permit() {
        let budget = Budget::new(1000);
        let memory = RequestMemory::new(&budget);
        memory.take(100).expect("room");
        let permit = BodyPermit::new(memory.clone());
        // As when the answer has begun.
        drop(memory);
        assert_eq!(budget.used(), 100);
        drop(permit);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_target_is_a_server_name_or_all_servers() {
        assert!(matches!(target("_all"), Ok(Target::All)));
        assert!(matches!(target("time"), Ok(Target::One(name)) if name.as_str() == "time"));
        for bad in ["", "_other", "a/b", "..", "a b"] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }
}
