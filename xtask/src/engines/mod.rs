//! `cargo xtask engines up -- COMMAND`: separate real engines, for as long as a command runs.
//!
//! The tests of a backend find their engine by variables, all of them set here:
//!
//! | variable | value |
//! |---|---|
//! | `BOXWOOD_TEST_ENGINE` | the engine that a suite tests, if only one is running |
//! | `BOXWOOD_TEST_DOCKER_HOST` | the address of `dockerd` |
//! | `BOXWOOD_TEST_DOCKER_RUNSC` | `1` when that daemon has a `runsc` runtime that works |
//! | `BOXWOOD_TEST_DOCKERD` | a script: `$BOXWOOD_TEST_DOCKERD DIR` is one more `dockerd`, listening on `DIR/docker.sock` |
//! | `BOXWOOD_TEST_IMAGE` | an image with Python, in every engine |
//! | `BOXWOOD_TEST_IMAGE_SMALL` | an image with busybox alone |
//! | `BOXWOOD_TEST_ROOTFS_TAR`, `BOXWOOD_TEST_ROOTFS_SMALL_TAR` | the files of those images |
//! | `BOXWOOD_TEST_REGISTRY` | a registry that holds the small image |
//! | `BOXWOOD_TEST_NSJAIL` | the `nsjail` program |
//! | `BOXWOOD_TEST_AS_USER` | a script: `$BOXWOOD_TEST_AS_USER COMMAND` runs it as the user of the rootless engine |
//!
//! Podman is configured by its own `CONTAINERS_…` variables.

mod daemon;
mod dockerd;
mod images;
mod keeper;
mod leftovers;
mod nsjail;
mod packages;
mod podman;
mod registry;
mod run_directory;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::{Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::run::is_root;
use crate::test::rootless::User;

pub(crate) use dockerd::{Dockerd, PROGRAMS};
pub(crate) use images::busybox_tar;
pub(crate) use keeper::Engines;
pub(crate) use nsjail::install as install_nsjail;
pub(crate) use packages::install as install_packages;
pub(crate) use run_directory::RunDirectory;

pub(crate) const IMAGE: &str = "boxwood-test:debian";
pub(crate) const IMAGE_SMALL: &str = "boxwood-test:busybox";

/// By name: `BOXWOOD_TEST_IMAGE` and the like.
pub(crate) type Variables = BTreeMap<String, String>;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Start the engines, run a command with their variables set, stop and remove the engines
    Up {
        /// Start this engine only (may be given more than once)
        #[arg(long, value_name = "ENGINE")]
        only: Vec<Engine>,
        /// The command, for example `bash`
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Install the packages and make the images, so that `up` is quick
    Prepare,
    /// Own the engines until standard input ends
    #[command(hide = true)]
    Keep { engines: Vec<Engine> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Engine {
    Docker,
    /// Docker with `runsc` as its runtime.
    Gvisor,
    Podman,
    PodmanRootless,
    Nsjail,
}

impl Engine {
    /// The value of `BOXWOOD_TEST_ENGINE`, which does not depend on the user.
    fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Gvisor => "gvisor",
            Self::Podman | Self::PodmanRootless => "podman",
            Self::Nsjail => "nsjail",
        }
    }
}

/// What the keeper has started.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Started {
    /// For commands that run as root.
    pub(crate) variables: Variables,
    /// For commands that run as the user of the rootless engine.
    pub(crate) user_variables: Variables,
    /// Why gVisor is not available, if it is not.
    pub(crate) no_gvisor: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.verb {
        Verb::Up { only, command } => up(only, command),
        Verb::Prepare => prepare(Engine::value_variants()),
        Verb::Keep { engines } => keeper::keep(engines),
    }
}

fn up(only: &[Engine], argv: &[OsString]) -> Result<()> {
    let requested = if only.is_empty() {
        Engine::value_variants()
    } else {
        only
    };
    prepare(requested)?;
    let engines = Engines::start(requested)?;
    if let Some(why) = &engines.started().no_gvisor {
        ensure!(
            !only.contains(&Engine::Gvisor),
            "gVisor is not available: {why}"
        );
        println!("gVisor is not available: {why}");
    }
    let (program, arguments) = argv.split_first().context("no command is given")?;
    let mut command = if requested == [Engine::PodmanRootless] {
        let mut command = User::ensure()?.command(program.as_ref());
        command.envs(&engines.started().user_variables);
        command
    } else {
        let mut command = Command::new(program);
        command.envs(&engines.started().variables);
        command
    };
    let status = command
        .args(arguments)
        .status()
        .with_context(|| format!("`{}` could not be started", program.display()))?;
    drop(engines);
    if !status.success() {
        bail!("`{}` failed: {status}", program.display());
    }
    Ok(())
}

/// Installs the packages and creates the images, which are kept for later runs.
pub(crate) fn prepare(engines: &[Engine]) -> Result<()> {
    ensure!(
        is_root(),
        "starting the engines needs root\nhint: sudo --preserve-env=PATH cargo xtask …"
    );
    packages::install()?;
    images::ensure()?;
    if engines.contains(&Engine::Nsjail) {
        nsjail::install()?;
    }
    if engines.contains(&Engine::PodmanRootless) {
        User::ensure()?;
    }
    Ok(())
}
