//! Settings of the container engines and nsjail.

use std::num::NonZeroU64;
use std::time::Duration;

use boxwood_api::DEFAULT_IMAGES;
use boxwood_backend_container::{ContainerSettings, Engine};
use serde::{Deserialize, Deserializer, de::Error as _};

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

/// Generous, for slow connections and large images. Clients see the progress.
const PULL_TIMEOUT_SEC: NonZeroU64 = const { NonZeroU64::new(1800).unwrap() };

/// Settings of a container engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// The command: a path, or a name to look up in PATH. Default: the engine's name.
    pub program: Option<String>,
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

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            program: None,
            image: DEFAULT_IMAGES[0].to_owned(),
            runtime: None,
            host: None,
            pull: Pull::default(),
            pull_timeout_sec: PULL_TIMEOUT_SEC,
        }
    }
}

impl EngineConfig {
    pub(super) fn podman<'de, D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let config = Self::deserialize(input)?;
        match config.host {
            Some(_) => Err(D::Error::custom("`host` is a setting of `[docker]` only")),
            None => Ok(config),
        }
    }

    pub fn pull_timeout(&self) -> Duration {
        Duration::from_secs(self.pull_timeout_sec.get())
    }

    pub(crate) fn settings(&self, engine: Engine) -> ContainerSettings {
        ContainerSettings {
            engine,
            program: self.program.as_deref().unwrap_or(engine.name()).into(),
            image: self.image.clone(),
            runtime: self.runtime.clone(),
            docker_host: self.host.clone(),
            pull: self.pull == Pull::Missing,
            pull_timeout: self.pull_timeout(),
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
