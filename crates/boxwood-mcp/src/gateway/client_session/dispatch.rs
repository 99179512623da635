//! Dispatches a message that a client sends within a session.

use std::sync::Arc;

use crate::gateway::Inner;
use crate::gateway::client_session::ClientSession;
use crate::gateway::client_session::requests::{self, CloseOnDrop};
use crate::gateway::event_stream::EventStream;
use crate::gateway::params;
use crate::wire::{Kind, Message, is_notification};

/// A response goes to `stream`. `closing` is dropped after it.
pub(crate) async fn dispatch(
    inner: &Arc<Inner>,
    session: &Arc<ClientSession>,
    message: Message,
    stream: &EventStream,
    closing: Option<CloseOnDrop>,
) {
    match (message.kind(), message.id()) {
        (Kind::Request, Some(id)) => match session.begin(id, stream) {
            Ok(call) => requests::spawn(inner, session, call, message, stream.clone(), closing),
            Err(error) => stream.answer(&error.message(Some(id))),
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
