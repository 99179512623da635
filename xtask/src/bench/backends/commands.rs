//! The engines' own commands, for comparison.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::super::baseline::quiet;
use crate::engines::{IMAGE, PROGRAMS, Variables};
use crate::run::output;

/// A running container for `exec`. It is removed with its engine.
const CONTAINER: &str = "boxwood-bench";

/// The smallest jail of nsjail: no cgroup, no seccomp filter, one uid.
const JAIL: [&str; 9] = [
    "--mode",
    "o",
    "--really_quiet",
    "--chroot",
    "/",
    "--user",
    "65534:100000",
    "--group",
    "65534:100000",
];

pub(super) struct Commands {
    pub(super) variables: Variables,
}

impl Commands {
    /// Starts the container that [`Self::exec_true`] uses.
    pub(super) fn keep_container(&self, engine: &str) -> Result<()> {
        output(
            self.engine(engine)?
                .args(["run", "--detach", "--network", "none"])
                .args(["--name", CONTAINER, IMAGE, "/bin/sleep", "3600"]),
        )?;
        self.exec_true(engine)
    }

    pub(super) fn exec_true(&self, engine: &str) -> Result<()> {
        succeed(
            self.engine(engine)?
                .args(["exec", CONTAINER, "/bin/sh", "-c", "true"]),
        )
    }

    pub(super) fn run_true(&self, engine: &str) -> Result<()> {
        succeed(
            self.engine(engine)?
                .args(["run", "--rm", "--network", "none"])
                .args([IMAGE, "/bin/sh", "-c", "true"]),
        )
    }

    pub(super) fn jail_true(&self) -> Result<()> {
        let nsjail = self.variable("BOXWOOD_TEST_NSJAIL")?;
        succeed(
            Command::new(nsjail)
                .args(JAIL)
                .args(["--", "/bin/sh", "-c", "true"]),
        )
    }

    /// Configures a Boxwood daemon for these engines.
    pub(super) fn configure(&self, command: &mut Command) -> Result<()> {
        self.set_variables(command)?;
        for engine in ["DOCKER", "PODMAN"] {
            command
                .env(format!("BOXWOOD_{engine}__IMAGE"), IMAGE)
                .env(format!("BOXWOOD_{engine}__PULL"), "never");
        }
        let nsjail = self.variable("BOXWOOD_TEST_NSJAIL")?;
        command.env("BOXWOOD_NSJAIL__PROGRAM", nsjail);
        Ok(())
    }

    fn engine(&self, name: &str) -> Result<Command> {
        // From the Debian package, so that it has the same version as the daemon.
        let mut command = Command::new(Path::new("/usr/bin").join(name));
        self.set_variables(&mut command)?;
        Ok(command)
    }

    fn set_variables(&self, command: &mut Command) -> Result<()> {
        // Only the variables of the engines; those of the tests are not used.
        let engines_own = self
            .variables
            .iter()
            .filter(|(name, _)| !name.starts_with("BOXWOOD_"));
        command
            .envs(engines_own)
            .env("PATH", PROGRAMS)
            .env("DOCKER_HOST", self.variable("BOXWOOD_TEST_DOCKER_HOST")?);
        Ok(())
    }

    fn variable(&self, name: &str) -> Result<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .with_context(|| format!("the engines were started without `{name}`"))
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = quiet(command)
        .status()
        .with_context(|| format!("{command:?} could not be started"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}
