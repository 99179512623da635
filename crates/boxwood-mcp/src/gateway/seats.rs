//! Processes of clients of the stateless era, on servers of the era before.
//!
//! Such a server asks its client by itself, and says not about which call. So each process has one call at
//! a time, and each client has processes of its own, told apart by who it is and what it offers. Between
//! calls a process is kept for a while: it may remember something.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_api::McpServerName;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::behind::{Behind, Child};
use super::envelope::Asked;
use super::json::{digest_of, raw};
use super::level::Level;
use super::sweeping::{Swept, sweep};
use super::versions::NEWEST;
use crate::hosting::HostingError;
use crate::wire::{Connection, Greeting, Message, Object};

/// Without a call.
const KEPT: Duration = Duration::from_mins(5);
/// Of one client.
const MOST_KEPT: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Whose {
    server: McpServerName,
    principal: Option<String>,
    /// Of what the client says of itself and offers.
    client: [u8; 32],
    /// Another process of the server's is another life.
    main: u64,
}

/// One process, and what it was told.
pub(crate) struct Seat {
    pub(crate) whose: Whose,
    pub(crate) child: Child,
    pub(crate) level: Option<Level>,
    /// It has had no call yet.
    pub(crate) is_new: bool,
    number: u64,
    free_since: Instant,
}

impl Seat {
    pub(crate) async fn answer(&mut self, answer: Message) {
        // A server that is gone needs no answer, and the call says so.
        let _ = self.child.connection.respond(answer).await;
    }
}

#[derive(Clone, Default)]
pub(crate) struct Seats {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The one used last is at the end.
    free: HashMap<Whose, Vec<Seat>>,
    last: u64,
    is_swept: bool,
    is_closed: bool,
}

impl Seats {
    /// The client's process that was used last and is free, or a new one.
    pub(crate) async fn take(
        &self,
        behind: &dyn Behind,
        principal: Option<&str>,
        asked: &Asked,
    ) -> Result<Seat, HostingError> {
        let capabilities = asked.capabilities.raw();
        let whose = Whose {
            server: behind.name().clone(),
            principal: principal.map(ToOwned::to_owned),
            client: digest_of(&[asked.client_info.as_deref(), Some(&capabilities)]),
            main: behind.main().id(),
        };
        while let Some(seat) = self.lock().pop(&whose) {
            if !seat.child.connection.is_ended() {
                return Ok(seat);
            }
        }
        let mut child = behind.own(initialize(asked)).await;
        if matches!(child, Err(HostingError::Full { .. })) {
            // One that nobody uses makes room for one that is needed.
            let unused = self.lock().remove_oldest(&whose.server);
            if unused.is_some() {
                drop(unused);
                child = behind.own(initialize(asked)).await;
            }
        }
        Ok(Seat {
            whose,
            child: child?,
            level: None,
            is_new: true,
            number: 0,
            free_since: Instant::now(),
        })
    }

    /// After a call that has ended.
    pub(crate) fn give_back(&self, mut seat: Seat) {
        if seat.child.connection.is_ended() {
            return;
        }
        let mut state = self.lock();
        if state.is_closed {
            drop(state);
            return;
        }
        state.last += 1;
        seat.number = state.last;
        seat.free_since = Instant::now();
        let free = state.free.entry(seat.whose.clone()).or_default();
        free.push(seat);
        let surplus = (free.len() > MOST_KEPT).then(|| free.remove(0));
        let is_swept = std::mem::replace(&mut state.is_swept, true);
        drop(state);
        drop(surplus);
        if !is_swept {
            tokio::spawn(sweep(Arc::downgrade(&self.state)));
        }
    }

    /// Those that are free end now, others with their calls.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let free = std::mem::take(&mut state.free);
        drop(state);
        drop(free);
    }

    pub(crate) fn borrowed(&self, seat: Seat) -> Borrowed {
        let connection = seat.child.connection.clone();
        let greeting = Arc::clone(&seat.child.greeting);
        Borrowed {
            seats: self.clone(),
            seat: Some(seat),
            connection,
            greeting,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process for a request that asks nothing back. Free again when it is dropped.
pub(crate) struct Borrowed {
    seats: Seats,
    seat: Option<Seat>,
    connection: Connection,
    greeting: Arc<Greeting>,
}

impl Borrowed {
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn greeting(&self) -> Arc<Greeting> {
        Arc::clone(&self.greeting)
    }

    /// Nobody gets it again.
    pub(crate) fn discard(mut self) {
        drop(self.seat.take());
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            self.seats.give_back(seat);
        }
    }
}

impl State {
    fn pop(&mut self, whose: &Whose) -> Option<Seat> {
        let free = self.free.get_mut(whose)?;
        let seat = free.pop();
        if free.is_empty() {
            self.free.remove(whose);
        }
        seat
    }

    fn remove_oldest(&mut self, server: &McpServerName) -> Option<Seat> {
        let of_server = self
            .free
            .iter()
            .filter(|(whose, _)| whose.server == *server);
        let seats = of_server.flat_map(|(whose, free)| free.iter().map(move |seat| (whose, seat)));
        let (whose, oldest) = seats.min_by_key(|(_, seat)| seat.number)?;
        let (whose, number) = (whose.clone(), oldest.number);
        self.remove(&whose, number)
    }

    fn remove(&mut self, whose: &Whose, number: u64) -> Option<Seat> {
        let free = self.free.get_mut(whose)?;
        let at = free.iter().position(|seat| seat.number == number)?;
        let seat = free.remove(at);
        if free.is_empty() {
            self.free.remove(whose);
        }
        Some(seat)
    }
}

impl Swept for State {
    type Gone = Vec<Seat>;

    fn sweep(&mut self, now: Instant) -> (Vec<Seat>, Option<Instant>) {
        let mut gone = Vec::new();
        for free in self.free.values_mut() {
            gone.extend(free.extract_if(.., |seat| seat.free_since + KEPT <= now));
        }
        self.free.retain(|_, free| !free.is_empty());
        let next = self
            .free
            .values()
            .flatten()
            .map(|seat| seat.free_since)
            .min();
        self.is_swept = next.is_some();
        (gone, next.map(|since| since + KEPT))
    }
}

/// What the process is greeted with: the client's own words, in those of its era.
fn initialize(asked: &Asked) -> Box<RawValue> {
    let mut offered = Object::default();
    for key in ["sampling", "elicitation", "roots", "experimental"] {
        if let Some(value) = asked.capabilities.get(key) {
            offered.set(key, value.to_owned());
        }
    }
    let nameless = || raw(&json!({ "name": "unknown", "version": "0" }));
    let mut params = Object::default();
    params.set("protocolVersion", raw(NEWEST));
    params.set("capabilities", offered.raw());
    params.set(
        "clientInfo",
        asked.client_info.clone().unwrap_or_else(nameless),
    );
    params.raw()
}
