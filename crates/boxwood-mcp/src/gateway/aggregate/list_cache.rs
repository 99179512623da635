//! Caches the lists of each server, so that listing does not start an idle server.
//!
//! An entry is valid for one definition of the server. The total size is bounded; lists beyond it are not
//! cached.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use boxwood_api::McpServerName;
use jiff::Timestamp;
use serde_json::value::RawValue;

use crate::gateway::aggregate::lists::Kind;
use crate::lock;

const MAX_BYTES: usize = 64 << 20;
const MAX_LIST_BYTES: usize = 4 << 20;

/// Raw items.
pub(crate) type List = Arc<[Box<RawValue>]>;

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ListCache {
    lists: Arc<Mutex<HashMap<(McpServerName, Kind), Cached>>>,
}

struct Cached {
    defined_at: Timestamp,
    list: List,
    bytes: usize,
}

impl ListCache {
    /// `names` are all existing servers; entries of others are removed.
    pub(crate) fn insert(
        &self,
        names: &[McpServerName],
        server: &McpServerName,
        defined_at: Timestamp,
        kind: Kind,
        list: &List,
    ) {
        let bytes = list.iter().map(|item| item.get().len()).sum();
        let key = (server.clone(), kind);
        let mut lists = lock(&self.lists);
        lists.retain(|other, _| names.contains(&other.0) && *other != key);
        let cached_bytes: usize = lists.values().map(|cached| cached.bytes).sum();
        if bytes <= MAX_LIST_BYTES && cached_bytes + bytes <= MAX_BYTES {
            let cached = Cached {
                defined_at,
                list: Arc::clone(list),
                bytes,
            };
            lists.insert(key, cached);
        }
    }

    pub(crate) fn find(
        &self,
        server: &McpServerName,
        defined_at: Timestamp,
        kind: Kind,
    ) -> Option<List> {
        let lists = lock(&self.lists);
        let cached = lists.get(&(server.clone(), kind))?;
        (cached.defined_at == defined_at).then(|| Arc::clone(&cached.list))
    }

    /// Returns true if the tools, prompts and resources of the server are cached. Templates are optional.
    pub(crate) fn has_lists(&self, server: &McpServerName, defined_at: Timestamp) -> bool {
        let kinds = [Kind::Tools, Kind::Prompts, Kind::Resources];
        kinds
            .into_iter()
            .all(|kind| self.find(server, defined_at, kind).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::json::raw;

    fn named(name: &str) -> McpServerName {
        McpServerName::new(name).expect("a legal name")
    }

    #[test]
    fn a_cached_list_is_valid_for_one_definition_and_the_cache_is_bounded() {
        let list_cache = ListCache::default();
        let (one, two) = (named("one"), named("two"));
        let names = [one.clone(), two.clone()];
        let (now, later) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let list: List = [raw("x")].into();
        for kind in [Kind::Tools, Kind::Prompts, Kind::Resources] {
            assert!(!list_cache.has_lists(&one, now));
            list_cache.insert(&names, &one, now, kind, &list);
        }
        assert!(list_cache.has_lists(&one, now) && !list_cache.has_lists(&one, later));
        let long: List = [raw(&"x".repeat(MAX_LIST_BYTES))].into();
        list_cache.insert(&names, &one, now, Kind::Tools, &long);
        assert!(list_cache.find(&one, now, Kind::Tools).is_none());
        list_cache.insert(&names[1..], &two, now, Kind::Tools, &list);
        assert!(
            list_cache.find(&one, now, Kind::Prompts).is_none(),
            "it is gone"
        );
    }
}
