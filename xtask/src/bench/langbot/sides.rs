//! The runtimes that LangBot's client is measured with.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use tempfile::TempDir;

use super::super::baseline::langbot_box::LangBotBoxRuntime;
use super::super::daemon::Daemon;
use super::docker::Docker;
use crate::engines::{self, PROGRAMS};
use crate::run::is_root;

pub(super) struct Sides {
    ours: Result<Daemon>,
    // Ours end before the engines that they use.
    ours_on_nsjail: Result<Daemon>,
    ours_on_docker: Result<Daemon>,
    nsjail: Result<NsjailSide>,
    docker: Result<DockerSide>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// On native.
    Ours,
    OursOnNsjail,
    OursOnDocker,
    /// LangBot Box's, as the next.
    Nsjail,
    Docker,
}

impl Side {
    pub(super) const ALL: [Self; 5] = [
        Self::Ours,
        Self::OursOnNsjail,
        Self::OursOnDocker,
        Self::Nsjail,
        Self::Docker,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "boxwood",
            Self::OursOnNsjail => "boxwood on nsjail",
            Self::OursOnDocker => "boxwood on docker",
            Self::Nsjail => "nsjail",
            Self::Docker => "docker",
        }
    }
}

impl Sides {
    pub(super) fn start(binary: &Path) -> Self {
        let docker = DockerSide::start();
        let sides = Self {
            ours: Daemon::start(binary),
            ours_on_nsjail: start_on_nsjail(binary),
            ours_on_docker: match &docker {
                Ok(side) => start_on_docker(binary, &side.docker),
                Err(error) => Err(anyhow!("{error:#}")),
            },
            nsjail: NsjailSide::start(),
            docker,
        };
        for side in Side::ALL {
            if let Err(why) = sides.address(side) {
                eprintln!("warning: the {} side does not run here: {why}", side.name());
            }
        }
        sides
    }

    #[cfg(test)]
    pub(super) fn none_runs(why: &'static str) -> Self {
        Self {
            ours: Err(anyhow!(why)),
            ours_on_nsjail: Err(anyhow!(why)),
            ours_on_docker: Err(anyhow!(why)),
            nsjail: Err(anyhow!(why)),
            docker: Err(anyhow!(why)),
        }
    }

    /// Where a side listens, or in words why it does not.
    pub(super) fn address(&self, side: Side) -> Result<SocketAddr, String> {
        let address = match side {
            Side::Ours => self.ours.as_ref().map(Daemon::address),
            Side::OursOnNsjail => self.ours_on_nsjail.as_ref().map(Daemon::address),
            Side::OursOnDocker => self.ours_on_docker.as_ref().map(Daemon::address),
            Side::Nsjail => self.nsjail.as_ref().map(|side| side.runtime.address()),
            Side::Docker => self.docker.as_ref().map(|side| side.runtime.address()),
        };
        address.map_err(|error| format!("{error:#}"))
    }
}

/// With the same program as LangBot Box's.
fn start_on_nsjail(binary: &Path) -> Result<Daemon> {
    let program = engines::install_nsjail()?;
    Daemon::start_on(binary, "nsjail", |command| {
        command.env("BOXWOOD_NSJAIL__PROGRAM", program);
        Ok(())
    })
}

/// On the same engine and with the same default image as LangBot Box.
fn start_on_docker(binary: &Path, docker: &Docker) -> Result<Daemon> {
    Daemon::start_on(binary, "docker", |command| {
        docker.environment(command);
        command.env("BOXWOOD_DOCKER__PULL", "never");
        Ok(())
    })
}

/// Where LangBot Box's nsjail backend keeps its sessions; it cannot be configured.
const NSJAIL_SESSIONS: &str = "/tmp/langbot-box-nsjail";

/// Executes the program with a private session directory.
const OWN_SESSIONS: &str = r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#;

struct NsjailSide {
    // Ends before the directories go.
    runtime: LangBotBoxRuntime,
    _sessions: TempDir,
    _mount_point: MountPoint,
}

impl NsjailSide {
    fn start() -> Result<Self> {
        ensure!(
            is_root(),
            "LangBot Box's nsjail backend is measured as root only"
        );
        let program = engines::install_nsjail()?;
        let programs = program.parent().context("`nsjail` lies in no directory")?;
        // At its start the backend deletes every session directory that is not its own, so on the
        // shared place it would break another runtime on this machine.
        let mount_point = MountPoint::make(NSJAIL_SESSIONS)?;
        let sessions = tempfile::tempdir()?;
        let runtime = LangBotBoxRuntime::start_behind(|command| {
            command
                .args(["unshare", "--mount", "sh", "-c", OWN_SESSIONS, "sh"])
                .arg(sessions.path())
                .arg(NSJAIL_SESSIONS)
                .env("PATH", format!("{}:{}", programs.display(), PROGRAMS));
            choose(command, Side::Nsjail);
        })
        .context("LangBot Box's runtime could not be started with nsjail")?;
        Ok(Self {
            runtime,
            _sessions: sessions,
            _mount_point: mount_point,
        })
    }
}

struct DockerSide {
    // Ends before the daemon it uses.
    runtime: LangBotBoxRuntime,
    docker: Docker,
}

impl DockerSide {
    fn start() -> Result<Self> {
        let docker = Docker::start().context("docker could not be started")?;
        let runtime = LangBotBoxRuntime::start_behind(|command| {
            docker.environment(command);
            choose(command, Side::Docker);
        })
        .context("LangBot Box's runtime could not be started with docker")?;
        Ok(Self { runtime, docker })
    }
}

/// Without this LangBot Box takes the first backend it finds.
fn choose(command: &mut Command, side: Side) {
    command.env(
        "LANGBOT_BOX_CONFIG",
        format!(r#"{{"backend":"{}"}}"#, side.name()),
    );
}

/// A directory to mount on, removed again if it was not there before.
struct MountPoint {
    path: &'static str,
    created: bool,
}

impl MountPoint {
    fn make(path: &'static str) -> Result<Self> {
        let created = !Path::new(path).exists();
        if created {
            fs::create_dir(path).with_context(|| format!("`{path}` could not be made"))?;
        }
        Ok(Self { path, created })
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        if self.created {
            // Another process may have created it meanwhile; then it is kept.
            let _ = fs::remove_dir(self.path);
        }
    }
}
