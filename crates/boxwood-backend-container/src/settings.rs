//! What an operator may set about boxes in containers.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Docker,
    Podman,
}

impl Engine {
    /// The backend's name, and the program's.
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
    /// Looked up in `PATH` when it has no slash.
    pub program: PathBuf,
    /// What an empty image means.
    pub image: String,
    /// Another OCI runtime than the engine's own, such as `runsc`.
    pub runtime: Option<String>,
    /// Where Docker's daemon listens, instead of what its client would take.
    pub docker_host: Option<String>,
    /// Fetch an image that is not there.
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
