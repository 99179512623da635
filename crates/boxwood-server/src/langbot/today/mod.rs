//! Today's dialect: workspaces, placements and their generations, admission grants.
//!
//! Comes in: connections that name their platform. Goes out: the same answers as June's, for one
//! workspace at a time. Never here: what both eras do alike.

mod admission;
mod artifacts;
mod caller;
mod control;
mod fence;
mod grants;
mod instance;
mod limits;
mod local;
mod managed;
mod marker;
mod policy;
mod ready;
pub(crate) mod relay;
mod seats;
mod state;
mod storage;
mod tenancy;
mod walk;
mod words;

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;

use crate::http::App;
use crate::langbot::Fault;

pub(crate) use caller::Caller;
pub(crate) use fence::Standing;
pub use instance::InstanceError;
pub(crate) use state::State;

use instance::{Acquaint, Gate};

/// `None` when it is not today's client that speaks; an answer when it is and may not.
pub(super) fn greet(app: &Arc<App>, headers: &HeaderMap) -> Result<Option<Caller>, Box<Response>> {
    if !Gate::speaks_today(headers) {
        return Ok(None);
    }
    let gate = &app.langbot.today.gate;
    let instance = gate
        .judge(headers, Acquaint::First)
        .ok_or_else(|| Box::new(relay::unauthorized()))?;
    admission::start_janitor(app);
    Ok(Some(Caller::new(instance)))
}

/// `None` unless the environment says that it is today's LangBot that started us.
pub(super) fn greet_stdio(app: &Arc<App>) -> Option<Caller> {
    let instance = app.langbot.today.gate.configured()?.clone();
    admission::start_janitor(app);
    Some(Caller::new(instance))
}

/// Does what a platform that started us expects to be done before it speaks.
pub(super) async fn begin(app: &App) -> Result<(), Fault> {
    let state = &app.langbot.today;
    if state.gate.configured().is_none() {
        return Ok(());
    }
    control::make_workspace(app, state.settings()).await
}

/// Whether boxes can be started, as LangBot's probes read it.
pub(crate) async fn readiness(app: &App) -> Value {
    let state = &app.langbot.today;
    state.readiness.look(app, &state.settings()).await
}

impl State {
    /// Whether a handshake shows the control token, which is as good as a token of ours on LangBot's
    /// routes. Only together with the platform's name: June's client knows neither.
    pub(crate) fn shows_token(&self, headers: &HeaderMap) -> bool {
        Gate::speaks_today(headers) && self.gate.has_token(headers)
    }
}
