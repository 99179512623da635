//! The log level and the subscriptions of one client, or of all clients of a server together.

use std::collections::BTreeSet;

use boxwood_api::McpServerName;
use serde_json::value::RawValue;

use crate::gateway::aggregate::names::split_uri;
use crate::gateway::error::{INVALID_PARAMS, RpcError};
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::params;
use crate::wire::{CallError, CallOptions, Connection, Message};

/// Limits of the subscriptions of one client, over all servers.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 1000;
pub(crate) const MAX_URI_BYTES: usize = 8 * 1024;
pub(crate) const MAX_TOTAL_URI_BYTES: usize = 256 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preferences {
    /// `None` if no client has set one.
    pub(crate) level: Option<LogLevel>,
    /// Subscribed resources.
    pub(crate) uris: BTreeSet<String>,
}

impl Preferences {
    /// Returns false if the limit of subscriptions is reached.
    pub(crate) fn has_room(&self, preference: &Preference) -> bool {
        let Preference::Subscribe(uri) = preference else {
            return true;
        };
        let bytes: usize = self.uris.iter().map(String::len).sum();
        self.uris.contains(uri)
            || (self.uris.len() < MAX_SUBSCRIPTIONS
                && uri.len() <= MAX_URI_BYTES
                && bytes + uri.len() <= MAX_TOTAL_URI_BYTES)
    }

    /// Returns false if nothing has changed.
    pub(crate) fn apply(&mut self, preference: Preference) -> bool {
        match preference {
            Preference::LogLevel(level) => self.level.replace(level) != Some(level),
            Preference::Subscribe(uri) => self.uris.insert(uri),
            Preference::Unsubscribe(uri) => self.uris.remove(&uri),
        }
    }

    /// The changes that turn `before` into `self`. A log level cannot be removed.
    pub(crate) fn changes_since(&self, before: &Self) -> Vec<Preference> {
        let level = self.level.filter(|_| self.level != before.level);
        let added = self.uris.difference(&before.uris).cloned();
        let removed = before.uris.difference(&self.uris).cloned();
        let level = level.into_iter().map(Preference::LogLevel);
        level
            .chain(added.map(Preference::Subscribe))
            .chain(removed.map(Preference::Unsubscribe))
            .collect()
    }
}

/// A request that sets a log level or a subscription. It affects all clients of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Preference {
    LogLevel(LogLevel),
    Subscribe(String),
    Unsubscribe(String),
}

impl Preference {
    /// `None` for other requests.
    pub(crate) fn of(request: &Message) -> Result<Option<Self>, RpcError> {
        let text = |key: &str| {
            let text = params::text(request.params(), key);
            text.ok_or_else(|| RpcError::new(INVALID_PARAMS, format!("`{key}` must be a string")))
        };
        Ok(Some(match request.method() {
            Some("logging/setLevel") => {
                let level = LogLevel::parse(&text("level")?).ok_or_else(|| {
                    let text = "`level` must be debug, info, notice, warning, error, critical, alert or emergency";
                    RpcError::new(INVALID_PARAMS, text)
                })?;
                Self::LogLevel(level)
            }
            Some("resources/subscribe") => Self::Subscribe(text("uri")?),
            Some("resources/unsubscribe") => Self::Unsubscribe(text("uri")?),
            _ => return Ok(None),
        }))
    }

    /// `server` is set for clients of all servers, whose URIs contain the server name. The result has the
    /// server's own URI. `None` if the resource is of another server.
    pub(crate) fn of_server(&self, server: Option<&McpServerName>) -> Option<Self> {
        let Some(server) = server else {
            return Some(self.clone());
        };
        let own = |uri: &str| {
            let (owner, own) = split_uri(uri)?;
            (owner == *server).then(|| own.to_owned())
        };
        Some(match self {
            Self::LogLevel(level) => Self::LogLevel(*level),
            Self::Subscribe(uri) => Self::Subscribe(own(uri)?),
            Self::Unsubscribe(uri) => Self::Unsubscribe(own(uri)?),
        })
    }

    pub(crate) async fn send(
        &self,
        connection: &Connection,
        options: CallOptions,
    ) -> Result<Message, CallError> {
        let (method, params): (_, Box<RawValue>) = match self {
            Self::LogLevel(level) => ("logging/setLevel", params::of("level", level)),
            Self::Subscribe(uri) => ("resources/subscribe", params::of("uri", uri)),
            Self::Unsubscribe(uri) => ("resources/unsubscribe", params::of("uri", uri)),
        };
        connection.request(method, Some(params), options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribe(preferences: &mut Preferences, uri: &str) -> bool {
        let preference = Preference::Subscribe(uri.to_owned());
        let has_room = preferences.has_room(&preference);
        if has_room {
            preferences.apply(preference);
        }
        has_room
    }

    #[test]
    fn subscriptions_are_bounded_in_number_and_length() {
        let mut preferences = Preferences::default();
        assert!(!subscribe(&mut preferences, &"x".repeat(MAX_URI_BYTES + 1)));
        for number in 0..MAX_SUBSCRIPTIONS {
            assert!(subscribe(&mut preferences, &number.to_string()));
        }
        assert!(!subscribe(&mut preferences, "more"));
        assert!(subscribe(&mut preferences, "0"), "it is subscribed");
        preferences.apply(Preference::Unsubscribe("0".to_owned()));
        assert!(subscribe(&mut preferences, "more"));
    }

    #[test]
    fn the_uris_of_a_client_are_bounded_in_total() {
        let mut preferences = Preferences::default();
        let uri = |number: usize| format!("{number:0MAX_URI_BYTES$}");
        let mut count = 0;
        while subscribe(&mut preferences, &uri(count)) {
            count += 1;
        }
        assert_eq!(count, MAX_TOTAL_URI_BYTES / MAX_URI_BYTES);
        assert!(subscribe(&mut preferences, &uri(0)), "it is subscribed");
        assert!(preferences.apply(Preference::Unsubscribe(uri(0))));
        assert!(!preferences.apply(Preference::Unsubscribe(uri(0))));
        assert!(subscribe(&mut preferences, &uri(count)));
    }

    #[test]
    fn changes_since_earlier_preferences_lead_to_the_later_ones() {
        let preferences = |level, uris: &[&str]| Preferences {
            level,
            uris: uris.iter().map(|&uri| uri.to_owned()).collect(),
        };
        let mut before = preferences(None, &["a", "b"]);
        let after = preferences(Some(LogLevel::Error), &["b", "c"]);
        let changes = after.changes_since(&before);
        assert_eq!(changes.len(), 3);
        for change in changes {
            assert!(before.apply(change));
        }
        assert_eq!(before, after);
    }
}
