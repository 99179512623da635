//! What the client wants to hear of the server, for a session that knows nothing of it.
//!
//! Comes in: requests that the server granted. Goes out: the same requests, when the gateway has forgotten
//! the session they were made in.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::{Value, json};

use super::bridge::Bridge;
use super::peek::Peek;

/// The gateway grants no more.
const MOST_SUBSCRIPTIONS: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Level(String),
    Subscribe(String),
    Unsubscribe(String),
}

#[derive(Default)]
pub(super) struct Wishes(Mutex<Granted>);

#[derive(Default)]
struct Granted {
    level: Option<String>,
    uris: BTreeSet<String>,
}

impl Wishes {
    /// Remembers what the answer grants.
    pub(super) fn learn(&self, peek: &Peek, answer: &str) {
        if peek.wishes.is_empty() || peek.revision.is_some() {
            return;
        }
        let answer: Value = serde_json::from_str(answer).unwrap_or_default();
        let answers = answer.as_array().map_or(&[][..], Vec::as_slice);
        for answer in answers.iter().chain([&answer]) {
            let id = answer["id"].to_string();
            let wish = peek.wishes.iter().find(|(asked, _)| *asked == id);
            if let Some((_, wish)) = wish.filter(|_| answer.get("result").is_some()) {
                self.locked().add(wish);
            }
        }
    }

    /// The client begins anew by itself.
    pub(super) fn forget(&self) {
        *self.locked() = Granted::default();
    }

    fn requests(&self) -> Vec<Value> {
        let granted = self.locked();
        let level = granted
            .level
            .iter()
            .map(|level| json!({"method": "logging/setLevel", "params": {"level": level}}));
        let uris = granted
            .uris
            .iter()
            .map(|uri| json!({"method": "resources/subscribe", "params": {"uri": uri}}));
        level.chain(uris).collect()
    }

    fn locked(&self) -> MutexGuard<'_, Granted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Granted {
    fn add(&mut self, wish: &Wish) {
        match wish {
            Wish::Level(level) => self.level = Some(level.clone()),
            Wish::Subscribe(uri) if self.uris.len() < MOST_SUBSCRIPTIONS => {
                self.uris.insert(uri.clone());
            }
            Wish::Subscribe(_) => {}
            Wish::Unsubscribe(uri) => {
                self.uris.remove(uri);
            }
        }
    }
}

impl Bridge {
    /// In a session that was just begun. The client had its answers long ago.
    pub(super) async fn wish_again(&self) {
        let headers = self.session().headers();
        for mut request in self.wishes.requests() {
            request["jsonrpc"] = json!("2.0");
            request["id"] = json!("boxwood-again");
            let line = Bytes::from(request.to_string());
            let Some(peek) = Peek::at(&line) else {
                continue;
            };
            let answer = self.answer_to(&peek, headers.clone(), line).await;
            if answer.is_none_or(|answer| answer.get("result").is_none()) {
                let (what, params) = (peek.what(), &request["params"]);
                eprintln!(
                    "boxwood: `{what}` could not be repeated after the session was lost: {params}"
                );
            }
        }
    }
}
