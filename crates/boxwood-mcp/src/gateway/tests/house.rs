//! Servers of the era with sessions, and the gateway before them.

use std::sync::Arc;

use boxwood_api::McpServerName;

use super::super::{Gateway, GatewaySettings};
use super::peer;
use crate::gateway::village::{Facts, Kind, Pipe, Village, named};

#[derive(Clone, Copy)]
pub(super) struct WithSessions;

impl Kind for WithSessions {
    const MOST_OWN: usize = 2;

    fn start(self, server: &McpServerName, _: &'static str, facts: &Facts) -> Pipe {
        peer::start(server.as_str(), facts)
    }

    fn is_modern(self) -> bool {
        false
    }
}

pub(super) type Small = Village<WithSessions>;

impl Small {
    pub(super) fn with(names: &[&str]) -> Arc<Self> {
        Self::of(names.iter().map(|name| (named(name), WithSessions)))
    }

    pub(super) fn gateway(self: &Arc<Self>) -> Gateway {
        self.gateway_with(GatewaySettings::default())
    }

    pub(super) fn gateway_with(self: &Arc<Self>, settings: GatewaySettings) -> Gateway {
        let house: Arc<Self> = Arc::clone(self);
        Gateway::over(house, settings)
    }
}
