//! The engine chosen by the environment. There is no default: a suite that runs on another engine than the
//! intended one proves nothing.

use anyhow::{Context as _, bail, ensure};
use boxwood_backend_container::{ContainerSettings, Engine};

use super::tcp;

/// How to start the engines.
const INSTRUCTIONS: &str =
    "start the tests with `cargo xtask engines up -- COMMAND`, or use `cargo xtask test`";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    Docker,
    Podman,
    /// Docker over TCP, as if it were on another machine.
    Remote,
    /// Docker with gVisor's `runsc` as its runtime.
    Gvisor,
}

impl Chosen {
    pub(crate) fn from_environment() -> anyhow::Result<Self> {
        let name = variable("BOXWOOD_TEST_ENGINE").context(
            "no engine was chosen (BOXWOOD_TEST_ENGINE is docker, docker-remote, podman or gvisor)",
        )?;
        match name.as_str() {
            "docker" => Ok(Self::Docker),
            "docker-remote" => Ok(Self::Remote),
            "podman" => Ok(Self::Podman),
            "gvisor" => Ok(Self::Gvisor),
            other => bail!("BOXWOOD_TEST_ENGINE is `{other}`, and not docker, podman or gvisor"),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Remote => "docker-remote",
            Self::Podman => "podman",
            Self::Gvisor => "gvisor",
        }
    }

    pub(crate) fn engine(self) -> Engine {
        match self {
            Self::Docker | Self::Remote | Self::Gvisor => Engine::Docker,
            Self::Podman => Engine::Podman,
        }
    }

    pub(crate) fn settings(self) -> anyhow::Result<ContainerSettings> {
        let mut settings = ContainerSettings {
            image: variable("BOXWOOD_TEST_IMAGE")?,
            // A missing image must be an error of its own; there may be no registry.
            pull: false,
            ..ContainerSettings::new(self.engine())
        };
        if self.engine() == Engine::Docker {
            settings.docker_host = Some(variable("BOXWOOD_TEST_DOCKER_HOST")?);
        }
        if let (Self::Remote, Some(socket)) = (self, &settings.docker_host) {
            settings.docker_host = Some(tcp::forward_to(socket)?);
        }
        if self == Self::Gvisor {
            variable("BOXWOOD_TEST_DOCKER_RUNSC")?;
            settings.runtime = Some("runsc".to_owned());
        }
        Ok(settings)
    }

    /// Runs a container with the engine alone, without Boxwood.
    pub(crate) fn warm_up(self) -> anyhow::Result<()> {
        let image = variable("BOXWOOD_TEST_IMAGE")?;
        self.run_client(&["run", "--rm", "--network", "none", &image, "true"])?;
        Ok(())
    }

    /// All containers and volumes of the engine.
    pub(crate) fn engine_objects(self) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        for (kind, args) in [
            (
                "container",
                ["container", "ls", "--all", "--quiet"].as_slice(),
            ),
            ("volume", &["volume", "ls", "--quiet"]),
        ] {
            let names = self.run_client(args)?;
            found.extend(
                names
                    .split_whitespace()
                    .map(|name| format!("{kind} {name}")),
            );
        }
        Ok(found)
    }

    fn run_client(self, args: &[&str]) -> anyhow::Result<String> {
        let settings = self.settings()?;
        let mut command = std::process::Command::new(&settings.program);
        if let Some(host) = &settings.docker_host {
            command.env("DOCKER_HOST", host);
        }
        let output = command
            .args(args)
            .output()
            .context("running the engine's client")?;
        ensure!(
            output.status.success(),
            "the engine refused {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn variable(name: &str) -> anyhow::Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set: {INSTRUCTIONS}"))
}
