//! Log level and subscriptions of one client, which all its processes get.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use boxwood_api::McpServerName;
use futures_util::StreamExt as _;
use futures_util::stream;

use crate::gateway::aggregate::names::split_uri;
use crate::gateway::client_session::client_processes::ClientProcess;
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::notifications::subscriptions::{
    LONGEST_URI, MOST_SUBSCRIPTIONS, MOST_URI_BYTES, weight_of,
};
use crate::gateway::params;
use crate::lock;
use crate::wire::{CallOptions, Message};

/// Timeout of one subscribe request.
const SUBSCRIBING: Duration = Duration::from_secs(10);
/// Concurrent subscribe requests.
const AT_ONCE: usize = 16;

/// What a client has set on its processes.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Preferences {
    pub(super) level: Option<LogLevel>,
    /// URIs as the client knows them.
    pub(super) uris: BTreeSet<String>,
}

impl Preferences {
    pub(super) fn has_room(&self, preference: &Preference) -> bool {
        let Preference::Subscribe(uri) = preference else {
            return true;
        };
        let bytes: usize = self.uris.iter().map(|uri| weight_of(uri)).sum();
        self.uris.contains(uri)
            || (self.uris.len() < MOST_SUBSCRIPTIONS
                && uri.len() <= LONGEST_URI
                && bytes + weight_of(uri) <= MOST_URI_BYTES)
    }

    pub(super) fn add(&mut self, preference: Preference) {
        match preference {
            Preference::LogLevel(level) => self.level = Some(level),
            Preference::Subscribe(uri) => drop(self.uris.insert(uri)),
            Preference::Unsubscribe(uri) => drop(self.uris.remove(&uri)),
        }
    }
}

/// A request that changes the state of a whole process.
#[derive(Clone)]
pub(crate) enum Preference {
    LogLevel(LogLevel),
    Subscribe(String),
    Unsubscribe(String),
}

impl Preference {
    pub(crate) fn of(request: &Message) -> Option<Self> {
        let text = |key: &str| params::text(request.params(), key);
        match request.method()? {
            "logging/setLevel" => LogLevel::parse(&text("level")?).map(Self::LogLevel),
            "resources/subscribe" => text("uri").map(Self::Subscribe),
            "resources/unsubscribe" => text("uri").map(Self::Unsubscribe),
            _ => None,
        }
    }

    pub(super) async fn set_on(&self, process: &ClientProcess, server: Option<&McpServerName>) {
        let (method, params) = match self {
            Self::LogLevel(level) => ("logging/setLevel", params::of("level", level)),
            Self::Subscribe(uri) => match own_uri(uri, server) {
                Some(uri) => ("resources/subscribe", params::of("uri", uri)),
                None => return,
            },
            Self::Unsubscribe(uri) => match own_uri(uri, server) {
                Some(uri) => ("resources/unsubscribe", params::of("uri", uri)),
                None => return,
            },
        };
        if matches!(self, Self::LogLevel(_)) && !process.handshake.has("logging") {
            return;
        }
        let how = CallOptions::with_timeout(SUBSCRIBING);
        // The same request succeeded before, on this process or on the shared one.
        let _ = process.connection.request(method, Some(params), how).await;
    }
}

/// The server's own URI, if the resource is of this server.
fn own_uri<'a>(uri: &'a str, server: Option<&McpServerName>) -> Option<&'a str> {
    let Some(server) = server else {
        return Some(uri);
    };
    let (owner, uri) = split_uri(uri)?;
    (owner == *server).then_some(uri)
}

/// Sends the preferences to a new process. Repeats until nothing has changed in the meantime.
pub(super) async fn set_all(
    process: Weak<ClientProcess>,
    preferences: Arc<Mutex<Preferences>>,
    server: Option<McpServerName>,
) {
    let mut set = Preferences::default();
    while let Some(process) = process.upgrade() {
        let wanted = lock(&preferences).clone();
        if wanted == set {
            return;
        }
        if let Some(level) = wanted.level.filter(|_| wanted.level != set.level) {
            let level = Preference::LogLevel(level);
            level.set_on(&process, server.as_ref()).await;
        }
        let new = wanted.uris.difference(&set.uris).cloned();
        let subscribing = new.map(|uri| {
            let (process, server) = (&process, server.as_ref());
            async move { Preference::Subscribe(uri).set_on(process, server).await }
        });
        let subscribing = stream::iter(subscribing).buffer_unordered(AT_ONCE);
        subscribing.for_each(async |()| {}).await;
        set = wanted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subscriptions_of_a_client_are_bounded() {
        let mut preferences = Preferences::default();
        let subscribe = |number: usize| Preference::Subscribe(format!("{number:0LONGEST_URI$}"));
        let mut count = 0;
        while preferences.has_room(&subscribe(count)) {
            preferences.add(subscribe(count));
            count += 1;
        }
        let each = weight_of(&"0".repeat(LONGEST_URI));
        assert_eq!(count, MOST_URI_BYTES / each);
        assert!(preferences.has_room(&subscribe(0)), "it is known");
        preferences.add(Preference::Unsubscribe(format!("{:0LONGEST_URI$}", 0)));
        assert!(preferences.has_room(&subscribe(count)));
        let long = Preference::Subscribe("x".repeat(LONGEST_URI + 1));
        assert!(!preferences.has_room(&long));
    }
}
