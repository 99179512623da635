//! What a caller wishes for. Nothing here is checked against a profile: that is `boxwood-policy`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::coerce;
use crate::{Mechanism, SessionId};

/// Image names of the seed system that mean "whatever you run by default".
pub const DEFAULT_IMAGES: [&str; 2] = ["rockchin/langbot-sandbox:latest", "python:3.11-slim"];

pub const DEFAULT_MOUNT_PATH: &str = "/workspace";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    #[default]
    Off,
    On,
}

/// In order of what it gives away.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum MountMode {
    None,
    Ro,
    #[default]
    Rw,
}

impl Network {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl MountMode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Ro => "ro",
            Self::Rw => "rw",
        }
    }
}

impl fmt::Display for MountMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MountSpec {
    pub host_path: String,
    pub mount_path: String,
    #[serde(default)]
    pub mode: MountMode,
}

/// A box, and perhaps a command for it, as asked for. Used to create a session and to exec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpecRequest {
    pub session_id: Option<SessionId>,
    pub cmd: String,
    pub workdir: Option<String>,
    #[serde(deserialize_with = "coerce::opt_u64")]
    pub timeout_sec: Option<u64>,
    pub network: Option<Network>,
    pub env: BTreeMap<String, String>,
    pub image: Option<String>,
    pub host_path: Option<String>,
    pub host_path_mode: Option<MountMode>,
    pub mount_path: Option<String>,
    pub extra_mounts: Vec<MountSpec>,
    #[serde(deserialize_with = "coerce::opt_bool")]
    pub persistent: Option<bool>,
    #[serde(deserialize_with = "coerce::opt_f64")]
    pub cpus: Option<f64>,
    #[serde(deserialize_with = "coerce::opt_u64")]
    pub memory_mb: Option<u64>,
    #[serde(deserialize_with = "coerce::opt_u64")]
    pub pids_limit: Option<u64>,
    #[serde(deserialize_with = "coerce::opt_bool")]
    pub read_only_rootfs: Option<bool>,
    #[serde(deserialize_with = "coerce::opt_u64")]
    pub workspace_quota_mb: Option<u64>,
    /// Which profile to judge by; the daemon's default when left out.
    pub profile: Option<String>,
    /// Bytes for the command's standard input, as text. Without it stdin is `/dev/null`.
    pub stdin: Option<String>,
    /// Mechanisms without which the box must not start.
    pub require: Vec<Mechanism>,
}
