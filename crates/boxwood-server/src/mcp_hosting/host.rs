//! Hosting and its gateway during the daemon's lifetime.
//!
//! A daemon with an unwritable state directory still serves everything else.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{ErrorCode, McpStatus};
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

pub(crate) enum McpHost {
    Here(Box<Here>),
    /// Disabled in the configuration.
    Off {
        sessions: Sessions,
    },
    /// Setup failed.
    Broken {
        why: String,
        sessions: Sessions,
    },
}

pub(crate) struct Here {
    hosting: Hosting,
    gateway: Gateway,
    sessions: Sessions,
}

impl McpHost {
    pub(crate) fn new(
        config: &Config,
        sessions: &Sessions,
        rules: &PolicyRules,
        skills: &SkillStore,
        start_timeout: Duration,
    ) -> Self {
        if !config.mcp.enabled {
            return Self::Off {
                sessions: sessions.clone(),
            };
        }
        let runtime = DaemonRuntime::new(
            &config.state_dir.join(DIRECTORY),
            sessions,
            rules,
            skills.clone(),
            start_timeout,
            config.agent.enabled,
        );
        let made = runtime
            .map_err(|source| HostingError::Storage {
                doing: "creating the directory of MCP servers",
                source,
            })
            .and_then(|runtime| {
                let settings = config.mcp.hosting(runtime.home().to_owned());
                Hosting::new(Arc::new(runtime), settings)
            });
        match made {
            Ok(hosting) => Self::Here(Box::new(Here {
                gateway: Gateway::new(
                    hosting.clone(),
                    config.mcp.gateway(config.http.max_body_bytes),
                ),
                hosting,
                sessions: sessions.clone(),
            })),
            Err(error) => {
                let cause: &dyn std::error::Error = &error;
                tracing::error!(error = cause, "this daemon hosts no MCP servers");
                Self::Broken {
                    why: error.to_string(),
                    sessions: sessions.clone(),
                }
            }
        }
    }

    /// Call after sessions of an earlier daemon were adopted. Returns at once.
    pub(crate) fn begin(&self, stopping: watch::Receiver<bool>) {
        match self {
            Self::Here(here) => {
                here.hosting.begin();
                let telling =
                    status_events::publish(here.hosting.clone(), here.sessions.clone(), stopping);
                tokio::spawn(telling);
            }
            Self::Off { sessions } => {
                tokio::spawn(leftover_boxes::remove_all(sessions.clone()));
            }
            Self::Broken { sessions, .. } => leftover_boxes::warn(sessions),
        }
    }

    /// Detaches from all servers. Servers whose boxes outlive the daemon keep running.
    pub(crate) async fn close(&self) {
        let Self::Here(here) = self else {
            return;
        };
        let closing = async {
            here.gateway.close();
            here.hosting.close().await;
        };
        if tokio::time::timeout(DETACH_TIMEOUT, closing).await.is_err() {
            tracing::warn!("timed out while detaching from MCP servers");
        }
    }

    pub(crate) fn hosting(&self) -> ApiResult<&Hosting> {
        self.here().map(|here| &here.hosting)
    }

    pub(crate) fn gateway(&self) -> ApiResult<&Gateway> {
        self.here().map(|here| &here.gateway)
    }

    fn here(&self) -> ApiResult<&Here> {
        match self {
            Self::Here(here) => Ok(here),
            Self::Off { .. } => Err(ApiError::new(
                ErrorCode::BackendUnavailable,
                "this daemon hosts no MCP servers: hosting is disabled in its configuration",
            )
            .hint("set `enabled = true` under `[mcp]` in Boxwood's configuration")),
            Self::Broken { why, .. } => Err(ApiError::new(
                ErrorCode::BackendUnavailable,
                format!("this daemon hosts no MCP servers: {why}"),
            )
            .hint(
                "fix the cause shown in the daemon's log and restart the daemon; running servers are not \
                 affected, and the daemon's user can remove one with `BOXWOOD_OPERATOR=1 boxwood rm mcp-NAME`",
            )),
        }
    }

    /// Number of servers by status.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let Self::Here(here) = self else {
            return Vec::new();
        };
        let mut counts = STATUSES.map(|status| (status_events::word(status), 0));
        for server in here.hosting.summaries() {
            let word = status_events::word(server.status);
            for (name, count) in &mut counts {
                *count += u64::from(*name == word);
            }
        }
        counts.to_vec()
    }
}

const STATUSES: [McpStatus; 6] = [
    McpStatus::Disabled,
    McpStatus::Queued,
    McpStatus::Connecting,
    McpStatus::Connected,
    McpStatus::Stopped,
    McpStatus::Error,
];
