//! Other programs that Boxwood is compared with.

pub(super) mod langbot_box;
pub(super) mod oci;
pub(super) mod server;
pub(super) mod websocat;

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::run::is_root;
use crate::test::needs::{Package, install_packages};

/// Where Debian's packages have them.
const BUSYBOX: &str = "/bin/busybox";
const CRUN: &str = "/usr/bin/crun";
const RUNC: &str = "/usr/sbin/runc";
// Boxes see the host's `/usr`, and so these two.
pub(super) const PYTHON: &str = "/usr/bin/python3";
pub(super) const RIPGREP: &str = "/usr/bin/rg";

/// Packages for the comparisons, in addition to those of the engines.
pub(super) const PACKAGES: &[Package] = &[
    Package {
        name: "bubblewrap",
        proof: "/usr/bin/bwrap",
    },
    Package {
        name: "docker.io",
        proof: "/usr/sbin/dockerd",
    },
    Package {
        name: "busybox-static",
        proof: BUSYBOX,
    },
    Package {
        name: "runc",
        proof: RUNC,
    },
    Package {
        name: "ripgrep",
        proof: RIPGREP,
    },
    Package {
        name: "python3",
        proof: PYTHON,
    },
    Package {
        name: "python3-venv",
        proof: "/usr/share/doc/python3-venv",
    },
];

/// Installs what can be installed. A comparison whose program is missing says so in the table.
pub(super) fn prepare() {
    if is_root()
        && let Err(error) = install_packages(PACKAGES)
    {
        eprintln!("warning: {error:#}");
    }
}

/// `sh -c true`, started and waited for.
pub(super) fn sh_true() -> Result<()> {
    succeed(Command::new("/bin/sh").args(["-c", "true"]))
}

/// The same inside `bwrap`, with every namespace it has and a root as private as ours.
pub(super) fn bwrap_true() -> Result<()> {
    succeed(bwrap().args(["/bin/sh", "-c", "true"]))
}

/// A box of `bwrap` that stays.
pub(super) fn bwrap_sleep() -> Result<Child> {
    quiet(bwrap().args(["sleep", "3600"]))
        .spawn()
        .context("`bwrap` could not be started")
}

fn bwrap() -> Command {
    let mut command = Command::new("bwrap");
    command
        .args(["--unshare-all", "--die-with-parent", "--new-session"])
        .args(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"])
        .args(["--tmpfs", "/tmp", "--"]);
    command
}

pub(super) fn quiet(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = quiet(command)
        .status()
        .with_context(|| format!("{command:?} could not be started"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}
