//! How many of a kind there may be, over all sessions and in one of them.
//!
//! For what lasts: streamed commands and managed processes. Nobody waits for a seat, because nobody
//! could say for how long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::fair::Key;
use crate::activity::lock;

#[derive(Clone)]
pub(crate) struct Seats(Arc<Inner>);

struct Inner {
    limit: usize,
    per_session: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_session: HashMap<Key, usize>,
}

/// Which bound was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSeat {
    Anywhere { limit: usize },
    InSession { limit: usize },
}

impl Seats {
    pub(crate) fn new(limit: usize, per_session: usize) -> Self {
        Self(Arc::new(Inner {
            limit,
            per_session,
            taken: Mutex::default(),
        }))
    }

    pub(crate) fn take(&self, key: Key) -> Result<Seat, NoSeat> {
        let mut taken = lock(&self.0.taken);
        if taken.all >= self.0.limit {
            return Err(NoSeat::Anywhere {
                limit: self.0.limit,
            });
        }
        let mine = taken.by_session.get(&key).copied().unwrap_or_default();
        if mine >= self.0.per_session {
            return Err(NoSeat::InSession {
                limit: self.0.per_session,
            });
        }
        Ok(self.seated(&mut taken, key))
    }

    /// For what runs already and is met again: it counts, however many there are.
    pub(crate) fn take_anyway(&self, key: Key) -> Seat {
        self.seated(&mut lock(&self.0.taken), key)
    }

    pub(crate) fn taken(&self) -> usize {
        lock(&self.0.taken).all
    }

    fn seated(&self, taken: &mut Taken, key: Key) -> Seat {
        taken.all += 1;
        *taken.by_session.entry(key).or_default() += 1;
        Seat {
            seats: self.clone(),
            key,
        }
    }
}

/// One counted; given back when dropped.
pub(crate) struct Seat {
    seats: Seats,
    key: Key,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = lock(&self.seats.0.taken);
        taken.all -= 1;
        if let Some(mine) = taken.by_session.get_mut(&self.key) {
            *mine -= 1;
            if *mine == 0 {
                taken.by_session.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_counted_and_given_back() {
        let seats = Seats::new(3, 2);
        let first = seats.take(1).ok();
        let second = seats.take(1).ok();
        assert_eq!(seats.take(1).err(), Some(NoSeat::InSession { limit: 2 }));
        let third = seats.take(2).ok();
        assert_eq!(seats.take(2).err(), Some(NoSeat::Anywhere { limit: 3 }));
        let adopted = seats.take_anyway(2);
        assert_eq!(seats.taken(), 4);
        drop((first, second, third, adopted));
        assert_eq!(seats.taken(), 0);
        assert!(lock(&seats.0.taken).by_session.is_empty());
    }
}
