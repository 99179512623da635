//! What each server listed last, so that one that rests is not woken only to be listed.
//!
//! Comes in: lists as servers gave them. Goes out: the same, as long as the server is described as it was
//! then. Bounded over all servers: what is too much is not kept, and its server is asked again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boxwood_api::McpServerName;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::lists::Kind;

const MOST_BYTES: usize = 64 << 20;
const MOST_OF_ONE: usize = 4 << 20;

/// Each thing as it was written.
pub(crate) type List = Arc<[Box<RawValue>]>;

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Remembered {
    servers: Arc<Mutex<HashMap<McpServerName, Server>>>,
}

struct Server {
    edition: Timestamp,
    lists: HashMap<Kind, (List, usize)>,
}

impl Remembered {
    /// `names` are the servers there are; what others listed is forgotten.
    pub(crate) fn keep(
        &self,
        names: &[McpServerName],
        server: &McpServerName,
        edition: Timestamp,
        kind: Kind,
        list: &List,
    ) {
        let bytes = list.iter().map(|item| item.get().len()).sum();
        let mut servers = self.lock();
        servers.retain(|name, _| names.contains(name));
        let known = servers.entry(server.clone()).or_insert_with(|| Server {
            edition,
            lists: HashMap::new(),
        });
        if known.edition != edition {
            known.edition = edition;
            known.lists.clear();
        }
        known.lists.remove(&kind);
        let lists = servers.values().flat_map(|server| server.lists.values());
        let kept: usize = lists.map(|(_, bytes)| bytes).sum();
        if bytes <= MOST_OF_ONE && kept + bytes <= MOST_BYTES {
            let known = servers.get_mut(server);
            known.map(|known| known.lists.insert(kind, (Arc::clone(list), bytes)));
        }
    }

    pub(crate) fn find(
        &self,
        server: &McpServerName,
        edition: Timestamp,
        kind: Kind,
    ) -> Option<List> {
        let servers = self.lock();
        let known = servers.get(server)?;
        let (list, _) = known.lists.get(&kind)?;
        (known.edition == edition).then(|| Arc::clone(list))
    }

    /// Whether clients can have seen all that it lists.
    pub(crate) fn knows(&self, server: &McpServerName, edition: Timestamp) -> bool {
        let kinds = [Kind::Tools, Kind::Prompts, Kind::Resources];
        kinds
            .into_iter()
            .all(|kind| self.find(server, edition, kind).is_some())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<McpServerName, Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::raw;
    use super::*;

    fn named(name: &str) -> McpServerName {
        McpServerName::new(name).expect("a legal name")
    }

    #[test]
    fn a_list_is_good_for_the_description_it_was_made_with_and_lists_are_bounded() {
        let remembered = Remembered::default();
        let (one, two) = (named("one"), named("two"));
        let names = [one.clone(), two.clone()];
        let (now, later) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let list: List = [raw("x")].into();
        for kind in [Kind::Tools, Kind::Prompts, Kind::Resources] {
            assert!(!remembered.knows(&one, now));
            remembered.keep(&names, &one, now, kind, &list);
        }
        assert!(remembered.knows(&one, now) && !remembered.knows(&one, later));
        let long: List = [raw(&"x".repeat(MOST_OF_ONE))].into();
        remembered.keep(&names, &one, now, Kind::Tools, &long);
        assert!(remembered.find(&one, now, Kind::Tools).is_none());
        remembered.keep(&names[1..], &two, now, Kind::Tools, &list);
        assert!(
            remembered.find(&one, now, Kind::Prompts).is_none(),
            "it is gone"
        );
    }
}
