//! The sides of the comparison: Boxwood on each backend, and the engines' own commands.

use std::path::Path;

use anyhow::{Result, anyhow};
use clap::ValueEnum;

use super::super::create::{Phases, cycles};
use super::super::daemon::Daemon;
use super::super::measure::turns::Work;
use super::super::{baseline, exec};
use super::commands::Commands;
use crate::engines::{self, Engine, Engines};

/// What our daemon runs boxes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    Native,
    Docker,
    Podman,
    Nsjail,
}

impl Backend {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Nsjail => "nsjail",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Ours(Backend),
    Fork,
    /// `docker exec`, or `docker run` where boxes are made.
    DockerCommand,
    PodmanCommand,
    NsjailCommand,
}

impl Side {
    pub(super) const COMMANDS: [Self; 3] = [
        Self::DockerCommand,
        Self::PodmanCommand,
        Self::NsjailCommand,
    ];
}

pub(super) struct Sides {
    /// These end before the engines they use.
    daemons: Vec<(Backend, Result<Daemon>)>,
    commands: Result<Commands>,
    _engines: Option<Engines>,
}

impl Sides {
    pub(super) fn start(binary: &Path) -> Self {
        let (engines, commands) = match start_engines() {
            Ok(engines) => {
                let variables = engines.started().variables.clone();
                (Some(engines), Ok(Commands { variables }))
            }
            Err(error) => {
                eprintln!("warning: the engines do not run here: {error:#}");
                (None, Err(error))
            }
        };
        let daemons = Backend::value_variants().iter().map(|backend| {
            let daemon = start_daemon(binary, *backend, &commands);
            (*backend, daemon)
        });
        Self {
            daemons: daemons.collect(),
            commands,
            _engines: engines,
        }
    }

    /// `true` in a box that is there, or in a container of the engine's own.
    pub(super) fn exec(&self, side: Side) -> Result<Work<'_>> {
        match side {
            Side::Ours(backend) => {
                let mut connection = exec::warm_session(self.daemon(backend)?)?;
                Ok(Box::new(move || exec::exec_true(&mut connection)))
            }
            Side::Fork => Ok(Box::new(baseline::sh_true)),
            Side::DockerCommand => self.exec_command("docker"),
            Side::PodmanCommand => self.exec_command("podman"),
            Side::NsjailCommand => Err(anyhow!("nsjail cannot exec in a jail that is there")),
        }
    }

    /// `true` in a new box that is removed afterwards. `phases` gets the times of its steps.
    pub(super) fn create<'a>(&'a self, side: Side, phases: &'a mut Phases) -> Result<Work<'a>> {
        match side {
            Side::Ours(backend) => cycles(self.daemon(backend)?, phases),
            Side::Fork => Ok(Box::new(baseline::sh_true)),
            Side::DockerCommand => self.run_command("docker"),
            Side::PodmanCommand => self.run_command("podman"),
            Side::NsjailCommand => {
                let commands = self.commands()?;
                commands.jail_true()?;
                Ok(Box::new(|| commands.jail_true()))
            }
        }
    }

    fn exec_command(&self, engine: &'static str) -> Result<Work<'_>> {
        let commands = self.commands()?;
        commands.keep_container(engine)?;
        Ok(Box::new(move || commands.exec_true(engine)))
    }

    fn run_command(&self, engine: &'static str) -> Result<Work<'_>> {
        let commands = self.commands()?;
        commands.run_true(engine)?;
        Ok(Box::new(move || commands.run_true(engine)))
    }

    fn daemon(&self, backend: Backend) -> Result<&Daemon> {
        let (_, daemon) = self
            .daemons
            .iter()
            .find(|(started, _)| *started == backend)
            .ok_or_else(|| anyhow!("there is no daemon with {}", backend.name()))?;
        daemon.as_ref().map_err(|error| anyhow!("{error:#}"))
    }

    fn commands(&self) -> Result<&Commands> {
        self.commands
            .as_ref()
            .map_err(|error| anyhow!("the engines do not run here: {error:#}"))
    }
}

fn start_engines() -> Result<Engines> {
    let wanted = [Engine::Docker, Engine::Podman, Engine::Nsjail];
    engines::prepare(&wanted)?;
    Engines::start(&wanted)
}

fn start_daemon(binary: &Path, backend: Backend, commands: &Result<Commands>) -> Result<Daemon> {
    Daemon::start_on(binary, backend.name(), |command| {
        match (backend, commands) {
            (Backend::Native, _) => Ok(()),
            (_, Ok(commands)) => commands.configure(command),
            (_, Err(error)) => Err(anyhow!("the engines do not run here: {error:#}")),
        }
    })
}
