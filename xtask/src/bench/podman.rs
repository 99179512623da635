//! A running container of Podman's, to exec in.
//!
//! Comes in: nothing. Goes out: a container from a busybox image with its own storage, gone on
//! drop. Never here: timing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::baseline::quiet;
use crate::run::{check, find, is_root, output};

const IMAGE: &str = "boxwood-bench:busybox";
const NAME: &str = "boxwood-bench";

/// Podman's defaults raise limits that root of a small virtual machine may not raise, and its
/// default runtime refuses hosts with both cgroup versions. These values work on either kind.
const CONFIGURATION: &str = r#"[containers]
default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"#;

pub(super) struct Podman {
    directory: TempDir,
}

impl Podman {
    pub(super) fn start() -> Result<Self> {
        ensure!(is_root(), "podman is measured as root only");
        let busybox = find("busybox").context("`busybox` (package busybox-static) is missing")?;
        find("podman").context("`podman` is missing")?;
        let podman = Self {
            directory: tempfile::tempdir()?,
        };
        fs::write(podman.path("containers.conf"), CONFIGURATION)?;

        let bin = podman.path("root/bin");
        fs::create_dir_all(&bin)?;
        fs::copy(busybox, bin.join("busybox"))?;
        for applet in ["sh", "sleep", "true"] {
            std::os::unix::fs::symlink("busybox", bin.join(applet))?;
        }
        let tar = podman.path("image.tar");
        check(
            Command::new("tar")
                .arg("-C")
                .arg(podman.path("root"))
                .arg("-cf")
                .arg(&tar)
                .arg("."),
        )?;
        output(podman.command().arg("import").arg(&tar).arg(IMAGE))?;
        output(
            podman
                .command()
                .args(["run", "-d", "--name", NAME, "--network", "none", IMAGE])
                .args(["/bin/sleep", "3600"]),
        )?;
        podman.exec_true()?;
        Ok(podman)
    }

    pub(super) fn exec_true(&self) -> Result<()> {
        let mut command = self.command();
        command.args(["exec", NAME, "/bin/sh", "-c", "true"]);
        let status = quiet(&mut command).status()?;
        ensure!(status.success(), "`podman exec` failed: {status}");
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `podman` on storage of its own, so that nothing of the machine's is touched.
    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        command
            .env("CONTAINERS_CONF", self.path("containers.conf"))
            .arg("--root")
            .arg(self.path("storage"))
            .arg("--runroot")
            .arg(self.path("run"))
            .args(["--storage-driver", "vfs"]);
        command
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let mut command = self.command();
        command.args(["rm", "--force", "--time", "0", NAME]);
        let _ = quiet(&mut command).status();
    }
}
