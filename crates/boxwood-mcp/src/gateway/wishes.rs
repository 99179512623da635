//! What the clients of one shared server want to hear, each for itself and all together.
//!
//! Comes in: levels, subscriptions, calls that begin and end. Goes out: what the server must be told so
//! that everybody is served, and for each message who gets it. Never here: the server.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::level::Level;
use super::params;
use crate::wire::{Audience, Message, Principal};

/// For one client of one server.
pub(crate) const MOST_SUBSCRIPTIONS: usize = 1000;
pub(crate) const LONGEST_URI: usize = 8 * 1024;
/// Of all the URIs that one client has subscribed to, over all servers.
pub(crate) const MOST_URI_BYTES: usize = 256 * 1024;
/// What each takes beside its text.
pub(crate) const BESIDE_URI: usize = 64;

/// Somebody who is told what a server says unasked. Called in order, and must not wait.
pub(crate) trait Listener: Send + Sync {
    fn hear(&self, message: &Arc<Message>);
}

/// Bytes of the URIs that one client has subscribed to, over all servers. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct UriBytes(Arc<AtomicUsize>);

impl UriBytes {
    /// Whether there was room.
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
pub(crate) struct Wishes {
    last: MemberId,
    members: HashMap<MemberId, Wish>,
}

struct Wish {
    level: Option<Level>,
    uris: BTreeSet<String>,
    uri_bytes: UriBytes,
    principal: Principal,
    /// Calls that are going on.
    busy: usize,
    listener: Arc<dyn Listener>,
}

impl Drop for Wish {
    fn drop(&mut self) {
        for uri in &self.uris {
            self.uri_bytes.give_back(uri);
        }
    }
}

/// What a server is told for everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Union {
    /// Nobody has chosen one when missing.
    pub(crate) level: Option<Level>,
    pub(crate) uris: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Made,
    /// It was so before.
    Nothing,
    TooMany,
}

impl Wishes {
    /// `uri_bytes` are those of the same client at other servers, too.
    pub(crate) fn join(
        &mut self,
        listener: Arc<dyn Listener>,
        principal: Principal,
        uri_bytes: UriBytes,
    ) -> MemberId {
        self.last += 1;
        let wish = Wish {
            level: None,
            uris: BTreeSet::new(),
            uri_bytes,
            principal,
            busy: 0,
            listener,
        };
        self.members.insert(self.last, wish);
        self.last
    }

    /// Whether the server may have to be told.
    pub(crate) fn leave(&mut self, member: MemberId) -> bool {
        let gone = self.members.remove(&member);
        gone.is_some_and(|wish| wish.level.is_some() || !wish.uris.is_empty())
    }

    /// What it was before.
    pub(crate) fn set_level(&mut self, member: MemberId, level: Option<Level>) -> Option<Level> {
        let wish = self.members.get_mut(&member)?;
        std::mem::replace(&mut wish.level, level)
    }

    pub(crate) fn subscribe(&mut self, member: MemberId, uri: &str) -> Change {
        let Some(wish) = self.members.get_mut(&member) else {
            return Change::Nothing;
        };
        if wish.uris.contains(uri) {
            return Change::Nothing;
        }
        if wish.uris.len() >= MOST_SUBSCRIPTIONS || uri.len() > LONGEST_URI {
            return Change::TooMany;
        }
        if !wish.uri_bytes.take(uri) {
            return Change::TooMany;
        }
        wish.uris.insert(uri.to_owned());
        Change::Made
    }

    pub(crate) fn unsubscribe(&mut self, member: MemberId, uri: &str) -> Change {
        let Some(wish) = self.members.get_mut(&member) else {
            return Change::Nothing;
        };
        if !wish.uris.remove(uri) {
            return Change::Nothing;
        }
        wish.uri_bytes.give_back(uri);
        Change::Made
    }

    /// Whether anybody wants to hear of it.
    pub(crate) fn has_uri(&self, uri: &str) -> bool {
        self.members.values().any(|wish| wish.uris.contains(uri))
    }

    pub(crate) fn busy(&mut self, member: MemberId) {
        if let Some(wish) = self.members.get_mut(&member) {
            wish.busy += 1;
        }
    }

    pub(crate) fn done(&mut self, member: MemberId) {
        if let Some(wish) = self.members.get_mut(&member) {
            wish.busy = wish.busy.saturating_sub(1);
        }
    }

    pub(crate) fn union(&self) -> Union {
        let uris = self.members.values().flat_map(|wish| wish.uris.iter());
        Union {
            level: self.level(),
            uris: uris.cloned().collect(),
        }
    }

    /// Of the union.
    pub(crate) fn level(&self) -> Option<Level> {
        let chosen = self.members.values().filter_map(|wish| wish.level).min();
        let is_unchosen = self.members.values().any(|wish| wish.level.is_none());
        // Who has not chosen expects what a server says of itself, which is about this much.
        chosen.map(|level| {
            if is_unchosen {
                level.min(Level::Info)
            } else {
                level
            }
        })
    }

    /// Who is told. A server does not say for whom it logs: it is for `audience` and nobody else, and of
    /// that, while calls are going on, for those who made them.
    pub(crate) fn listeners(
        &self,
        message: &Message,
        audience: &Audience,
    ) -> Vec<Arc<dyn Listener>> {
        let chosen = self.members.values().any(|wish| wish.level.is_some());
        let may_hear = |wish: &Wish| audience.has(wish.principal.as_deref());
        let calls = |wish: &Wish| wish.busy > 0 && may_hear(wish);
        let somebody_calls = self.members.values().any(calls);
        let concerns = |wish: &Wish| may_hear(wish) && (!somebody_calls || wish.busy > 0);
        let wanted: Box<dyn Fn(&Wish) -> bool> = match message.method() {
            Some("notifications/message") => {
                let level = Level::of(message);
                Box::new(move |wish| {
                    let least = match wish.level {
                        Some(least) => least,
                        None if chosen => Level::Info,
                        None => Level::Debug,
                    };
                    level >= least && concerns(wish)
                })
            }
            Some("notifications/resources/updated") => {
                let uri = params::text(message.params(), "uri").unwrap_or_default();
                Box::new(move |wish| wish.uris.iter().any(|wanted| is_part(&uri, wanted)))
            }
            Some(
                "notifications/tools/list_changed"
                | "notifications/prompts/list_changed"
                | "notifications/resources/list_changed",
            ) => Box::new(|_| true),
            // Of calls and questions that are over.
            Some("notifications/progress" | "notifications/cancelled") => return Vec::new(),
            _ => Box::new(concerns),
        };
        let members = self.members.values().filter(|wish| wanted(wish));
        members.map(|wish| Arc::clone(&wish.listener)).collect()
    }
}

/// A server may tell of a part of what was subscribed to.
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

    impl Listener for Heard {
        fn hear(&self, _: &Arc<Message>) {
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

    fn two() -> (Wishes, MemberId, MemberId) {
        let mut wishes = Wishes::default();
        let one = wishes.join(Arc::new(Heard::default()), None, UriBytes::default());
        let bob = Some("bob".into());
        let two = wishes.join(Arc::new(Heard::default()), bob, UriBytes::default());
        (wishes, one, two)
    }

    fn count(wishes: &Wishes, message: &Message) -> usize {
        wishes.listeners(message, &Audience::Everybody).len()
    }

    #[test]
    fn the_server_is_told_the_most_that_anybody_wants() {
        let (mut wishes, one, two) = two();
        assert_eq!(wishes.union(), Union::default());
        wishes.set_level(one, Some(Level::Error));
        assert_eq!(
            wishes.union().level,
            Some(Level::Info),
            "two has not chosen"
        );
        wishes.set_level(two, Some(Level::Warning));
        assert_eq!(wishes.union().level, Some(Level::Warning));
        assert_eq!(wishes.subscribe(one, "a"), Change::Made);
        assert_eq!(wishes.subscribe(one, "a"), Change::Nothing);
        assert_eq!(wishes.subscribe(two, "a"), Change::Made);
        assert_eq!(wishes.unsubscribe(one, "a"), Change::Made);
        assert!(wishes.union().uris.contains("a"));
        assert!(wishes.leave(two));
        assert!(wishes.union().uris.is_empty());
    }

    #[test]
    fn each_hears_what_it_chose() {
        let (mut wishes, one, two) = two();
        assert_eq!(count(&wishes, &log("debug")), 2);
        wishes.set_level(one, Some(Level::Debug));
        assert_eq!(count(&wishes, &log("debug")), 1);
        assert_eq!(count(&wishes, &log("info")), 2);
        wishes.set_level(two, Some(Level::Alert));
        assert_eq!(count(&wishes, &log("critical")), 1);
        let updated = message(
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://a/b"}}"#,
        );
        assert_eq!(count(&wishes, &updated), 0);
        wishes.subscribe(two, "x://a");
        assert_eq!(count(&wishes, &updated), 1);
        wishes.unsubscribe(two, "x://a");
        wishes.subscribe(two, "x://a/");
        wishes.subscribe(one, "x://a/bc");
        assert_eq!(count(&wishes, &updated), 1);
    }

    #[test]
    fn what_a_call_makes_a_server_say_is_for_the_caller() {
        let (mut wishes, one, _two) = two();
        wishes.busy(one);
        assert_eq!(count(&wishes, &log("info")), 1);
        let changed = message(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
        assert_eq!(count(&wishes, &changed), 2);
        wishes.done(one);
        assert_eq!(count(&wishes, &log("info")), 2);
    }

    #[test]
    fn what_may_be_about_somebody_else_is_not_heard() {
        let (mut wishes, one, _two) = two();
        let odd = message(r#"{"jsonrpc":"2.0","method":"notifications/odd"}"#);
        let changed = message(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
        wishes.busy(one);
        let bob = Audience::Only(Some("bob".into()));
        for (audience, expected) in [(Audience::Only(None), 1), (bob, 1), (Audience::Nobody, 0)] {
            for said in [&log("error"), &odd] {
                assert_eq!(
                    wishes.listeners(said, &audience).len(),
                    expected,
                    "{audience:?}"
                );
            }
            assert_eq!(wishes.listeners(&changed, &audience).len(), 2);
        }
        let stranger = Audience::Only(Some("carol".into()));
        assert_eq!(wishes.listeners(&log("error"), &stranger).len(), 0);
    }

    #[test]
    fn subscriptions_are_bounded() {
        let (mut wishes, one, _two) = two();
        for number in 0..MOST_SUBSCRIPTIONS {
            assert_eq!(wishes.subscribe(one, &number.to_string()), Change::Made);
        }
        assert_eq!(wishes.subscribe(one, "more"), Change::TooMany);
        wishes.unsubscribe(one, "0");
        assert_eq!(
            wishes.subscribe(one, &"x".repeat(LONGEST_URI + 1)),
            Change::TooMany
        );
    }

    #[test]
    fn a_client_has_so_many_bytes_of_uris_at_all_servers_together() {
        let (mut here, mut there) = (Wishes::default(), Wishes::default());
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
