//! The request for a box and a command. `boxwood-policy` checks it against the profile.

mod json;
pub(crate) mod rules;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};
use utoipa::ToSchema;

use crate::{Mechanism, SessionId};

/// Image names of LangBot Box that select the backend's default image.
pub const DEFAULT_IMAGES: [&str; 2] = ["rockchin/langbot-sandbox:latest", "python:3.11-slim"];

pub const DEFAULT_MOUNT_PATH: &str = "/workspace";

#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    ToSchema,
    Display,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Network {
    #[default]
    Off,
    On,
}

/// Ordered from least to most access.
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
    Display,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum MountMode {
    None,
    Ro,
    #[default]
    Rw,
}

impl Network {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl MountMode {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A host directory or file and its path in the box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MountSpec {
    pub host_path: String,
    pub mount_path: String,
    #[serde(default)]
    pub mode: MountMode,
}

/// A box and an optional command. Used to create a session and to run a command.
///
/// Defaults come from the profile. Numbers may be sent as strings (`"30"`).
#[derive(Clone, Default, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SpecRequest {
    /// Overridden by the session in the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Run with `/bin/sh -c`. At most 1 MiB, without NUL bytes.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    pub cmd: String,
    /// Absolute path. Default: the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub timeout_sec: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub network: Option<Network>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub image: Option<String>,
    /// The host directory of the workspace. Default: a private workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub host_path_mode: Option<MountMode>,
    /// Path of the workspace inside the box. Default: `/workspace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub mount_path: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, max_items = 64)]
    pub extra_mounts: Vec<MountSpec>,
    /// Names of skills, which are mounted read-only below `.skills` in the workspace. Can be added
    /// to an existing session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, max_items = 64)]
    pub skills: Vec<String>,
    /// Whether the session is exempt from the idle timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub persistent: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, exclusive_minimum = 0.0)]
    pub cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 32)]
    pub memory_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub pids_limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub read_only_rootfs: Option<bool>,
    /// 0 means the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub workspace_quota_mb: Option<u64>,
    /// The profile to use. Default: the daemon's default profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The command's stdin, as text. Default: `/dev/null`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Isolation mechanisms that must be in force; otherwise the box is not started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub require: Vec<Mechanism>,
    /// The backend: a name, or `auto` or `local` for the first available one. Default: the
    /// profile's backend, else the daemon's. The request fails if the named backend is not
    /// available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
}

/// Without stdin and values of the environment, because they may be secrets.
impl fmt::Debug for SpecRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpecRequest")
            .field("session_id", &self.session_id)
            .field("cmd", &self.cmd)
            .field("env_keys", &self.env.keys().collect::<Vec<_>>())
            .field("image", &self.image)
            .field("host_path", &self.host_path)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}
