//! Servers of every era, and the gateway's side of the stateless one before them.

use std::sync::Arc;

use boxwood_api::McpServerName;

use super::peer::{Knows, start};
use crate::gateway::GatewaySettings;
use crate::gateway::aggregate::Aggregate;
use crate::gateway::budget::Budget;
use crate::gateway::hub::Hubs;
use crate::gateway::modern::Modern;
use crate::gateway::village::{self, Facts, Kind, Pipe, named};

impl Kind for Knows {
    const MOST_OWN: usize = 3;

    fn start(self, _: &McpServerName, process: &'static str, facts: &Facts) -> Pipe {
        start(process, self, facts)
    }

    fn is_modern(self) -> bool {
        self != Self::Sessions
    }
}

pub(super) type Village = village::Village<Knows>;

impl Village {
    pub(super) fn with(servers: &[(&str, Knows)]) -> Arc<Self> {
        Self::of(servers.iter().map(|(name, knows)| (named(name), *knows)))
    }

    pub(super) fn modern(self: &Arc<Self>) -> Modern {
        self.modern_with(&GatewaySettings::default())
    }

    pub(super) fn modern_with(self: &Arc<Self>, settings: &GatewaySettings) -> Modern {
        let all = self.all();
        let hubs = Arc::new(Hubs::new(Arc::clone(all.house())));
        let budget = Budget::new(settings.max_unread);
        Modern::new(&all, &hubs, &budget, settings)
    }

    pub(super) fn all(self: &Arc<Self>) -> Aggregate {
        Aggregate::new(Arc::<Self>::clone(self))
    }
}
