//! `/mcp`: the agent tools for MCP clients. `boxwood-mcp` implements the protocol.

pub(super) mod gateway;
pub(super) mod progress;
pub(super) mod servers;

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, any};
use boxwood_mcp::HttpServer;
use futures_util::StreamExt as _;

use super::App;
use super::body;

/// All methods are passed on; the MCP server rejects those it does not support.
pub(super) fn route(app: &App) -> MethodRouter<Arc<App>> {
    let server = HttpServer::new(app.agent.clone(), app.http.max_body_bytes);
    any(move |State(app): State<Arc<App>>, request: Request| serve(app, server.clone(), request))
}

async fn serve(app: Arc<App>, server: HttpServer, request: Request) -> Response {
    if request.method() == Method::GET {
        let answer = server.answer(request).await;
        return answer.map(|body| until_stopped(&app, Body::new(body)));
    }
    match body::read_whole(&app, request).await {
        Ok((request, _memory)) => server.answer(request.map(Body::from)).await.map(Body::new),
        Err(error) => error.into_response(),
    }
}

/// Ends a notification stream at shutdown, which would otherwise wait for the client.
pub(super) fn until_stopped(app: &App, body: Body) -> Body {
    if body.size_hint().exact().is_some() {
        return body;
    }
    Body::from_stream(body.into_data_stream().take_until(app.stopped()))
}
