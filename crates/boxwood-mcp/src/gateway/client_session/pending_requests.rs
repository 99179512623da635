//! Requests from servers to one client that have no response yet.
//!
//! Servers use the same request ids, so the client gets the requests under new ids.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::value::RawValue;

use crate::gateway::error::INTERNAL_ERROR;
use crate::gateway::json::raw;
use crate::lock;
use crate::wire::{Connection, Message};

/// Maximum number of open requests of all servers.
const MAX_REQUESTS: usize = 64;
/// Maximum number of open requests of one process.
const MAX_REQUESTS_PER_PROCESS: usize = 32;

pub(crate) const CANCELLED: &str = "notifications/cancelled";
pub(crate) const TOO_MANY_REQUESTS: &str = "client has too many pending requests";

/// The process that waits for the client's response under its own request id.
pub(crate) struct Responder {
    pub(crate) connection: Connection,
    pub(crate) id: Box<RawValue>,
}

impl Responder {
    fn belongs_to(&self, process: &Connection) -> bool {
        self.connection.id() == process.id()
    }

    pub(crate) async fn respond(self, answer: Message) {
        // The process may be gone.
        let _ = self.connection.respond(answer.with_id(self.id)).await;
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
        let of_same = |other: &&Responder| other.belongs_to(&responder.connection);
        let is_full = state.open.len() >= MAX_REQUESTS;
        if is_full || state.open.values().filter(of_same).count() >= MAX_REQUESTS_PER_PROCESS {
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
        let taken = state.open.extract_if(|_, responder| {
            let has_id = only.is_none_or(|only| only.get() == responder.id.get());
            responder.belongs_to(process) && has_id
        });
        let ids = taken.map(|(id, _)| RawValue::from_string(id.into()).unwrap_or_default());
        ids.collect()
    }
}
