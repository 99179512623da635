//! MCP log levels.

use std::time::Duration;

use crate::gateway::error::{INVALID_PARAMS, RpcError};
use crate::gateway::params;
use crate::wire::{CallOptions, Connection, Message};

const SETTING: Duration = Duration::from_secs(10);

/// From most to least verbose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Debug, "debug"),
        (Self::Info, "info"),
        (Self::Notice, "notice"),
        (Self::Warning, "warning"),
        (Self::Error, "error"),
        (Self::Critical, "critical"),
        (Self::Alert, "alert"),
        (Self::Emergency, "emergency"),
    ];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(level, _)| *level)
    }

    /// Parses a client parameter.
    pub(crate) fn required(text: &str) -> Result<Self, RpcError> {
        Self::parse(text).ok_or_else(|| {
            let text =
                "`level` must be debug, info, notice, warning, error, critical, alert or emergency";
            RpcError::new(INVALID_PARAMS, text)
        })
    }

    pub(crate) fn as_str(self) -> &'static str {
        let found = Self::ALL.iter().find(|(level, _)| *level == self);
        found.map_or("info", |(_, name)| name)
    }

    /// Level of `notifications/message`. Unknown levels count as `info`.
    pub(crate) fn of(message: &Message) -> Self {
        let level = params::text(message.params(), "level");
        level
            .and_then(|level| Self::parse(&level))
            .unwrap_or(Self::Info)
    }

    /// Returns true if the process accepted the level.
    pub(crate) async fn set_on(self, connection: &Connection) -> bool {
        let params = params::of_text("level", self.as_str());
        let how = CallOptions::with_timeout(SETTING);
        let told = connection.request("logging/setLevel", Some(params), how);
        told.await.is_ok_and(|answer| answer.error().is_none())
    }
}
