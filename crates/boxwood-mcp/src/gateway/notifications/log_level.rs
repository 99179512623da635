//! MCP log levels.

use serde::de::IntoDeserializer as _;
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Serialize};

use crate::gateway::params;
use crate::wire::Message;

/// From most to least verbose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
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
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
        Self::deserialize(text).ok()
    }

    /// Level of `notifications/message`. Unknown levels count as `info`.
    pub(crate) fn of(message: &Message) -> Self {
        let level = params::text(message.params(), "level");
        level
            .and_then(|level| Self::parse(&level))
            .unwrap_or(Self::Info)
    }
}
