//! Requests from servers to one client that have no response yet.
//!
//! Servers number their requests alike, so the client gets them under new ids.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::gateway::json::raw;
use crate::wire::{Connection, Message, Object};

/// A user may have to answer. Servers do not wait longer.
pub(crate) const CLIENT_RESPONSE_TIMEOUT: Duration = Duration::from_mins(10);
/// Maximum number of open requests of all servers.
const MOST: usize = 64;
/// Maximum number of open requests of one process.
const MOST_OF_ONE: usize = 32;

pub(crate) const CANCELLED: &str = "notifications/cancelled";
pub(crate) const NO_CLIENT_RESPONSE: &str = "the client did not respond";
pub(crate) const TOO_MANY_REQUESTS: &str = "client has too many pending requests";

/// Tells the client that a request was cancelled.
pub(crate) fn cancellation(id: &RawValue) -> Message {
    let mut params = Object::default();
    params.set("requestId", id.to_owned());
    params.set("reason", raw("request cancelled"));
    Message::notification(CANCELLED, Some(params.raw()))
}

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
}

#[derive(Default)]
pub(crate) struct PendingRequests {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    /// By the id that the client knows.
    open: HashMap<Box<str>, (Responder, Instant)>,
}

impl PendingRequests {
    /// Returns the id for the client, or the responder if there are too many open requests.
    pub(crate) fn add(&self, responder: Responder) -> Result<Box<RawValue>, Responder> {
        let mut state = self.lock();
        let of_same = |(other, _): &&(Responder, Instant)| match &responder {
            Responder::Process { connection, .. } => other.is_of(connection),
            Responder::Call(_) => false,
        };
        let is_full = state.open.len() >= MOST;
        if is_full || state.open.values().filter(of_same).count() >= MOST_OF_ONE {
            return Err(responder);
        }
        state.last += 1;
        let id = raw(&format!("boxwood-{}", state.last));
        let entry = (responder, Instant::now());
        state.open.insert(id.get().into(), entry);
        Ok(id)
    }

    pub(crate) fn take(&self, id: &RawValue) -> Option<Responder> {
        let taken = self.lock().open.remove(id.get());
        taken.map(|(responder, _)| responder)
    }

    pub(crate) fn take_all(&self) -> Vec<Responder> {
        let open = std::mem::take(&mut self.lock().open);
        open.into_values().map(|(responder, _)| responder).collect()
    }

    /// Removes the requests of one process for which `is_over` returns true, given the process's own id and
    /// the time of the request.
    pub(crate) fn take_of(
        &self,
        process: &Connection,
        is_over: impl Fn(&RawValue, Instant) -> bool,
    ) -> Vec<(Box<RawValue>, Responder)> {
        let mut state = self.lock();
        let taken = state.open.extract_if(|_, (responder, asked_at)| {
            let own = matches!(responder, Responder::Process { id, .. } if is_over(id, *asked_at));
            own && responder.is_of(process)
        });
        taken
            .map(|(id, (responder, _))| {
                let id = RawValue::from_string(id.into()).unwrap_or_default();
                (id, responder)
            })
            .collect()
    }

    /// When the oldest request of the process times out.
    pub(crate) fn deadline_of(&self, process: &Connection) -> Option<Instant> {
        let state = self.lock();
        let own = state.open.values().filter(|(one, _)| one.is_of(process));
        let oldest = own.map(|(_, asked_at)| *asked_at).min();
        oldest.map(|asked_at| asked_at + CLIENT_RESPONSE_TIMEOUT)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
