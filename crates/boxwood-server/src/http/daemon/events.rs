//! Streams session events.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use boxwood_api::{Event as BoxEvent, EventKind, SessionId};
use boxwood_session::Access;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use utoipa::IntoParams;

use crate::http::App;
use crate::http::error::ApiResult;
use crate::http::params::Params;
use crate::http::sessions::exec::sse::{event, respond};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filter {
    /// Only events of this session.
    #[param(value_type = Option<String>)]
    session_id: Option<SessionId>,
}

/// Sent to a client that was too slow: the number of events it missed.
#[derive(Serialize)]
struct Lagged {
    missed: u64,
}

#[utoipa::path(get, path = "/v1/events", tag = "daemon", params(Filter),
    responses((status = 200, content_type = "text/event-stream", body = BoxEvent,
        description = "Events from now on; `lagged` when some were missed")))]
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    reach: Option<Extension<Access>>,
    Params(filter): Params<Filter>,
) -> ApiResult<Response> {
    // Set by the guard for callers with more rights.
    let reach = reach.map_or(Access::Clients, |Extension(reach)| reach);
    let watching = EventStream {
        events: app.sessions.with_access(reach).events(),
        only: filter.session_id,
        stopping: app.stopping.clone(),
    };
    Ok(respond(stream::unfold(
        watching,
        |mut watching| async move {
            let event = watching.next().await?;
            Some((event, watching))
        },
    )))
}

struct EventStream {
    events: boxwood_session::EventStream,
    only: Option<SessionId>,
    stopping: watch::Receiver<bool>,
}

impl EventStream {
    /// `None` if the daemon stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let received = tokio::select! {
                received = self.events.recv() => received,
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            };
            match received {
                Ok(happened) => {
                    if self
                        .only
                        .as_ref()
                        .is_none_or(|only| *only == happened.session_id)
                    {
                        return Some(event(name(&happened.kind), &happened));
                    }
                }
                Err(RecvError::Lagged(missed)) => {
                    return Some(event("lagged", &Lagged { missed }));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

fn name(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::ImagePull(_) => "image_pull",
        EventKind::SessionCreated { .. } => "session_created",
        EventKind::SessionDeleted { .. } => "session_deleted",
        EventKind::SessionFrozen => "session_frozen",
        EventKind::SessionThawed { .. } => "session_thawed",
        EventKind::ExecStarted { .. } => "exec_started",
        EventKind::ExecFinished { .. } => "exec_finished",
        EventKind::ProcessStarted { .. } => "process_started",
        EventKind::ProcessExited { .. } => "process_exited",
        EventKind::McpConnected { .. } => "mcp_connected",
        EventKind::McpFailed { .. } => "mcp_failed",
    }
}
