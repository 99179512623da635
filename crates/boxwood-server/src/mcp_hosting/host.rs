//! Hosting and its gateway, from the daemon's start to its end.
//!
//! Comes in: the configuration and the sessions. Goes out: both, or why there are none. A daemon whose
//! state directory cannot be written to still serves everything else.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{ErrorCode, McpStatus};
use boxwood_mcp::{Gateway, Hosting, HostingError};
use boxwood_policy::PolicyRules;
use boxwood_session::Sessions;
use boxwood_skills::SkillStore;
use tokio::sync::watch;

use super::{DaemonRuntime, news, unattended};
use crate::Config;
use crate::http::{ApiError, ApiResult};

/// Below the state directory.
const DIRECTORY: &str = "mcp";

/// For hosting to let go of its servers.
const GOODBYE: Duration = Duration::from_secs(15);

pub(crate) enum McpHost {
    Here(Box<Here>),
    /// The operator wants none.
    Off {
        sessions: Sessions,
    },
    /// The daemon could not set it up.
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
        start_patience: Duration,
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
            start_patience,
            config.agent.enabled,
        );
        let made = runtime
            .map_err(|source| HostingError::Storage {
                doing: "making the directory of MCP servers",
                source,
            })
            .and_then(|runtime| {
                let mut settings = config.mcp.hosting(runtime.home().to_owned());
                settings.min_free_bytes = config.load.limits().min_free_bytes;
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

    /// Once sessions of an earlier daemon were taken over. Returns at once.
    pub(crate) fn begin(&self, stopping: watch::Receiver<bool>) {
        match self {
            Self::Here(here) => {
                here.hosting.begin();
                let telling = news::tell(here.hosting.clone(), here.sessions.clone(), stopping);
                tokio::spawn(telling);
            }
            Self::Off { sessions } => {
                tokio::spawn(unattended::end(sessions.clone()));
            }
            Self::Broken { sessions, .. } => unattended::tell(sessions),
        }
    }

    /// Lets go of every server. Those whose boxes outlive the daemon run on.
    pub(crate) async fn close(&self) {
        let Self::Here(here) = self else {
            return;
        };
        let closing = async {
            here.gateway.close();
            here.hosting.close().await;
        };
        if tokio::time::timeout(GOODBYE, closing).await.is_err() {
            tracing::warn!("letting go of MCP servers takes too long; going on without");
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
                "this daemon hosts no MCP servers: they are turned off in its configuration",
            )
            .hint("set `enabled = true` under `[mcp]` in Boxwood's configuration")),
            Self::Broken { why, .. } => Err(ApiError::new(
                ErrorCode::BackendUnavailable,
                format!("this daemon hosts no MCP servers: {why}"),
            )
            .hint(
                "look at the daemon's log, mend what it names, and start the daemon again; servers that \
                 run go on, and the daemon's own user removes one with `BOXWOOD_OPERATOR=1 boxwood rm mcp-NAME`",
            )),
        }
    }

    /// How many servers there are of each status.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        let Self::Here(here) = self else {
            return Vec::new();
        };
        let mut counts = STATUSES.map(|status| (news::word(status), 0));
        for server in here.hosting.standings() {
            let word = news::word(server.status);
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
