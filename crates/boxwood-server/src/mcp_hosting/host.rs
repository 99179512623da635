//! Hosting and its gateway during the daemon's lifetime.
//!
//! A daemon with an unwritable state directory still serves everything else.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{ErrorCode, McpStatus, with_causes};
use boxwood_mcp::{Gateway, Hosting, HostingError};
use boxwood_policy::PolicyRules;
use boxwood_session::Sessions;
use boxwood_skills::SkillStore;
use tokio::sync::watch;

use super::{DaemonRuntime, leftover_boxes, status_events};
use crate::Config;
use crate::http::{ApiError, ApiResult};

/// Subdirectory of the state directory.
const DIRECTORY: &str = "mcp";

/// Time limit for detaching from all servers.
const DETACH_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) struct McpHost {
    pub(super) sessions: Sessions,
    pub(super) running: Result<Running, NotRunning>,
}

pub(super) struct Running {
    hosting: Hosting,
    gateway: Gateway,
}

pub(super) enum NotRunning {
    /// In the configuration.
    Disabled,
    /// Why setup failed.
    Failed(String),
}

impl McpHost {
    pub(crate) fn new(
        config: &Config,
        sessions: &Sessions,
        rules: &PolicyRules,
        skills: &SkillStore,
        start_timeout: Duration,
    ) -> Self {
        let start = || {
            let runtime = DaemonRuntime::new(
                &config.state_dir.join(DIRECTORY),
                sessions,
                rules,
                skills.clone(),
                start_timeout,
                config.agent.enabled,
            )
            .map_err(|source| HostingError::Storage {
                doing: "creating the directory of MCP servers",
                source,
            })?;
            let settings = config.mcp.hosting(runtime.home().to_owned());
            Hosting::new(Arc::new(runtime), settings)
        };
        let running = if config.mcp.enabled {
            start().map_err(|error| {
                tracing::error!(error = %with_causes(&error), "failed to start the hosting of MCP servers");
                NotRunning::Failed(error.to_string())
            })
        } else {
            Err(NotRunning::Disabled)
        };
        let gateway = config.mcp.gateway(config.http.max_body_bytes);
        Self {
            sessions: sessions.clone(),
            running: running.map(|hosting| Running {
                gateway: Gateway::new(hosting.clone(), gateway),
                hosting,
            }),
        }
    }

    /// Call after sessions of an earlier daemon were adopted. Returns at once.
    pub(crate) fn begin(&self, stopping: watch::Receiver<bool>) {
        let sessions = self.sessions.clone();
        match &self.running {
            Ok(Running { hosting, .. }) => {
                hosting.begin();
                tokio::spawn(status_events::publish(hosting.clone(), sessions, stopping));
            }
            Err(NotRunning::Disabled) => {
                tokio::spawn(leftover_boxes::remove_all(sessions));
            }
            Err(NotRunning::Failed(_)) => leftover_boxes::warn(&sessions),
        }
    }

    /// Detaches from all servers. Servers whose boxes outlive the daemon keep running.
    pub(crate) async fn close(&self) {
        let Ok(Running { hosting, gateway }) = &self.running else {
            return;
        };
        let closing = async {
            gateway.close();
            hosting.close().await;
        };
        if tokio::time::timeout(DETACH_TIMEOUT, closing).await.is_err() {
            tracing::warn!("timed out while detaching from MCP servers");
        }
    }

    pub(crate) fn hosting(&self) -> ApiResult<&Hosting> {
        self.running().map(|running| &running.hosting)
    }

    pub(crate) fn gateway(&self) -> ApiResult<&Gateway> {
        self.running().map(|running| &running.gateway)
    }

    fn running(&self) -> ApiResult<&Running> {
        let (why, hint) = match &self.running {
            Ok(running) => return Ok(running),
            Err(NotRunning::Disabled) => (
                "hosting is disabled in its configuration",
                "set `enabled = true` under `[mcp]` in Boxwood's configuration",
            ),
            Err(NotRunning::Failed(why)) => (
                why.as_str(),
                "fix the cause shown in the daemon's log and restart the daemon; running servers are not \
                 affected, and the daemon's user can remove one with `BOXWOOD_OPERATOR=1 boxwood rm mcp-NAME`",
            ),
        };
        let message = format!("this daemon hosts no MCP servers: {why}");
        Err(ApiError::new(ErrorCode::BackendUnavailable, message).hint(hint))
    }

    /// Number of servers by status.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let Ok(running) = &self.running else {
            return Vec::new();
        };
        let servers = running.hosting.summaries();
        let count = |status| {
            servers
                .iter()
                .filter(|server| server.status == status)
                .count()
        };
        let statuses = McpStatus::ALL.iter();
        statuses
            .map(|&status| (status.as_str(), count(status) as u64))
            .collect()
    }
}
