//! `websocat`, a relay between WebSocket connections and commands.
//!
//! In: nothing. Out: a server that starts one `cat` for each connection. Built from crates.io into
//! the target directory, once, with the release options of the package.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, anyhow};

use super::server::Server;
use crate::bench::daemon::free_address;
use crate::run::{cargo, output, target_dir};

const VERSION: &str = "1.14.1";
/// Without the default features: TLS needs OpenSSL, and the relay here has none.
const FEATURES: &str = "tokio-process,unix_stdio,signal_handler";

pub(in super::super) fn cat() -> Result<Server> {
    let address = free_address()?;
    let mut command = Command::new(program()?);
    command
        .args(["-t", "-E", &format!("ws-l:{address}")])
        .arg("cmd:cat");
    Server::start(command, address)
}

fn program() -> Result<PathBuf> {
    let root = target_dir().join(format!("bench/websocat-{VERSION}"));
    let program = root.join("bin/websocat");
    if !program.is_file() {
        output(
            cargo()
                .args(["install", "websocat", "--version", VERSION, "--locked"])
                .args(["--quiet", "--no-default-features", "--features", FEATURES])
                .arg("--root")
                .arg(&root),
        )
        .map_err(|error| {
            // Paths of the machine stay out of the table.
            eprintln!("warning: {error:#}");
            anyhow!("`cargo install websocat --version {VERSION}` failed")
        })?;
    }
    Ok(program)
}
