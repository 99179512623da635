//! Streams session events.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::sse::Event;
use boxwood_api::{Event as BoxEvent, SessionId};
use boxwood_session::Access;
use futures_util::future::ready;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
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
    access: Option<Extension<Access>>,
    Params(filter): Params<Filter>,
) -> ApiResult {
    // Set by the guard for callers with more rights.
    let access = access.map_or(Access::Clients, |Extension(access)| access);
    let events = app.sessions.with_access(access).events();
    let events = stream::unfold(events, async |mut events| match events.recv().await {
        Err(RecvError::Closed) => None,
        received => Some((received, events)),
    });
    let session_filter = filter.session_id;
    let to_frame = move |received: Result<BoxEvent, RecvError>| {
        ready(match received {
            Ok(box_event) => {
                let matches_filter = session_filter
                    .as_ref()
                    .is_none_or(|session_filter| *session_filter == box_event.session_id);
                matches_filter.then(|| to_event(&box_event))
            }
            Err(RecvError::Lagged(missed)) => Some(event("lagged", &Lagged { missed })),
            Err(RecvError::Closed) => None,
        })
    };
    Ok(respond(
        events.filter_map(to_frame).take_until(app.stopped()),
    ))
}

/// An event with the name of its kind.
fn to_event(box_event: &BoxEvent) -> Event {
    let body = serde_json::to_value(box_event).unwrap_or_default();
    event(body["event"].as_str().unwrap_or_default(), &body)
}
