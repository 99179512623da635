//! Fake servers of all protocol versions, and the modern endpoint in front of them.

use std::sync::Arc;

use boxwood_api::McpServerName;

use super::peer::{Versions, start};
use crate::gateway::tests::fake_servers::{self, Kind, Pipe, ServerRecord, named};

impl Kind for Versions {
    const MAX_DEDICATED: usize = 3;

    fn start(self, _: &McpServerName, process: &'static str, record: &ServerRecord) -> Pipe {
        start(process, self, record)
    }

    fn is_modern(self) -> bool {
        self != Self::Legacy
    }
}

pub(in crate::gateway::tests) type FakeServers = fake_servers::FakeServers<Versions>;

impl FakeServers {
    pub(in crate::gateway::tests) fn with(servers: &[(&str, Versions)]) -> Arc<Self> {
        Self::of(
            servers
                .iter()
                .map(|(name, versions)| (named(name), *versions)),
        )
    }
}
