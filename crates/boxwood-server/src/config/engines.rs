//! Settings of the container engines and nsjail.

use std::num::NonZeroU64;
use std::time::Duration;

use boxwood_api::DEFAULT_IMAGES;
use serde::Deserialize;

/// What to do if an image is not available locally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pull {
    /// Pull it from its registry.
    #[default]
    Missing,
    /// Fail with an error that names the image.
    Never,
}

/// Settings of the Docker backend.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DockerConfig {
    /// The command: a path, or a name to look up in PATH.
    pub program: String,
    /// The default image.
    pub image: String,
    /// The OCI runtime, such as `runsc`. Default: the engine's own.
    pub runtime: Option<String>,
    /// The Docker endpoint, overriding `DOCKER_HOST`.
    pub host: Option<String>,
    pub pull: Pull,
    /// Timeout of an image pull.
    pub pull_timeout_sec: NonZeroU64,
}

impl DockerConfig {
    pub fn pull_timeout(&self) -> Duration {
        Duration::from_secs(self.pull_timeout_sec.get())
    }
}

impl Default for DockerConfig {
    fn default() -> Self {
        Self {
            program: "docker".to_owned(),
            image: DEFAULT_IMAGES[0].to_owned(),
            runtime: None,
            host: None,
            pull: Pull::default(),
            pull_timeout_sec: PULL_TIMEOUT_SEC,
        }
    }
}

/// Generous, for slow connections and large images. Clients see the progress.
const PULL_TIMEOUT_SEC: NonZeroU64 = const { NonZeroU64::new(1800).unwrap() };

/// Settings of the Podman backend.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PodmanConfig {
    /// The command: a path, or a name to look up in PATH.
    pub program: String,
    /// The default image.
    pub image: String,
    /// The OCI runtime, such as `runsc`. Default: the engine's own.
    pub runtime: Option<String>,
    pub pull: Pull,
    /// Timeout of an image pull.
    pub pull_timeout_sec: NonZeroU64,
}

impl PodmanConfig {
    pub fn pull_timeout(&self) -> Duration {
        Duration::from_secs(self.pull_timeout_sec.get())
    }
}

impl Default for PodmanConfig {
    fn default() -> Self {
        Self {
            program: "podman".to_owned(),
            image: DEFAULT_IMAGES[0].to_owned(),
            runtime: None,
            pull: Pull::default(),
            pull_timeout_sec: PULL_TIMEOUT_SEC,
        }
    }
}

/// Settings of the nsjail backend.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NsjailConfig {
    /// The command: a path, or a name to look up in PATH.
    pub program: String,
}

impl Default for NsjailConfig {
    fn default() -> Self {
        Self {
            program: "nsjail".to_owned(),
        }
    }
}
