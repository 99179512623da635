//! Log levels and subscriptions of the clients of one shared server.
//!
//! Computes the combined level and subscriptions for the server, and the recipients of each notification.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::params;
use crate::wire::{Audience, Message, Principal};

/// Per client and server.
pub(crate) const MOST_SUBSCRIPTIONS: usize = 1000;
pub(crate) const LONGEST_URI: usize = 8 * 1024;
/// Total size of the URIs of one client over all servers.
pub(crate) const MOST_URI_BYTES: usize = 256 * 1024;
/// Overhead per URI.
pub(crate) const BESIDE_URI: usize = 64;

pub(crate) const RESOURCE_UPDATED: &str = "notifications/resources/updated";

/// The notification that a list has changed.
pub(crate) fn list_changed(list: &str) -> String {
    format!("notifications/{list}/list_changed")
}

pub(crate) fn is_list_change(method: &str) -> bool {
    method.starts_with("notifications/") && method.ends_with("/list_changed")
}

/// Receives notifications of a server, in order. Must not block.
pub(crate) trait NotificationSink: Send + Sync {
    fn deliver(&self, message: &Arc<Message>);
}

/// Bytes of the URIs of one client over all servers. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct UriBytes(Arc<AtomicUsize>);

impl UriBytes {
    /// Returns false if the limit is reached.
    fn take(&self, uri: &str) -> bool {
        let with_it = |held: usize| {
            let all = held.saturating_add(weight_of(uri));
            (all <= MOST_URI_BYTES).then_some(all)
        };
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_it);
        taken.is_ok()
    }

    fn give_back(&self, uri: &str) {
        self.0.fetch_sub(weight_of(uri), Ordering::Relaxed);
    }
}

pub(crate) fn weight_of(uri: &str) -> usize {
    uri.len() + BESIDE_URI
}

pub(crate) type MemberId = u64;

#[derive(Default)]
pub(crate) struct Subscriptions {
    last: MemberId,
    members: HashMap<MemberId, Subscriber>,
}

struct Subscriber {
    level: Option<LogLevel>,
    uris: BTreeSet<String>,
    uri_bytes: UriBytes,
    principal: Principal,
    listener: Arc<dyn NotificationSink>,
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        for uri in &self.uris {
            self.uri_bytes.give_back(uri);
        }
    }
}

/// State that the server needs for all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CombinedSubscriptions {
    /// `None` if no client has set one.
    pub(crate) level: Option<LogLevel>,
    pub(crate) uris: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Made,
    /// The state was the same before.
    Nothing,
    TooMany,
}

impl Subscriptions {
    /// `uri_bytes` is shared with the other servers of the same client.
    pub(crate) fn join(
        &mut self,
        listener: Arc<dyn NotificationSink>,
        principal: Principal,
        uri_bytes: UriBytes,
    ) -> MemberId {
        self.last += 1;
        let subscriber = Subscriber {
            level: None,
            uris: BTreeSet::new(),
            uri_bytes,
            principal,
            listener,
        };
        self.members.insert(self.last, subscriber);
        self.last
    }

    /// Returns true if the server may need an update.
    pub(crate) fn leave(&mut self, member: MemberId) -> bool {
        let gone = self.members.remove(&member);
        gone.is_some_and(|subscriber| subscriber.level.is_some() || !subscriber.uris.is_empty())
    }

    /// Returns the previous level.
    pub(crate) fn set_level(
        &mut self,
        member: MemberId,
        level: Option<LogLevel>,
    ) -> Option<LogLevel> {
        let subscriber = self.members.get_mut(&member)?;
        std::mem::replace(&mut subscriber.level, level)
    }

    pub(crate) fn subscribe(&mut self, member: MemberId, uri: &str) -> Change {
        let Some(subscriber) = self.members.get_mut(&member) else {
            return Change::Nothing;
        };
        if subscriber.uris.contains(uri) {
            return Change::Nothing;
        }
        if subscriber.uris.len() >= MOST_SUBSCRIPTIONS || uri.len() > LONGEST_URI {
            return Change::TooMany;
        }
        if !subscriber.uri_bytes.take(uri) {
            return Change::TooMany;
        }
        subscriber.uris.insert(uri.to_owned());
        Change::Made
    }

    pub(crate) fn unsubscribe(&mut self, member: MemberId, uri: &str) -> Change {
        let Some(subscriber) = self.members.get_mut(&member) else {
            return Change::Nothing;
        };
        if !subscriber.uris.remove(uri) {
            return Change::Nothing;
        }
        subscriber.uri_bytes.give_back(uri);
        Change::Made
    }

    pub(crate) fn has_uri(&self, uri: &str) -> bool {
        self.members
            .values()
            .any(|subscriber| subscriber.uris.contains(uri))
    }

    pub(crate) fn combined(&self) -> CombinedSubscriptions {
        let uris = self
            .members
            .values()
            .flat_map(|subscriber| subscriber.uris.iter());
        CombinedSubscriptions {
            level: self.level(),
            uris: uris.cloned().collect(),
        }
    }

    /// The combined level.
    pub(crate) fn level(&self) -> Option<LogLevel> {
        let levels = || self.members.values().map(|subscriber| subscriber.level);
        let chosen = levels().flatten().min()?;
        // Clients without a level expect about the default of a server, which is `info`.
        let is_unchosen = levels().any(|level| level.is_none());
        Some(if is_unchosen {
            chosen.min(LogLevel::Info)
        } else {
            chosen
        })
    }

    /// Recipients of a notification. Log messages do not name a request: they go to `audience` only.
    pub(crate) fn listeners(
        &self,
        message: &Message,
        audience: &Audience,
    ) -> Vec<Arc<dyn NotificationSink>> {
        let chosen = self
            .members
            .values()
            .any(|subscriber| subscriber.level.is_some());
        let may_hear = |subscriber: &Subscriber| audience.has(subscriber.principal.as_deref());
        let wanted: Box<dyn Fn(&Subscriber) -> bool> = match message.method() {
            Some("notifications/message") => {
                let level = LogLevel::of(message);
                Box::new(move |subscriber| {
                    let least = match subscriber.level {
                        Some(least) => least,
                        None if chosen => LogLevel::Info,
                        None => LogLevel::Debug,
                    };
                    level >= least && may_hear(subscriber)
                })
            }
            Some(RESOURCE_UPDATED) => {
                let uri = params::text(message.params(), "uri").unwrap_or_default();
                Box::new(move |subscriber| {
                    subscriber.uris.iter().any(|wanted| is_part(&uri, wanted))
                })
            }
            Some(method) if is_list_change(method) => Box::new(|_| true),
            // They belong to finished calls and requests.
            Some("notifications/progress" | "notifications/cancelled") => return Vec::new(),
            _ => Box::new(may_hear),
        };
        let members = self
            .members
            .values()
            .filter(|subscriber| wanted(subscriber));
        members
            .map(|subscriber| Arc::clone(&subscriber.listener))
            .collect()
    }
}

/// A server may report a part of the subscribed resource.
fn is_part(uri: &str, of: &str) -> bool {
    let rest = uri.strip_prefix(of);
    rest.is_some_and(|rest| {
        rest.is_empty() || of.ends_with('/') || rest.starts_with(['/', '#', '?'])
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<usize>);

    impl NotificationSink for Heard {
        fn deliver(&self, _: &Arc<Message>) {
            *self.0.lock().expect("lock") += 1;
        }
    }

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
        let one = subscriptions.join(Arc::new(Heard::default()), None, UriBytes::default());
        let bob = Some("bob".into());
        let two = subscriptions.join(Arc::new(Heard::default()), bob, UriBytes::default());
        (subscriptions, one, two)
    }

    fn count(subscriptions: &Subscriptions, message: &Message) -> usize {
        subscriptions.listeners(message, &Audience::All).len()
    }

    #[test]
    fn the_server_gets_the_most_verbose_level() {
        let (mut subscriptions, one, two) = two();
        assert_eq!(subscriptions.combined(), CombinedSubscriptions::default());
        subscriptions.set_level(one, Some(LogLevel::Error));
        assert_eq!(
            subscriptions.combined().level,
            Some(LogLevel::Info),
            "two has not chosen"
        );
        subscriptions.set_level(two, Some(LogLevel::Warning));
        assert_eq!(subscriptions.combined().level, Some(LogLevel::Warning));
        assert_eq!(subscriptions.subscribe(one, "a"), Change::Made);
        assert_eq!(subscriptions.subscribe(one, "a"), Change::Nothing);
        assert_eq!(subscriptions.subscribe(two, "a"), Change::Made);
        assert_eq!(subscriptions.unsubscribe(one, "a"), Change::Made);
        assert!(subscriptions.combined().uris.contains("a"));
        assert!(subscriptions.leave(two));
        assert!(subscriptions.combined().uris.is_empty());
    }

    #[test]
    fn each_client_gets_its_level_and_subscriptions() {
        let (mut subscriptions, one, two) = two();
        assert_eq!(count(&subscriptions, &log("debug")), 2);
        subscriptions.set_level(one, Some(LogLevel::Debug));
        assert_eq!(count(&subscriptions, &log("debug")), 1);
        assert_eq!(count(&subscriptions, &log("info")), 2);
        subscriptions.set_level(two, Some(LogLevel::Alert));
        assert_eq!(count(&subscriptions, &log("critical")), 1);
        let updated = message(
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://a/b"}}"#,
        );
        assert_eq!(count(&subscriptions, &updated), 0);
        subscriptions.subscribe(two, "x://a");
        assert_eq!(count(&subscriptions, &updated), 1);
        subscriptions.unsubscribe(two, "x://a");
        subscriptions.subscribe(two, "x://a/");
        subscriptions.subscribe(one, "x://a/bc");
        assert_eq!(count(&subscriptions, &updated), 1);
    }

    #[test]
    fn log_messages_that_may_belong_to_another_principal_are_not_delivered() {
        let (subscriptions, ..) = two();
        let odd = message(r#"{"jsonrpc":"2.0","method":"notifications/odd"}"#);
        let changed = message(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
        let bob = Audience::Only(Some("bob".into()));
        for (audience, expected) in [(Audience::Only(None), 1), (bob, 1), (Audience::None, 0)] {
            for said in [&log("error"), &odd] {
                assert_eq!(
                    subscriptions.listeners(said, &audience).len(),
                    expected,
                    "{audience:?}"
                );
            }
            assert_eq!(subscriptions.listeners(&changed, &audience).len(), 2);
        }
        let stranger = Audience::Only(Some("carol".into()));
        assert_eq!(subscriptions.listeners(&log("error"), &stranger).len(), 0);
    }

    #[test]
    fn subscriptions_are_bounded() {
        let (mut subscriptions, one, _two) = two();
        for number in 0..MOST_SUBSCRIPTIONS {
            assert_eq!(
                subscriptions.subscribe(one, &number.to_string()),
                Change::Made
            );
        }
        assert_eq!(subscriptions.subscribe(one, "more"), Change::TooMany);
        subscriptions.unsubscribe(one, "0");
        assert_eq!(
            subscriptions.subscribe(one, &"x".repeat(LONGEST_URI + 1)),
            Change::TooMany
        );
    }

    #[test]
    fn a_client_has_so_many_bytes_of_uris_at_all_servers_together() {
        let (mut here, mut there) = (Subscriptions::default(), Subscriptions::default());
        let bytes = UriBytes::default();
        let one = here.join(Arc::new(Heard::default()), None, bytes.clone());
        let same = there.join(Arc::new(Heard::default()), None, bytes);
        let uri = |number: usize| format!("{number:0LONGEST_URI$}");
        let mut count = 0;
        while here.subscribe(one, &uri(count)) == Change::Made {
            count += 1;
        }
        assert_eq!(count, MOST_URI_BYTES / (LONGEST_URI + BESIDE_URI));
        assert_eq!(there.subscribe(same, &uri(0)), Change::TooMany);
        assert_eq!(here.subscribe(one, &uri(0)), Change::Nothing, "it has it");
        let other = there.join(Arc::new(Heard::default()), None, UriBytes::default());
        assert_eq!(
            there.subscribe(other, &uri(0)),
            Change::Made,
            "another client"
        );
        assert_eq!(here.unsubscribe(one, &uri(0)), Change::Made);
        assert_eq!(here.unsubscribe(one, &uri(0)), Change::Nothing);
        assert_eq!(there.subscribe(same, &uri(0)), Change::Made);
        assert_eq!(there.subscribe(same, &uri(1)), Change::TooMany);
        here.leave(one);
        assert_eq!(there.subscribe(same, &uri(1)), Change::Made);
    }
}
