//! How many bytes wait for clients to read them, over all sessions.
//!
//! Comes in: messages that are to be kept. Goes out: room for them, or none. A client that asks and does not
//! read is answered with less; the others have their part.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::refusal::{INTERNAL_ERROR, Refusal};
use super::replays::Replays;
use crate::wire::{Message, Principal};

/// Such answers are always given: calls are bounded, and what says why would be as long. They are counted all
/// the same, so that whoever has too many of them can be sent to read before it asks on.
const SMALL: usize = 4 * 1024;
/// Of one message that may be lost.
pub(crate) const LARGEST_NEWS: usize = 1 << 20;

/// For all clients. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Budget {
    most: usize,
    held: Arc<Mutex<HashMap<Principal, usize>>>,
    replays: Replays,
}

/// For one client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Purse {
    budget: Budget,
    principal: Principal,
}

impl Default for Purse {
    /// As much as one client has by default.
    fn default() -> Self {
        Budget::new(super::GatewaySettings::default().max_unread).of(None)
    }
}

/// A message that waits, and the room it takes until the last copy is gone.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) json: Bytes,
    room: Option<Arc<Room>>,
}

struct Room {
    purse: Purse,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            held: Arc::default(),
            replays: Replays::default(),
        }
    }

    pub(crate) fn of(&self, principal: Principal) -> Purse {
        Purse {
            budget: self.clone(),
            principal,
        }
    }

    /// What all clients have, and this one. What one has beyond its half is taken from nobody else.
    fn taken(&self, held: &HashMap<Principal, usize>, principal: &Principal) -> (usize, usize) {
        let all = held.values().map(|own| *own.min(&(self.most / 2))).sum();
        let own = held.get(principal).copied().unwrap_or_default();
        (all, own)
    }

    /// Of all clients.
    #[cfg(test)]
    pub(crate) fn unread(&self) -> usize {
        self.held().values().sum()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Principal, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Purse {
    /// What was read is counted there, and by nobody's purse.
    pub(crate) fn replays(&self) -> &Replays {
        &self.budget.replays
    }

    /// `None` when the client, or all together, have too much to read already.
    pub(crate) fn keep(&self, json: Bytes) -> Option<Kept> {
        self.keep_within(self.budget.most, json)
    }

    /// What may be lost has half of the room: the rest is for what clients wait for.
    pub(crate) fn keep_news(&self, json: Bytes) -> Option<Kept> {
        if json.len() > LARGEST_NEWS {
            return None;
        }
        self.keep_within(self.budget.most / 2, json)
    }

    /// Whether nothing is kept for this client any more but small answers.
    pub(crate) fn is_used_up(&self) -> bool {
        let (all, own) = self.budget.taken(&self.budget.held(), &self.principal);
        all >= self.budget.most || own >= self.budget.most / 2
    }

    /// One client has half of it at most.
    fn keep_within(&self, most: usize, json: Bytes) -> Option<Kept> {
        let bytes = json.len();
        let mut held = self.budget.held();
        let (all, own) = self.budget.taken(&held, &self.principal);
        if all + bytes > most || own + bytes > most / 2 {
            return None;
        }
        held.insert(self.principal.clone(), own + bytes);
        drop(held);
        Some(self.counted(json))
    }

    /// Whether there is room or not.
    fn keep_anyway(&self, json: Bytes) -> Kept {
        let mut held = self.budget.held();
        *held.entry(self.principal.clone()).or_default() += json.len();
        drop(held);
        self.counted(json)
    }

    fn counted(&self, json: Bytes) -> Kept {
        let room = Room {
            purse: self.clone(),
            bytes: json.len(),
        };
        Kept {
            json,
            room: Some(Arc::new(room)),
        }
    }

    /// An answer, or a short one in its place that says why.
    pub(crate) fn keep_answer(&self, answer: &Message) -> Kept {
        let json = answer.json();
        if let Some(kept) = self.keep(json.clone()) {
            return kept;
        }
        if json.len() <= SMALL {
            return self.keep_anyway(json);
        }
        let text = "too much waits to be read by clients; read the answers to earlier requests, then ask again";
        let refusal = Refusal::new(INTERNAL_ERROR, text);
        self.keep_anyway(refusal.message(answer.id()).json())
    }
}

impl Kept {
    /// For whoever reads it: the room goes with what comes back. What stays is bounded where it stays.
    pub(crate) fn handed_out(&mut self) -> Self {
        Self {
            json: self.json.clone(),
            room: self.room.take(),
        }
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Eq for Kept {}

impl Drop for Room {
    fn drop(&mut self) {
        let mut held = self.purse.budget.held();
        if let Some(own) = held.get_mut(&self.purse.principal) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                held.remove(&self.purse.principal);
            }
        }
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: usize) -> Bytes {
        Bytes::from(vec![b'x'; bytes])
    }

    #[test]
    fn room_is_given_back_with_the_last_copy_and_nobody_takes_it_all() {
        let budget = Budget::new(100);
        let ann = budget.of(Some("ann".into()));
        let bob = budget.of(Some("bob".into()));
        let first = ann.keep(text(50)).expect("room");
        assert!(ann.keep(text(1)).is_none(), "half of it is enough");
        let _second = bob.keep(text(50)).expect("room for others");
        assert!(budget.of(None).keep(text(1)).is_none(), "it is full");
        let copy = first.clone();
        drop(first);
        assert!(ann.keep(text(1)).is_none());
        drop(copy);
        assert!(ann.keep(text(50)).is_some());
    }

    #[test]
    fn small_answers_are_counted_and_take_no_room_from_others() {
        let budget = Budget::new(1000);
        let ann = budget.of(Some("ann".into()));
        let bob = budget.of(Some("bob".into()));
        let result = || super::super::json::raw(&"x".repeat(50));
        let answer = Message::result(super::super::json::raw(&7), result());
        assert!(!ann.is_used_up());
        let mut unread: Vec<_> = (0..100).map(|_| ann.keep_answer(&answer)).collect();
        assert!(ann.is_used_up() && !bob.is_used_up());
        assert!(bob.keep(text(500)).is_some(), "he has his half");
        unread.truncate(1);
        assert!(!ann.is_used_up(), "she has read them");
        assert!(ann.keep(text(300)).is_some());
    }

    #[test]
    fn an_answer_without_room_becomes_one_that_says_so() {
        let purse = Budget::new(0).of(None);
        let answer = |bytes: usize| {
            let result = super::super::json::raw(&"x".repeat(bytes));
            let answer = Message::result(super::super::json::raw(&7), result);
            String::from_utf8_lossy(&purse.keep_answer(&answer).json).into_owned()
        };
        assert!(answer(10).contains("xxx"));
        let refused = answer(SMALL);
        assert!(refused.contains("\"id\":7") && refused.contains("read the answers"));
    }
}
