//! What the tests use that a plain machine may lack.
//!
//! Comes in: nothing. Goes out: the machine with it installed, or an error with the command to type.
//! Never here: anything that only `cargo xtask bench` uses.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::{cargo, check, exists, is_root};

pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// A program that is there when the package is.
    pub(crate) program: &'static str,
}

const fn package(name: &'static str, program: &'static str) -> Package {
    Package { name, program }
}

/// Debian packages. Each is used by a test: maps for rootless boxes, their network, and programs
/// that commands in a box run.
const PACKAGES: &[Package] = &[
    package("uidmap", "newuidmap"),
    package("passt", "pasta"),
    package("util-linux", "setpriv"),
    package("python3", "python3"),
    package("passwd", "useradd"),
];

struct Tool {
    name: &'static str,
    install: &'static [&'static str],
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "cargo-nextest",
        // Without the self-update feature half of its dependencies stay away.
        install: &["--no-default-features", "--features", "default-no-update"],
    },
    Tool {
        name: "cargo-deny",
        install: &[],
    },
];

pub(super) fn install() -> Result<()> {
    install_packages(PACKAGES)?;
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
                .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
                .env("CARGO_PROFILE_RELEASE_LTO", "off"),
        )
        .with_context(|| format!("`{}` is needed and could not be installed", tool.name))?;
    }
    Ok(())
}

pub(crate) fn install_packages(packages: &[Package]) -> Result<()> {
    let missing: Vec<_> = packages
        .iter()
        .filter(|package| !exists(package.program))
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
