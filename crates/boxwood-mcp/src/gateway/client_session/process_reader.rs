//! Passes the messages of one client process to the client.

use std::future::pending;
use std::sync::{Arc, Mutex, Weak};

use boxwood_api::McpServerName;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use crate::gateway::aggregate::rewrite::rewrite_notification;
use crate::gateway::client_session::ClientSession;
use crate::gateway::client_session::client_processes::lock;
use crate::gateway::client_session::pending_requests::{
    CANCELLED, CLIENT_RESPONSE_TIMEOUT, NO_CLIENT_RESPONSE, Responder, TOO_MANY_REQUESTS,
    cancellation,
};
use crate::gateway::client_session::preferences::Preferences;
use crate::gateway::error::INTERNAL_ERROR;
use crate::gateway::json::object;
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::params;
use crate::wire::{Connection, Inbound, InboundEvent, Kind, Message};

pub(super) struct ProcessReader {
    pub(super) session: Weak<ClientSession>,
    pub(super) connection: Connection,
    pub(super) preferences: Arc<Mutex<Preferences>>,
    /// Set for clients of all servers, whose URIs contain the server name.
    pub(super) server: Option<McpServerName>,
}

impl ProcessReader {
    pub(super) async fn run(
        self,
        mut inbound: Inbound,
        mut flushes: mpsc::Receiver<oneshot::Sender<()>>,
    ) {
        let Some(mut streams) = self.session.upgrade().map(|session| session.streams()) else {
            return;
        };
        streams.mark_changed();
        loop {
            let session = self.session.upgrade();
            let deadline = session.and_then(|it| it.pending.deadline_of(&self.connection));
            let timed_out = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => pending().await,
                }
            };
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
                flush = flushes.recv() => match flush {
                    Some(done) => drop(done.send(())),
                    None => return,
                },
                () = timed_out => self.refuse_late().await,
            }
        }
    }

    async fn take(&self, session: &ClientSession, message: &Message) {
        if message.kind() == Kind::Request {
            let Some(id) = message.id().map(ToOwned::to_owned) else {
                return;
            };
            let connection = self.connection.clone();
            let responder = Responder::Process { connection, id };
            if let Err(responder) = session.ask(message, responder) {
                refuse(responder, TOO_MANY_REQUESTS).await;
            }
        } else if message.method() == Some(CANCELLED) {
            let cancelled = params::get(message.params(), "requestId");
            let is_cancelled = |id: &RawValue| {
                let cancelled = cancelled.as_ref();
                cancelled.is_some_and(|cancelled| cancelled.get() == id.get())
            };
            let taken = session
                .pending
                .take_of(&self.connection, |id, _| is_cancelled(id));
            for (id, _) in taken {
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
                let least = lock(&self.preferences).level.unwrap_or(LogLevel::Info);
                LogLevel::of(&message) >= least
            }
            Some("notifications/resources/updated") => {
                let uri = params::text(message.params(), "uri");
                uri.is_some_and(|uri| lock(&self.preferences).uris.contains(&uri))
            }
            _ => false,
        };
        if is_wanted {
            session.tell(&message);
        }
    }

    async fn refuse_late(&self) {
        let Some(session) = self.session.upgrade() else {
            return;
        };
        let late = session.pending.take_of(&self.connection, |_, asked_at| {
            asked_at.elapsed() >= CLIENT_RESPONSE_TIMEOUT
        });
        for (id, responder) in late {
            session.tell(&cancellation(&id));
            refuse(responder, NO_CLIENT_RESPONSE).await;
        }
    }
}

/// Cancels the open requests of a process that ended.
pub(super) fn cancel_requests(session: &ClientSession, ended: &Connection) {
    for (id, _) in session.pending.take_of(ended, |_, _| true) {
        session.tell(&cancellation(&id));
    }
}

async fn refuse(responder: Responder, text: &str) {
    let refusal = Message::failure(None, INTERNAL_ERROR, text, None);
    responder.respond(refusal).await;
}
