//! What concerns one engine each: where it is, and what its boxes start from.

use std::num::NonZeroU64;
use std::time::Duration;

use boxwood_api::DEFAULT_IMAGES;
use serde::Deserialize;

/// What an engine does about an image that this machine does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pull {
    /// Fetches it from its registry.
    #[default]
    Missing,
    /// Refuses, naming the image.
    Never,
}

/// What concerns Docker alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DockerConfig {
    /// The command, by its path or as the search path finds it.
    pub program: String,
    /// What a box without an image starts from.
    pub image: String,
    /// The OCI runtime, such as `runsc`; the engine's own when left out.
    pub runtime: Option<String>,
    /// The daemon to speak to, instead of the one in `DOCKER_HOST`.
    pub host: Option<String>,
    pub pull: Pull,
    /// For one image to arrive.
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

/// Slow lines and large images; whoever waits is told how it comes along.
const PULL_TIMEOUT_SEC: NonZeroU64 = const { NonZeroU64::new(1800).unwrap() };

/// What concerns Podman alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PodmanConfig {
    /// The command, by its path or as the search path finds it.
    pub program: String,
    /// What a box without an image starts from.
    pub image: String,
    /// The OCI runtime, such as `runsc`; the engine's own when left out.
    pub runtime: Option<String>,
    pub pull: Pull,
    /// For one image to arrive.
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

/// What concerns nsjail alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NsjailConfig {
    /// The command, by its path or as the search path finds it.
    pub program: String,
}

impl Default for NsjailConfig {
    fn default() -> Self {
        Self {
            program: "nsjail".to_owned(),
        }
    }
}
