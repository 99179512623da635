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
    servers: BTreeMap<McpServerName, LastState>,
}

#[derive(Clone, Copy)]
struct LastState {
    /// Connection id of the main process. Another process may have other lists.
    main: Option<u64>,
    was_idle: bool,
}

impl ListChanges {
    /// Returns true if the lists may have changed since the last call.
    pub(crate) fn update(&mut self, all: &Aggregate) -> bool {
        let registry = &all.registry;
        let mut before = std::mem::take(&mut self.servers);
        let mut is_changed = false;
        for name in registry.names() {
            let status = registry.status(&name);
            let last = before.remove(&name);
            let last_main = last.and_then(|last| last.main);
            let now = match status.state {
                ServerState::Connected(main) => {
                    let was_idle = last.is_some_and(|last| last.was_idle);
                    let is_unchanged =
                        was_idle && all.list_cache.has_lists(&name, status.defined_at);
                    is_changed |= !is_unchanged && last_main != Some(main);
                    Some((Some(main), false))
                }
                ServerState::Idle => {
                    is_changed |= last.is_none();
                    Some((last_main, true))
                }
                ServerState::Starting => last.map(|last| (last.main, last.was_idle)),
                ServerState::Unavailable => {
                    is_changed |= last.is_some();
                    None
                }
            };
            if let Some((main, was_idle)) = now {
                self.servers.insert(name, LastState { main, was_idle });
            }
        }
        is_changed || !before.is_empty()
    }
}
