//! A Docker daemon of our own, for docker backends: LangBot Box's and ours.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::engines::{Dockerd, Place, busybox_tar};
use crate::run::{find, is_root};

/// The default image of LangBot Box.
const IMAGE: &str = "rockchin/langbot-sandbox:latest";

pub(super) struct Docker {
    dockerd: Dockerd,
    /// After the daemon: whatever it leaves goes with its place.
    _place: Place,
}

impl Docker {
    pub(super) fn start() -> Result<Self> {
        ensure!(is_root(), "docker is measured as root only");
        find("dockerd").context("`dockerd` (package docker.io) is missing")?;
        let place = Place::create()?;
        let tar = place.path().join("image.tar");
        // The root is read-only, so the place to work in is there from the start.
        busybox_tar(&tar, &["workspace"])?;
        let mut dockerd = Dockerd::spawn(&place)?;
        dockerd.wait_until_ready()?;
        dockerd.import(&tar, IMAGE)?;
        Ok(Self {
            dockerd,
            _place: place,
        })
    }

    /// Points whatever runs `docker` at this daemon.
    pub(super) fn environment(&self, command: &mut Command) {
        self.dockerd.point_here(command);
    }
}
