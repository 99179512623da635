//! Bounds the bytes that are buffered for clients that have not read them.
//!
//! A client that does not read exhausts its own share only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::gateway::error::{INTERNAL_ERROR, RpcError};
use crate::lock;
use crate::wire::{Message, Principal};

/// Responses up to this size are always accepted, because an error would be as long. They count, so that a
/// client with too many of them can be refused.
const MAX_SMALL_RESPONSE_BYTES: usize = 4 * 1024;
/// Maximum size of a notification.
pub(crate) const MAX_NOTIFICATION_BYTES: usize = 1 << 20;

/// Maximum bytes of read events that all streams keep for clients that resume a stream.
const MAX_REPLAYED_BYTES: usize = 64 * 1024 * 1024;
/// Memory of a kept event besides its message.
const EVENT_OVERHEAD: usize = 256;

/// The bytes that are buffered for all clients. Cheap to clone.
#[derive(Clone)]
pub(crate) struct MemoryBudget {
    max_bytes: usize,
    used: Arc<Mutex<HashMap<Principal, usize>>>,
    /// One permit per byte of an event that was read.
    replayed: Arc<Semaphore>,
}

/// The share of one client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ClientBudget {
    budget: MemoryBudget,
    principal: Principal,
}

#[cfg(test)]
impl Default for ClientBudget {
    /// The default share of one client.
    fn default() -> Self {
        MemoryBudget::new(crate::gateway::GatewaySettings::default().max_unread).of(None)
    }
}

/// A buffered message. Its bytes count until the last copy is dropped.
#[derive(Clone)]
pub(crate) struct BufferedMessage {
    pub(crate) json: Bytes,
    reservation: Option<Arc<Reservation>>,
}

struct Reservation {
    client_budget: ClientBudget,
    bytes: usize,
}

impl MemoryBudget {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            used: Arc::default(),
            replayed: Arc::new(Semaphore::new(MAX_REPLAYED_BYTES)),
        }
    }

    pub(crate) fn of(&self, principal: Principal) -> ClientBudget {
        ClientBudget {
            budget: self.clone(),
            principal,
        }
    }

    /// Returns the bytes of all clients and of this one. What a client holds beyond its half does not count
    /// for the others.
    fn usage(&self, used: &HashMap<Principal, usize>, principal: &Principal) -> (usize, usize) {
        let all = used
            .values()
            .map(|own| *own.min(&(self.max_bytes / 2)))
            .sum();
        let own = used.get(principal).copied().unwrap_or_default();
        (all, own)
    }

    #[cfg(test)]
    pub(crate) fn unread(&self) -> usize {
        lock(&self.used).values().sum()
    }
}

impl ClientBudget {
    /// For an event that was read and may be read again. `None` if the streams keep too many of them.
    pub(crate) fn reserve_replay(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes + EVENT_OVERHEAD).ok()?;
        let replayed = Arc::clone(&self.budget.replayed);
        replayed.try_acquire_many_owned(bytes).ok()
    }

    /// `None` if the budget of this client or of all clients is exhausted.
    pub(crate) fn reserve(&self, json: Bytes) -> Option<BufferedMessage> {
        self.reserve_within(self.budget.max_bytes, json)
    }

    /// Notifications may use half of the budget; the rest is for requests and responses.
    pub(crate) fn reserve_notification(&self, json: Bytes) -> Option<BufferedMessage> {
        if json.len() > MAX_NOTIFICATION_BYTES {
            return None;
        }
        self.reserve_within(self.budget.max_bytes / 2, json)
    }

    /// Returns true if only small responses are accepted.
    pub(crate) fn is_exhausted(&self) -> bool {
        let (all, own) = self.budget.usage(&lock(&self.budget.used), &self.principal);
        all >= self.budget.max_bytes || own >= self.budget.max_bytes / 2
    }

    /// One client may use half of `max_bytes`.
    fn reserve_within(&self, max_bytes: usize, json: Bytes) -> Option<BufferedMessage> {
        let bytes = json.len();
        let mut used = lock(&self.budget.used);
        let (all, own) = self.budget.usage(&used, &self.principal);
        let fits = all + bytes <= max_bytes && own + bytes <= max_bytes / 2;
        fits.then(|| self.count(&mut used, json))
    }

    /// Counts the bytes without a check of the limits.
    fn count(&self, used: &mut HashMap<Principal, usize>, json: Bytes) -> BufferedMessage {
        *used.entry(self.principal.clone()).or_default() += json.len();
        let reservation = Reservation {
            client_budget: self.clone(),
            bytes: json.len(),
        };
        BufferedMessage {
            json,
            reservation: Some(Arc::new(reservation)),
        }
    }

    /// Returns the response, or a short error if it does not fit.
    pub(crate) fn reserve_response(&self, answer: &Message) -> BufferedMessage {
        let json = answer.json();
        if let Some(message) = self.reserve(json.clone()) {
            return message;
        }
        if json.len() <= MAX_SMALL_RESPONSE_BYTES {
            return self.count(&mut lock(&self.budget.used), json);
        }
        let text =
            "too many unread responses; read the responses to earlier requests and try again";
        let error = RpcError::new(INTERNAL_ERROR, text);
        let json = error.message(answer.id()).json();
        self.count(&mut lock(&self.budget.used), json)
    }
}

impl BufferedMessage {
    /// Moves the reservation to the copy for the reader. What stays has a replay permit.
    pub(crate) fn handed_out(&mut self) -> Self {
        Self {
            json: self.json.clone(),
            reservation: self.reservation.take(),
        }
    }

    /// Count as unread until they are sent.
    pub(crate) fn into_bytes(self) -> Bytes {
        reserved(self.json.clone(), self)
    }
}

/// Bytes that hold `reservation` until they are sent.
pub(crate) fn reserved<T: Send + 'static>(bytes: Bytes, reservation: T) -> Bytes {
    struct Reserved<T>(Bytes, T);

    impl<T> AsRef<[u8]> for Reserved<T> {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    Bytes::from_owner(Reserved(bytes, reservation))
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut used = lock(&self.client_budget.budget.used);
        if let Some(own) = used.get_mut(&self.client_budget.principal) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                used.remove(&self.client_budget.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: usize) -> Bytes {
        Bytes::from(vec![b'x'; bytes])
    }

    #[test]
    fn bytes_are_released_with_the_last_copy_and_one_client_gets_half() {
        let budget = MemoryBudget::new(100);
        let ann = budget.of(Some("ann".into()));
        let bob = budget.of(Some("bob".into()));
        let first = ann.reserve(text(50)).expect("room");
        assert!(ann.reserve(text(1)).is_none(), "half of it is enough");
        let _second = bob.reserve(text(50)).expect("room for others");
        assert!(budget.of(None).reserve(text(1)).is_none(), "it is full");
        let copy = first.clone();
        drop(first);
        assert!(ann.reserve(text(1)).is_none());
        drop(copy);
        assert!(ann.reserve(text(50)).is_some());
    }

    #[test]
    fn small_answers_are_counted_and_take_no_room_from_others() {
        let budget = MemoryBudget::new(1000);
        let ann = budget.of(Some("ann".into()));
        let bob = budget.of(Some("bob".into()));
        let result = || crate::gateway::json::raw(&"x".repeat(50));
        let answer = Message::result(crate::gateway::json::raw(&7), result());
        assert!(!ann.is_exhausted());
        let mut unread: Vec<_> = (0..100).map(|_| ann.reserve_response(&answer)).collect();
        assert!(ann.is_exhausted() && !bob.is_exhausted());
        assert!(bob.reserve(text(500)).is_some(), "he has his half");
        unread.truncate(1);
        assert!(!ann.is_exhausted(), "she has read them");
        assert!(ann.reserve(text(300)).is_some());
    }

    #[test]
    fn a_response_beyond_the_budget_becomes_an_error() {
        let client_budget = MemoryBudget::new(0).of(None);
        let answer = |bytes: usize| {
            let result = crate::gateway::json::raw(&"x".repeat(bytes));
            let answer = Message::result(crate::gateway::json::raw(&7), result);
            String::from_utf8_lossy(&client_budget.reserve_response(&answer).json).into_owned()
        };
        assert!(answer(10).contains("xxx"));
        let refused = answer(MAX_SMALL_RESPONSE_BYTES);
        assert!(refused.contains("\"id\":7") && refused.contains("read the responses"));
    }
}
