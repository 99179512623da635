//! Requests from servers to one client that have no response yet.
//!
//! Servers number their requests alike, so the client gets them under new ids.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::gateway::error::INTERNAL_ERROR;
use crate::gateway::json::raw;
use crate::lock;
use crate::wire::{Connection, Message};

/// Maximum number of open requests of all servers.
const MOST: usize = 64;
/// Maximum number of open requests of one process.
const MOST_OF_ONE: usize = 32;

pub(crate) const CANCELLED: &str = "notifications/cancelled";
pub(crate) const TOO_MANY_REQUESTS: &str = "client has too many pending requests";

/// Where the client's response goes.
pub(crate) enum Responder {
    /// A process that waits for the response under its own request id.
    Process {
        connection: Connection,
        id: Box<RawValue>,
    },
    /// A call of a modern server, which is repeated with the response.
    Call(oneshot::Sender<Message>),
}

impl Responder {
    pub(crate) fn is_of(&self, process: &Connection) -> bool {
        matches!(self, Self::Process { connection, .. } if connection.id() == process.id())
    }

    pub(crate) async fn respond(self, answer: Message) {
        match self {
            // The process or the call may be gone.
            Self::Process { connection, id } => drop(connection.respond(answer.with_id(id)).await),
            Self::Call(waiting) => drop(waiting.send(answer)),
        }
    }

    pub(crate) async fn refuse(self, text: &str) {
        self.respond(Message::failure(None, INTERNAL_ERROR, text, None))
            .await;
    }
}

#[derive(Default)]
pub(crate) struct PendingRequests {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    /// By the id that the client knows.
    open: HashMap<Box<str>, Responder>,
}

impl PendingRequests {
    /// Returns the id for the client, or the responder if there are too many open requests.
    pub(crate) fn add(&self, responder: Responder) -> Result<Box<RawValue>, Responder> {
        let mut state = lock(&self.state);
        let of_same = |other: &&Responder| match &responder {
            Responder::Process { connection, .. } => other.is_of(connection),
            Responder::Call(_) => false,
        };
        let is_full = state.open.len() >= MOST;
        if is_full || state.open.values().filter(of_same).count() >= MOST_OF_ONE {
            return Err(responder);
        }
        state.last += 1;
        let id = raw(&format!("boxwood-{}", state.last));
        state.open.insert(id.get().into(), responder);
        Ok(id)
    }

    pub(crate) fn take(&self, id: &RawValue) -> Option<Responder> {
        lock(&self.state).open.remove(id.get())
    }

    pub(crate) fn take_all(&self) -> Vec<Responder> {
        let open = std::mem::take(&mut lock(&self.state).open);
        open.into_values().collect()
    }

    /// Removes the requests of one process, or the one with this id of the process. Returns the client's ids.
    pub(crate) fn take_of(
        &self,
        process: &Connection,
        only: Option<&RawValue>,
    ) -> Vec<Box<RawValue>> {
        let mut state = lock(&self.state);
        let taken = state.open.extract_if(|_, responder| match responder {
            Responder::Process { connection, id } => {
                connection.id() == process.id() && only.is_none_or(|only| only.get() == id.get())
            }
            Responder::Call(_) => false,
        });
        let ids = taken.map(|(id, _)| RawValue::from_string(id.into()).unwrap_or_default());
        ids.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_has_a_limited_number_of_open_requests() {
        let requests = PendingRequests::default();
        let mut waiting = Vec::new();
        for _ in 0..MOST {
            let (responder, answer) = oneshot::channel();
            let added = requests.add(Responder::Call(responder));
            waiting.push((added.ok().expect("room"), answer));
        }
        let more = || Responder::Call(oneshot::channel().0);
        assert!(requests.add(more()).is_err());
        let (id, answer) = waiting.swap_remove(0);
        let responder = requests.take(&id).expect("it is open");
        responder
            .respond(Message::result(id.clone(), raw("yes")))
            .await;
        assert!(answer.await.is_ok());
        assert!(requests.take(&id).is_none(), "a response is taken once");
        assert!(requests.add(more()).is_ok());
    }
}
