//! How much a client wants to hear of a server's log.

use std::time::Duration;

use super::params;
use super::refusal::{INVALID_PARAMS, Refusal};
use crate::wire::{Ask, Connection, Message};

const SETTING: Duration = Duration::from_secs(10);

/// From the most to the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
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

    /// As a client has to say it.
    pub(crate) fn required(text: &str) -> Result<Self, Refusal> {
        Self::parse(text).ok_or_else(|| {
            let text =
                "`level` must be debug, info, notice, warning, error, critical, alert or emergency";
            Refusal::new(INVALID_PARAMS, text)
        })
    }

    pub(crate) fn as_str(self) -> &'static str {
        let found = Self::ALL.iter().find(|(level, _)| *level == self);
        found.map_or("info", |(_, name)| name)
    }

    /// Of `notifications/message`. One that says something else counts as ordinary.
    pub(crate) fn of(message: &Message) -> Self {
        let level = params::text(message.params(), "level");
        level
            .and_then(|level| Self::parse(&level))
            .unwrap_or(Self::Info)
    }

    /// Whether the process knows it now. One that does not know levels logs as it likes.
    pub(crate) async fn set_on(self, connection: &Connection) -> bool {
        let params = params::of_text("level", self.as_str());
        let how = Ask::within(SETTING);
        let told = connection.request("logging/setLevel", Some(params), how);
        told.await.is_ok_and(|answer| answer.error().is_none())
    }
}
