//! Fake servers of all protocol versions, and the modern endpoint in front of them.

use std::sync::Arc;

use boxwood_api::McpServerName;

use super::peer::{Knows, start};
use crate::gateway::tests::fake_servers::{self, Kind, Pipe, ServerRecord, named};

impl Kind for Knows {
    const MOST_OWN: usize = 3;

    fn start(self, _: &McpServerName, process: &'static str, record: &ServerRecord) -> Pipe {
        start(process, self, record)
    }

    fn is_modern(self) -> bool {
        self != Self::Sessions
    }
}

pub(in crate::gateway::tests) type FakeServers = fake_servers::FakeServers<Knows>;

impl FakeServers {
    pub(in crate::gateway::tests) fn with(servers: &[(&str, Knows)]) -> Arc<Self> {
        Self::of(servers.iter().map(|(name, knows)| (named(name), *knows)))
    }
}
