//! Settings of hosted MCP servers and the gateway.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use boxwood_mcp::{GatewaySettings, HostingSettings};
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpConfig {
    /// Whether this daemon hosts MCP servers. Stored definitions are kept.
    pub enabled: bool,
    /// Maximum number of concurrent server starts.
    pub starts_at_once: NonZeroUsize,
    pub max_servers: usize,
    /// Maximum number of concurrent tests.
    pub max_tests: usize,
    /// Additional processes per server, for clients that support server requests. Others share one
    /// process.
    pub max_children: usize,
    /// Idle time after which such a process is stopped.
    pub idle_child_sec: NonZeroU64,
    /// Timeout of a manual tool call.
    pub call_timeout_sec: NonZeroU64,
    /// Maximum number of MCP sessions over HTTP, over all servers.
    pub max_sessions: usize,
    /// Idle time after which an MCP session is deleted.
    pub session_idle_sec: NonZeroU64,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            starts_at_once: const { NonZeroUsize::new(4).unwrap() },
            max_servers: 500,
            max_tests: 4,
            max_children: 16,
            idle_child_sec: const { NonZeroU64::new(300).unwrap() },
            call_timeout_sec: const { NonZeroU64::new(300).unwrap() },
            max_sessions: 1000,
            session_idle_sec: const { NonZeroU64::new(1800).unwrap() },
        }
    }
}

impl McpConfig {
    pub(crate) fn hosting(&self, directory: PathBuf) -> HostingSettings {
        HostingSettings {
            starts_at_once: self.starts_at_once.get(),
            max_servers: self.max_servers,
            max_tests: self.max_tests,
            max_children: self.max_children,
            idle_child: Duration::from_secs(self.idle_child_sec.get()),
            call_timeout: Duration::from_secs(self.call_timeout_sec.get()),
            ..HostingSettings::new(directory)
        }
    }

    pub(crate) fn gateway(&self, max_body: usize) -> GatewaySettings {
        GatewaySettings {
            max_body,
            max_sessions: self.max_sessions,
            session_idle: Duration::from_secs(self.session_idle_sec.get()),
            ..GatewaySettings::default()
        }
    }
}
