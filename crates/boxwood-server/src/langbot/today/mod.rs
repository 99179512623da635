//! Today's dialect: workspaces, placements and their generations, admission grants.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;

use super::Fault;
use super::conversation::Request;
use crate::http::App;

/// What today's dialect remembers for all its connections.
#[derive(Default)]
pub(crate) struct State {}

/// One connection of today's client.
pub(crate) struct Caller {}

/// `None` when it is not today's client that speaks; an answer when it is and may not.
#[expect(clippy::unnecessary_wraps, reason = "the handshake is judged here")]
pub(super) fn greet(_app: &App, _headers: &HeaderMap) -> Result<Option<Caller>, Response> {
    Ok(None)
}

/// `None` unless the environment says that it is today's LangBot that started us.
pub(super) fn greet_stdio(_app: &App) -> Option<Caller> {
    None
}

impl Caller {
    pub(super) async fn answer(&self, _app: &Arc<App>, request: Request) -> Result<Value, Fault> {
        Err(Fault::new(
            "ValueError",
            format!("Action {} not found", request.action),
        ))
    }
}
