//! Installs the programs that the tests use.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::engines;
use crate::run::{cargo, check, exists, is_root};
use crate::venv;

pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// A file of the package, to check whether it is installed. An absolute path, because a program of the same name in
    /// another directory cannot be used in a box.
    pub(crate) proof: &'static str,
}

/// Debian packages. Each is used by a test: maps for rootless boxes, their network, and programs
/// that commands in a box run.
const PACKAGES: &[Package] = &[
    Package {
        name: "uidmap",
        proof: "/usr/bin/newuidmap",
    },
    Package {
        name: "passt",
        proof: "/usr/bin/pasta",
    },
    Package {
        name: "nftables",
        proof: "/usr/sbin/nft",
    },
    Package {
        name: "iproute2",
        proof: "/bin/ip",
    },
    Package {
        name: "util-linux",
        proof: "/usr/bin/setpriv",
    },
    Package {
        name: "strace",
        proof: "/usr/bin/strace",
    },
    Package {
        name: "passwd",
        proof: "/usr/sbin/useradd",
    },
    Package {
        name: "ca-certificates",
        proof: "/etc/ssl/certs/ca-certificates.crt",
    },
    Package {
        name: "python3",
        proof: "/usr/bin/python3",
    },
    Package {
        name: "python3-pip",
        proof: "/usr/bin/pip3",
    },
    // Boxes have Debian's Python, even if another one is first in this `PATH`.
    venv::DEBIAN_VENV,
    Package {
        name: "nodejs",
        proof: "/usr/bin/node",
    },
    Package {
        name: "busybox-static",
        proof: "/bin/busybox",
    },
];

struct Tool {
    name: &'static str,
    install: &'static [&'static str],
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "cargo-nextest",
        // Half of its dependencies are only for its self-update.
        install: &["--no-default-features", "--features", "default-no-update"],
    },
    Tool {
        name: "cargo-deny",
        install: &[],
    },
];

pub(super) fn install() -> Result<()> {
    install_packages(PACKAGES)?;
    // Without root they cannot be started and need not be installed.
    if is_root() {
        engines::install_packages()?;
    }
    // Debian keeps a part of Python in a package of its own, and it may not be Debian's Python.
    venv::base_python()?;
    for tool in TOOLS {
        if exists(tool.name) {
            continue;
        }
        println!("installing {}", tool.name);
        check(
            cargo()
                .args(["install", "--locked", "--quiet", tool.name])
                .args(tool.install)
                // A test tool need not be fast; building it should be.
                .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
                .env("CARGO_PROFILE_RELEASE_LTO", "off"),
        )
        .with_context(|| format!("`{}` is needed and could not be installed", tool.name))?;
    }
    Ok(())
}

pub(crate) fn install_packages(packages: &[Package]) -> Result<()> {
    let missing: Vec<_> = packages
        .iter()
        .filter(|package| !Path::new(package.proof).exists())
        .map(|package| package.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !is_root() {
        bail!("these Debian packages are needed: {names}\nhint: sudo apt-get install {names}");
    }
    println!("installing Debian packages: {names}");
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    check(apt().args(["update", "-qq"]))?;
    check(
        apt()
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(&missing),
    )
}
