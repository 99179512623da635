//! Log levels and subscriptions of the clients of one shared server.
//!
//! Computes the combined level and subscriptions for the server, and the recipients of each notification.

use std::collections::HashMap;
use std::sync::Arc;

use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::notifications::preferences::Preferences;
use crate::gateway::params;
use crate::wire::{Audience, Message, Principal};

pub(crate) const RESOURCE_UPDATED: &str = "notifications/resources/updated";

/// The notification that a list has changed.
pub(crate) fn list_changed(list: &str) -> String {
    format!("notifications/{list}/list_changed")
}

pub(crate) fn is_list_change(method: &str) -> bool {
    method.starts_with("notifications/") && method.ends_with("/list_changed")
}

/// Receives notifications of a server, in order. Must not block.
pub(crate) type Listener = Arc<dyn Fn(&Arc<Message>) + Send + Sync>;

pub(crate) type MemberId = u64;

#[derive(Default)]
pub(crate) struct Subscriptions {
    last: MemberId,
    members: HashMap<MemberId, Subscriber>,
}

struct Subscriber {
    preferences: Preferences,
    principal: Principal,
    listener: Listener,
}

impl Subscriptions {
    pub(crate) fn join(
        &mut self,
        listener: Listener,
        principal: Principal,
        level: Option<LogLevel>,
    ) -> MemberId {
        self.last += 1;
        let subscriber = Subscriber {
            preferences: Preferences {
                level,
                ..Preferences::default()
            },
            principal,
            listener,
        };
        self.members.insert(self.last, subscriber);
        self.last
    }

    /// Returns true if the server may need an update.
    pub(crate) fn leave(&mut self, member: MemberId) -> bool {
        let removed = self.members.remove(&member);
        removed.is_some_and(|subscriber| subscriber.preferences != Preferences::default())
    }

    pub(crate) fn preferences(&mut self, member: MemberId) -> Option<&mut Preferences> {
        let subscriber = self.members.get_mut(&member)?;
        Some(&mut subscriber.preferences)
    }

    pub(crate) fn has_uri(&self, uri: &str) -> bool {
        self.each()
            .any(|preferences| preferences.uris.contains(uri))
    }

    fn each(&self) -> impl Iterator<Item = &Preferences> {
        self.members
            .values()
            .map(|subscriber| &subscriber.preferences)
    }

    /// What the server needs for all clients.
    pub(crate) fn combined(&self) -> Preferences {
        let uris = self.each().flat_map(|preferences| &preferences.uris);
        Preferences {
            level: self.level(),
            uris: uris.cloned().collect(),
        }
    }

    /// The combined level.
    pub(crate) fn level(&self) -> Option<LogLevel> {
        let levels = || self.each().map(|preferences| preferences.level);
        let lowest = levels().flatten().min()?;
        // Clients without a level expect the usual default of servers, `info`.
        let has_default = levels().any(|level| level.is_none());
        Some(if has_default {
            lowest.min(LogLevel::Info)
        } else {
            lowest
        })
    }

    /// Recipients of a notification. Log messages do not name a request: they go to `audience` only.
    pub(crate) fn listeners(&self, message: &Message, audience: &Audience) -> Vec<Listener> {
        let is_level_set = self.each().any(|preferences| preferences.level.is_some());
        let may_receive = |subscriber: &Subscriber| audience.has(subscriber.principal.as_deref());
        let receives: Box<dyn Fn(&Subscriber) -> bool> = match message.method() {
            Some("notifications/message") => {
                let level = LogLevel::of(message);
                Box::new(move |subscriber| {
                    let least = match subscriber.preferences.level {
                        Some(least) => least,
                        None if is_level_set => LogLevel::Info,
                        None => LogLevel::Debug,
                    };
                    level >= least && may_receive(subscriber)
                })
            }
            Some(RESOURCE_UPDATED) => {
                let uri = params::text(message.params(), "uri").unwrap_or_default();
                Box::new(move |subscriber| {
                    let mut uris = subscriber.preferences.uris.iter();
                    uris.any(|subscribed| is_part(&uri, subscribed))
                })
            }
            Some(method) if is_list_change(method) => Box::new(|_| true),
            // Progress is delivered with its call, and requests of a shared process do not reach clients.
            Some("notifications/progress" | "notifications/cancelled") => return Vec::new(),
            _ => Box::new(may_receive),
        };
        let members = self
            .members
            .values()
            .filter(|subscriber| receives(subscriber));
        members
            .map(|subscriber| Arc::clone(&subscriber.listener))
            .collect()
    }
}

/// A server may report a part of the subscribed resource.
fn is_part(uri: &str, parent: &str) -> bool {
    let rest = uri.strip_prefix(parent);
    rest.is_some_and(|rest| {
        rest.is_empty() || parent.ends_with('/') || rest.starts_with(['/', '#', '?'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::notifications::preferences::Preference;

    fn message(json: &str) -> Message {
        Message::parse(json.as_bytes()).expect("a message")
    }

    fn log(level: &str) -> Message {
        message(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":1}}}}"#
        ))
    }

    fn two() -> (Subscriptions, MemberId, MemberId) {
        let mut subscriptions = Subscriptions::default();
        let one = subscriptions.join(Arc::new(|_: &Arc<Message>| {}), None, None);
        let bob = Some("bob".into());
        let two = subscriptions.join(Arc::new(|_: &Arc<Message>| {}), bob, None);
        (subscriptions, one, two)
    }

    fn set(subscriptions: &mut Subscriptions, member: MemberId, preference: Preference) -> bool {
        let own = subscriptions.preferences(member);
        own.expect("a member").apply(preference)
    }

    fn subscribe(uri: &str) -> Preference {
        Preference::Subscribe(uri.to_owned())
    }

    fn unsubscribe(uri: &str) -> Preference {
        Preference::Unsubscribe(uri.to_owned())
    }

    fn count(subscriptions: &Subscriptions, message: &Message) -> usize {
        subscriptions.listeners(message, &Audience::All).len()
    }

    #[test]
    fn the_server_gets_the_most_verbose_level() {
        let (mut subscriptions, one, two) = two();
        assert_eq!(subscriptions.combined(), Preferences::default());
        set(
            &mut subscriptions,
            one,
            Preference::LogLevel(LogLevel::Error),
        );
        assert_eq!(
            subscriptions.combined().level,
            Some(LogLevel::Info),
            "two has not chosen"
        );
        set(
            &mut subscriptions,
            two,
            Preference::LogLevel(LogLevel::Warning),
        );
        assert_eq!(subscriptions.combined().level, Some(LogLevel::Warning));
        assert!(set(&mut subscriptions, one, subscribe("a")));
        assert!(!set(&mut subscriptions, one, subscribe("a")));
        assert!(set(&mut subscriptions, two, subscribe("a")));
        assert!(set(&mut subscriptions, one, unsubscribe("a")));
        assert!(subscriptions.combined().uris.contains("a"));
        assert!(subscriptions.leave(two));
        assert!(subscriptions.combined().uris.is_empty());
    }

    #[test]
    fn each_client_gets_its_level_and_subscriptions() {
        let (mut subscriptions, one, two) = two();
        assert_eq!(count(&subscriptions, &log("debug")), 2);
        set(
            &mut subscriptions,
            one,
            Preference::LogLevel(LogLevel::Debug),
        );
        assert_eq!(count(&subscriptions, &log("debug")), 1);
        assert_eq!(count(&subscriptions, &log("info")), 2);
        set(
            &mut subscriptions,
            two,
            Preference::LogLevel(LogLevel::Alert),
        );
        assert_eq!(count(&subscriptions, &log("critical")), 1);
        let updated = message(
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://a/b"}}"#,
        );
        assert_eq!(count(&subscriptions, &updated), 0);
        set(&mut subscriptions, two, subscribe("x://a"));
        assert_eq!(count(&subscriptions, &updated), 1);
        set(&mut subscriptions, two, unsubscribe("x://a"));
        set(&mut subscriptions, two, subscribe("x://a/"));
        set(&mut subscriptions, one, subscribe("x://a/bc"));
        assert_eq!(count(&subscriptions, &updated), 1);
    }

    #[test]
    fn log_messages_that_may_belong_to_another_principal_are_not_delivered() {
        let (subscriptions, ..) = two();
        let odd = message(r#"{"jsonrpc":"2.0","method":"notifications/odd"}"#);
        let changed = message(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
        let bob = Audience::Only(Some("bob".into()));
        for (audience, expected) in [(Audience::Only(None), 1), (bob, 1), (Audience::None, 0)] {
            for message in [&log("error"), &odd] {
                assert_eq!(
                    subscriptions.listeners(message, &audience).len(),
                    expected,
                    "{audience:?}"
                );
            }
            assert_eq!(subscriptions.listeners(&changed, &audience).len(), 2);
        }
        let stranger = Audience::Only(Some("carol".into()));
        assert_eq!(subscriptions.listeners(&log("error"), &stranger).len(), 0);
    }
}
