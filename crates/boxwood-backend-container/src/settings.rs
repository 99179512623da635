//! Settings of the container backends.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Docker,
    Podman,
}

impl Engine {
    /// Name of the backend and of the client program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

#[derive(Clone, Debug)]
pub struct ContainerSettings {
    pub engine: Engine,
    /// Looked up in `PATH` if it has no slash.
    pub program: PathBuf,
    /// The default image.
    pub image: String,
    /// An OCI runtime other than the engine's default, such as `runsc`.
    pub runtime: Option<String>,
    /// Docker's endpoint; `None` for the client's default.
    pub docker_host: Option<String>,
    /// Pull missing images.
    pub pull: bool,
    pub pull_timeout: Duration,
}

impl ContainerSettings {
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            program: PathBuf::from(engine.name()),
            image: "rockchin/langbot-sandbox:latest".to_owned(),
            runtime: None,
            docker_host: None,
            pull: true,
            pull_timeout: Duration::from_mins(30),
        }
    }
}
