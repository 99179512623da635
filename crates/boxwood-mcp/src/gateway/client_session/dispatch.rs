//! Dispatches the messages that a client sends within a session.

use std::sync::Arc;

use crate::gateway::Inner;
use crate::gateway::client_session::ClientSession;
use crate::gateway::client_session::requests::{self, CallStreams, CloseOnDrop};
use crate::gateway::event_stream::EventStream;
use crate::gateway::params;
use crate::wire::{Kind, Message, is_notification};

/// Starts all requests of a body. The stream is closed after the last response.
pub(crate) async fn dispatch_body(
    inner: &Arc<Inner>,
    session: &Arc<ClientSession>,
    messages: Vec<Message>,
    event_stream: &EventStream,
    takes_events: bool,
) {
    let closing = Arc::new(CloseOnDrop(event_stream.clone()));
    let notifications = if takes_events {
        event_stream.clone()
    } else {
        session.standalone_stream().clone()
    };
    let streams = CallStreams {
        answer: event_stream.clone(),
        notifications,
    };
    for message in messages {
        let closing = Some(Arc::clone(&closing));
        dispatch(inner, session, message, &streams, takes_events, closing).await;
    }
}

/// For the HTTP+SSE transport: one stream for all responses.
pub(crate) async fn dispatch_to_standalone_stream(
    inner: &Arc<Inner>,
    session: &Arc<ClientSession>,
    message: Message,
) {
    let streams = CallStreams {
        answer: session.standalone_stream().clone(),
        notifications: session.standalone_stream().clone(),
    };
    dispatch(inner, session, message, &streams, true, None).await;
}

async fn dispatch(
    inner: &Arc<Inner>,
    session: &Arc<ClientSession>,
    message: Message,
    streams: &CallStreams,
    takes_events: bool,
    closing: Option<Arc<CloseOnDrop>>,
) {
    match (message.kind(), message.id()) {
        (Kind::Request, Some(id)) => match session.begin(id, &streams.answer, takes_events) {
            Ok(call) => requests::spawn(inner, session, call, message, streams.clone(), closing),
            Err(error) => {
                streams.answer.answer(&error.message(Some(id)));
            }
        },
        (Kind::Response, _) => session.respond(message).await,
        (Kind::Request | Kind::Notification, _) => notify(session, message).await,
    }
}

async fn notify(session: &ClientSession, message: Message) {
    match message.method() {
        // The handshake with the process already sent it.
        Some("notifications/initialized") => {}
        // Server request ids differ. Cancelling the call notifies the server.
        Some("notifications/cancelled") => {
            if let Some(id) = params::get(message.params(), "requestId") {
                session.cancel(&id);
            }
        }
        // Client notifications never go to a shared process.
        Some(method) if is_notification(method) => {
            let initialized = session.initialized();
            if let Some(processes) = initialized.and_then(|it| it.processes.as_ref()) {
                processes.notify(&message).await;
            }
        }
        // A request without an id is dropped: some servers would execute it, and no tool filter was
        // applied.
        _ => {}
    }
}
