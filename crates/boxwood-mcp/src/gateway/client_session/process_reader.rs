//! Passes the messages of one client process to the client.

use std::sync::Weak;

use boxwood_api::McpServerName;

use crate::gateway::aggregate::rewrite::rewrite_notification;
use crate::gateway::client_session::ClientSession;
use crate::gateway::client_session::pending_requests::{CANCELLED, Responder, TOO_MANY_REQUESTS};
use crate::gateway::json::object;
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::params;
use crate::lock;
use crate::wire::{Connection, Inbound, InboundEvent, Kind, Message, cancellation};

pub(super) struct ProcessReader {
    pub(super) session: Weak<ClientSession>,
    pub(super) connection: Connection,
    /// Set for clients of all servers, whose URIs contain the server name.
    pub(super) server: Option<McpServerName>,
}

impl ProcessReader {
    pub(super) async fn run(self, mut inbound: Inbound) {
        let Some(mut streams) = self.session.upgrade().map(|session| session.streams()) else {
            return;
        };
        streams.mark_changed();
        loop {
            tokio::select! {
                biased;
                Ok(()) = streams.changed() => {
                    self.connection.set_listening(*streams.borrow_and_update() > 0);
                }
                heard = inbound.next() => match (heard, self.session.upgrade()) {
                    (InboundEvent::Message(message), Some(session)) => {
                        self.take(&session, &message).await;
                    }
                    (InboundEvent::Lagged(_), Some(_)) => {}
                    (InboundEvent::Closed, Some(session)) => {
                        cancel_requests(&session, &self.connection);
                        return;
                    }
                    (_, None) => return,
                },
            }
        }
    }

    async fn take(&self, session: &ClientSession, message: &Message) {
        if message.kind() == Kind::Request {
            let Some(id) = message.id().map(ToOwned::to_owned) else {
                return;
            };
            let connection = self.connection.clone();
            let responder = Responder { connection, id };
            if let Err(responder) = session.ask(message, responder) {
                responder.refuse(TOO_MANY_REQUESTS).await;
            }
        } else if message.method() == Some(CANCELLED) {
            let Some(cancelled) = params::get(message.params(), "requestId") else {
                return;
            };
            let taken = session.pending.take_of(&self.connection, Some(&cancelled));
            for id in taken {
                let mut params = message.params().and_then(object).unwrap_or_default();
                params.set("requestId", id);
                session.tell(&message.clone().with_params(Some(params.raw())));
            }
        } else {
            self.notify(session, message);
        }
    }

    fn notify(&self, session: &ClientSession, message: &Message) {
        let Some(server) = &self.server else {
            session.tell(message);
            return;
        };
        let message = rewrite_notification(server, message);
        let is_wanted = match message.method() {
            Some("notifications/message") => {
                let least = lock(session.preferences()).level.unwrap_or(LogLevel::Info);
                LogLevel::of(&message) >= least
            }
            Some("notifications/resources/updated") => {
                let uri = params::text(message.params(), "uri");
                uri.is_some_and(|uri| lock(session.preferences()).uris.contains(&uri))
            }
            _ => false,
        };
        if is_wanted {
            session.tell(&message);
        }
    }
}

/// Cancels the open requests of a process that ended.
pub(super) fn cancel_requests(session: &ClientSession, ended: &Connection) {
    for id in session.pending.take_of(ended, None) {
        session.tell(&cancellation(id));
    }
}
