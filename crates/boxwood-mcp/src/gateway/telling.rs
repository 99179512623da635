//! What one client wants to hear of a process of its own, told to each process it gets.
//!
//! Comes in: levels and subscriptions, as the client wished for them. Goes out: the same, to a process that
//! was not there yet when they were. Never here: where its news go.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_api::McpServerName;
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::level::Level;
use super::names::split_uri;
use super::params;
use super::wishes::{LONGEST_URI, MOST_SUBSCRIPTIONS, MOST_URI_BYTES, weight_of};
use crate::wire::{Ask, Connection, Greeting, Message};

const SUBSCRIBING: Duration = Duration::from_secs(10);
/// The first call waits so long for what was wished before it.
const TELLING: Duration = Duration::from_secs(10);
/// Subscriptions.
const AT_ONCE: usize = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) level: Option<Level>,
    /// As the client calls them.
    pub(crate) uris: BTreeSet<String>,
}

impl Told {
    fn has_room(&self, uri: &str) -> bool {
        if self.uris.contains(uri) {
            return true;
        }
        let bytes: usize = self.uris.iter().map(|uri| weight_of(uri)).sum();
        self.uris.len() < MOST_SUBSCRIPTIONS
            && uri.len() <= LONGEST_URI
            && bytes + weight_of(uri) <= MOST_URI_BYTES
    }
}

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Wished(Arc<Mutex<Told>>);

/// A request that tells a whole process what to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Level(Level),
    Subscribe(String),
    Unsubscribe(String),
}

impl Wish {
    pub(crate) fn of(request: &Message) -> Option<Self> {
        let text = |key: &str| params::text(request.params(), key);
        match request.method()? {
            "logging/setLevel" => Level::parse(&text("level")?).map(Self::Level),
            "resources/subscribe" => text("uri").map(Self::Subscribe),
            "resources/unsubscribe" => text("uri").map(Self::Unsubscribe),
            _ => None,
        }
    }
}

impl Wished {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it can be remembered.
    pub(crate) fn has_room(&self, wish: &Wish) -> bool {
        let Wish::Subscribe(uri) = wish else {
            return true;
        };
        self.lock().has_room(uri)
    }

    pub(crate) fn remember(&self, wish: Wish) {
        let mut told = self.lock();
        match wish {
            Wish::Level(level) => told.level = Some(level),
            Wish::Subscribe(uri) => drop(told.uris.insert(uri)),
            Wish::Unsubscribe(uri) => drop(told.uris.remove(&uri)),
        }
    }
}

/// A process that has been told nothing yet.
pub(crate) struct Telling {
    pub(crate) wished: Wished,
    pub(crate) connection: Connection,
    pub(crate) greeting: Arc<Greeting>,
    /// Set where the client's addresses name the server, too.
    pub(crate) server: Option<McpServerName>,
}

impl Telling {
    /// It goes on for as long as the first is held.
    pub(crate) fn begin(self) -> (AbortOnDropHandle<()>, Done) {
        let (done, all_told) = oneshot::channel();
        let telling = tokio::spawn(async move {
            self.tell().await;
            // Whoever called may have left.
            let _ = done.send(());
        });
        (AbortOnDropHandle::new(telling), Done(all_told))
    }

    /// Until nothing was wished meanwhile.
    async fn tell(self) {
        let connection = &self.connection;
        let mut told = Told::default();
        loop {
            let wished = self.wished.lock().clone();
            if wished == told {
                return;
            }
            if wished.level != told.level
                && let Some(level) = wished.level.filter(|_| self.greeting.has("logging"))
            {
                level.set_on(connection).await;
            }
            let new = wished.uris.difference(&told.uris);
            let new: Vec<_> = new.filter_map(|uri| self.original(uri)).collect();
            let subscribing = new
                .into_iter()
                .map(async |uri| subscribe(connection, "resources/subscribe", &uri).await);
            stream::iter(subscribing)
                .buffer_unordered(AT_ONCE)
                .for_each(async |()| {})
                .await;
            told = wished;
        }
    }

    /// What of a shown address is this server's own.
    fn original(&self, uri: &str) -> Option<String> {
        let Some(server) = &self.server else {
            return Some(uri.to_owned());
        };
        let (owner, original) = split_uri(uri)?;
        (owner == *server).then(|| original.to_owned())
    }
}

/// When everything was told.
pub(crate) struct Done(oneshot::Receiver<()>);

impl Done {
    /// No call is lost with a wish, nor waits for one for long.
    pub(crate) async fn soon(self) {
        let _ = timeout(TELLING, self.0).await;
    }
}

pub(crate) async fn subscribe(connection: &Connection, method: &str, uri: &str) {
    let params = params::of_text("uri", uri);
    // It was asked before, or the shared process was, and has said whether it can.
    let _ = connection
        .request(method, Some(params), Ask::within(SUBSCRIBING))
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wished_of_a_process_of_its_own_is_bounded_too() {
        let wished = Wished::default();
        let wish = |number: usize| Wish::Subscribe(format!("{number:0LONGEST_URI$}"));
        let mut count = 0;
        while wished.has_room(&wish(count)) {
            wished.remember(wish(count));
            count += 1;
        }
        let each = weight_of(&"0".repeat(LONGEST_URI));
        assert_eq!(count, MOST_URI_BYTES / each);
        assert!(wished.has_room(&wish(0)), "it is known");
        wished.remember(Wish::Unsubscribe(format!("{:0LONGEST_URI$}", 0)));
        assert!(wished.has_room(&wish(count)));
        assert!(!wished.has_room(&Wish::Subscribe("x".repeat(LONGEST_URI + 1))));
    }
}
