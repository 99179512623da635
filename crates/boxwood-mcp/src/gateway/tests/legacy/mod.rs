//! Tests of the gateway with legacy clients and fake servers.

mod all_servers;
mod calls;
mod client;
mod modern_servers;
mod peer;
mod registry;
mod server_requests;
mod sessions;
mod shared_processes;
mod streams;

use self::client::Client;
use self::registry::LegacyServers;
