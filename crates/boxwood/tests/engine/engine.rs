//! The engine that the environment variables name, used through its command line.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::daemon::DaemonSettings;

/// How to start the engines.
const HOW: &str = "start the tests with `cargo xtask engines up --only ENGINE -- COMMAND`, or use \
                   `cargo xtask test`";

pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: {HOW}"))
}

#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    docker_host: Option<String>,
    /// An image with busybox only.
    pub(crate) image: String,
}

impl Engine {
    /// The engine of this run.
    pub(crate) fn chosen() -> Self {
        let name = match variable("BOXWOOD_TEST_ENGINE").as_str() {
            "docker" => "docker",
            "podman" => "podman",
            other => panic!("BOXWOOD_TEST_ENGINE is `{other}`, and not docker or podman: {HOW}"),
        };
        Self {
            name,
            docker_host: (name == "docker").then(|| variable("BOXWOOD_TEST_DOCKER_HOST")),
            image: variable("BOXWOOD_TEST_IMAGE_SMALL"),
        }
    }

    /// A Docker that only this test uses.
    pub(crate) fn docker_at(host: String, image: &str) -> Self {
        Self {
            name: "docker",
            docker_host: Some(host),
            image: image.to_owned(),
        }
    }

    /// A daemon on this engine whose boxes start from the small image.
    pub(crate) fn daemon_settings(&self) -> DaemonSettings {
        let mut settings = DaemonSettings {
            backend: Some(self.name),
            settings: Vec::new(),
        };
        let (image, pull) = match self.name {
            "docker" => ("BOXWOOD_DOCKER__IMAGE", "BOXWOOD_DOCKER__PULL"),
            _ => ("BOXWOOD_PODMAN__IMAGE", "BOXWOOD_PODMAN__PULL"),
        };
        settings = settings.with(image, self.image.clone()).with(pull, "never");
        match &self.docker_host {
            Some(host) => settings.with("BOXWOOD_DOCKER__HOST", host.clone()),
            None => settings,
        }
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.name);
        if let Some(host) = &self.docker_host {
            command.env("DOCKER_HOST", host);
        }
        command
    }

    pub(crate) fn try_run(&self, args: &[&str]) -> Result<String, String> {
        let output = self
            .command()
            .args(args)
            .output()
            .expect("the engine's command runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(output.stdout))
        } else {
            Err(text(output.stderr))
        }
    }

    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let result = self.try_run(args);
        result.unwrap_or_else(|error| panic!("{} {args:?}: {error}", self.name))
    }

    /// All containers with a label of Boxwood or LangBot Box, by name; none while the engine is unavailable.
    pub(crate) fn containers(&self) -> BTreeSet<String> {
        let listed = self.try_run(&[
            "ps",
            "--all",
            "--filter",
            "label=langbot.box",
            "--format",
            "{{.Names}}",
        ]);
        let listed = listed.unwrap_or_default();
        listed.split_whitespace().map(str::to_owned).collect()
    }

    #[track_caller]
    pub(crate) fn inspect(&self, container: &str) -> Value {
        let description = self.run(&["container", "inspect", "--", container]);
        let mut all: Vec<Value> = serde_json::from_str(&description).expect("a list");
        all.pop().expect("one container")
    }

    pub(crate) fn init_of(&self, container: &str) -> i32 {
        let pid = self.inspect(container)["State"]["Pid"].as_i64();
        i32::try_from(pid.expect("a pid")).expect("a small number")
    }
}
