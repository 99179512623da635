//! Fake legacy servers, and the gateway in front of them.

use std::sync::Arc;

use boxwood_api::McpServerName;

use super::peer;
use crate::gateway::tests::fake_servers::{FakeServers, Kind, Pipe, ServerRecord, named};

#[derive(Clone, Copy)]
pub(super) struct LegacyServer;

impl Kind for LegacyServer {
    const MAX_DEDICATED: usize = 2;

    fn start(self, server: &McpServerName, _: &'static str, record: &ServerRecord) -> Pipe {
        peer::start(server.as_str(), record)
    }

    fn is_modern(self) -> bool {
        false
    }
}

pub(super) type LegacyServers = FakeServers<LegacyServer>;

impl LegacyServers {
    pub(super) fn with(names: &[&str]) -> Arc<Self> {
        Self::of(names.iter().map(|name| (named(name), LegacyServer)))
    }
}
