//! A Docker daemon of our own, for docker backends: LangBot Box's and ours.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::engines::{Dockerd, RunDirectory, busybox_tar};
use crate::run::{find, is_root};

/// The default image of LangBot Box.
const IMAGE: &str = "rockchin/langbot-sandbox:latest";

pub(super) struct Docker {
    dockerd: Dockerd,
    /// After the daemon: the run directory removes what it leaves.
    _run_directory: RunDirectory,
}

impl Docker {
    pub(super) fn start() -> Result<Self> {
        ensure!(is_root(), "docker is measured as root only");
        find("dockerd").context("`dockerd` (package docker.io) is missing")?;
        let run_directory = RunDirectory::create()?;
        let tar = run_directory.path().join("image.tar");
        // The root is read-only, so the place to work in is there from the start.
        busybox_tar(&tar, &["workspace"])?;
        let mut dockerd = Dockerd::spawn(&run_directory)?;
        dockerd.wait_until_ready()?;
        dockerd.import(&tar, IMAGE)?;
        Ok(Self {
            dockerd,
            _run_directory: run_directory,
        })
    }

    /// Points whatever runs `docker` at this daemon.
    pub(super) fn environment(&self, command: &mut Command) {
        self.dockerd.configure_client(command);
    }
}
