//! What servers have asked clients and nobody has answered yet.
//!
//! Comes in: questions. Goes out: whether a client has been asked something, and which question has waited
//! for too long. Never here: what is asked, and of whom.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};

use super::json::raw;
use crate::wire::{Message, Object};

/// A person may have to think about it. No server waits for longer, whatever its client does.
pub(crate) const TO_ANSWER: Duration = Duration::from_mins(10);
/// Whoever asked has given up by then, and said so if it could.
const FORGOTTEN: Duration = Duration::from_mins(11);
/// For one client at once.
pub(crate) const MOST: usize = 64;

pub(crate) const CANCELLED: &str = "notifications/cancelled";
pub(crate) const NOT_ANSWERED: &str = "the client did not answer";

/// Tells a client that nobody waits for its answer any more.
pub(crate) fn withdrawn(id: &RawValue) -> Message {
    let mut params = Object::default();
    params.set("requestId", id.to_owned());
    params.set("reason", raw("nobody waits for the answer any more"));
    Message::notification(CANCELLED, Some(params.raw()))
}

/// What one client is asked.
#[derive(Default)]
pub(crate) struct Questions {
    open: Mutex<HashMap<Box<str>, Instant>>,
}

impl Questions {
    fn open(&self) -> MutexGuard<'_, HashMap<Box<str>, Instant>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room for it.
    pub(crate) fn ask(&self, id: &RawValue) -> bool {
        let mut open = self.open();
        open.retain(|_, asked| asked.elapsed() < FORGOTTEN);
        let has_room = open.len() < MOST && !open.contains_key(id.get());
        if has_room {
            open.insert(id.get().into(), Instant::now());
        }
        has_room
    }

    /// Whether it was asked and is not answered yet. Once only.
    pub(crate) fn settle(&self, id: &RawValue) -> bool {
        self.open().remove(id.get()).is_some()
    }

    /// Whether it has waited for so long that it is given up now. Ids may come twice.
    pub(crate) fn give_up(&self, id: &RawValue) -> bool {
        let mut open = self.open();
        let asked = open.get(id.get());
        let is_late = asked.is_some_and(|asked| asked.elapsed() >= TO_ANSWER);
        if is_late {
            open.remove(id.get());
        }
        is_late
    }

    pub(crate) fn is_open(&self, id: &RawValue) -> bool {
        self.open().contains_key(id.get())
    }

    /// Whoever asked these is gone. Their ids.
    pub(crate) fn forget(&self, is_gone: impl Fn(&RawValue) -> bool) -> Vec<Box<RawValue>> {
        let mut gone = Vec::new();
        self.open().retain(|id, _| {
            let id = RawValue::from_string(id.clone().into()).unwrap_or_default();
            let is_open = !is_gone(&id);
            if !is_open {
                gone.push(id);
            }
            is_open
        });
        gone
    }
}

/// What one process has asked, the oldest first.
pub(crate) struct Patience<T> {
    asked: VecDeque<(Instant, T)>,
}

impl<T> Default for Patience<T> {
    fn default() -> Self {
        Self {
            asked: VecDeque::new(),
        }
    }
}

impl<T> Patience<T> {
    /// Those that are not open any more are let go now and then.
    pub(crate) fn begin(&mut self, question: T, is_open: impl Fn(&T) -> bool) {
        if self.asked.len() >= 2 * MOST {
            self.asked.retain(|(_, question)| is_open(question));
        }
        self.asked.push_back((Instant::now(), question));
    }

    /// The next that has waited for too long, answered or not. Cancel safe.
    pub(crate) async fn over(&mut self) -> T {
        let Some((asked, _)) = self.asked.front() else {
            return pending().await;
        };
        sleep_until(*asked + TO_ANSWER).await;
        match self.asked.pop_front() {
            Some((_, question)) => question,
            None => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nobody_is_deaf_for_ever() {
        let questions = Questions::default();
        for number in 0..MOST {
            assert!(questions.ask(&raw(&number)));
        }
        assert!(!questions.ask(&raw("more")));
        assert!(questions.settle(&raw(&1)) && !questions.settle(&raw(&1)));
        assert!(questions.ask(&raw("more")));
        assert!(!questions.give_up(&raw("more")));
        tokio::time::advance(FORGOTTEN).await;
        assert!(questions.give_up(&raw("more")));
        assert!(questions.ask(&raw("much later")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_question_is_given_up_first_and_answered_ones_take_no_room() {
        let mut patience = Patience::default();
        let began = Instant::now();
        for number in 0..100 * MOST {
            patience.begin(number, |number| number % (100 * MOST) == 0);
        }
        assert!(patience.asked.len() <= 2 * MOST);
        assert_eq!(patience.over().await, 0);
        assert_eq!(began.elapsed(), TO_ANSWER);
    }
}
