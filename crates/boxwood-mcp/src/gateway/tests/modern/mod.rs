//! Tests of the gateway with modern clients and fake servers of all protocol versions.

mod all_servers;
mod client;
mod legacy_servers;
mod modern_servers;
mod peer;
mod registry;
mod server_requests;
mod subscriptions;
mod tool_filter;

use self::client::Client;
pub(super) use self::peer::Versions;
pub(super) use self::registry::FakeServers;
