//! Decides when clients of all servers get `list_changed` notifications.
//!
//! A server that becomes idle or starts again has the same lists. Notifying clients would make them list
//! again and start the server again.

use std::collections::BTreeMap;

use boxwood_api::McpServerName;

use crate::gateway::aggregate::Aggregate;
use crate::gateway::server_registry::ServerState;

#[derive(Default)]
pub(crate) struct ListChanges {
    seen: BTreeMap<McpServerName, Seen>,
}

#[derive(Clone, Copy)]
struct Seen {
    /// Another process may have other lists.
    main: Option<u64>,
    was_idle: bool,
}

impl ListChanges {
    /// Returns true if the lists may have changed since the last call.
    pub(crate) fn update(&mut self, all: &Aggregate) -> bool {
        let registry = all.registry();
        let before = std::mem::take(&mut self.seen);
        let mut is_changed = false;
        for name in registry.names() {
            let status = registry.status(&name);
            let seen = before.get(&name).copied();
            let now = match status.how {
                ServerState::Connected(main) => {
                    let is_unchanged = seen.is_some_and(|seen| seen.was_idle)
                        && all.list_cache().knows(&name, status.defined_at);
                    is_changed |= !is_unchanged && seen.and_then(|seen| seen.main) != Some(main);
                    Some(Seen {
                        main: Some(main),
                        was_idle: false,
                    })
                }
                ServerState::Idle => {
                    is_changed |= seen.is_none();
                    Some(Seen {
                        main: seen.and_then(|seen| seen.main),
                        was_idle: true,
                    })
                }
                ServerState::Starting => seen,
                ServerState::Unavailable => {
                    is_changed |= seen.is_some();
                    None
                }
            };
            if let Some(now) = now {
                self.seen.insert(name, now);
            }
        }
        is_changed || before.keys().any(|name| !self.seen.contains_key(name))
    }
}
