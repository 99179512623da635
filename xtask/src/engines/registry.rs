//! A local image registry to pull from.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use super::daemon::{Daemon, ends_with_parent};
use super::run_directory::RunDirectory;

/// The kernel chooses the port, which is then read from the log.
const CONFIGURATION: &str = "version: 0.1
log:
  level: info
http:
  addr: 127.0.0.1:0
storage:
  filesystem:
    rootdirectory: ";

pub(super) struct Registry {
    daemon: Daemon,
}

impl Registry {
    /// Starts it, but does not wait. The daemon ends with the thread that started it, so call this from a thread that
    /// lives long enough.
    pub(super) fn spawn(run_directory: &RunDirectory) -> Result<Self> {
        let directory = run_directory.directory("registry")?;
        let configuration = directory.join("config.yml");
        fs::write(
            &configuration,
            format!("{CONFIGURATION}{}\n", directory.join("data").display()),
        )?;
        let daemon = Daemon::spawn(
            "docker-registry",
            ends_with_parent(&PathBuf::from("/usr/bin/docker-registry"))
                .arg("serve")
                .arg(&configuration),
            directory.join("log"),
        )?;
        Ok(Self { daemon })
    }

    /// Where it listens, `127.0.0.1:PORT`.
    pub(super) fn address(&mut self) -> Result<String> {
        let log = self.daemon.log().to_owned();
        self.daemon
            .wait_until(|| listens_on(&fs::read_to_string(&log).unwrap_or_default()))
    }
}

fn listens_on(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("listening on ")?;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || ".:".contains(c)))?;
    Some(rest[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_the_log() {
        let line = "time=\"x\" level=info msg=\"listening on 127.0.0.1:40123\" go.version=go1.19\n";
        assert_eq!(listens_on(line).as_deref(), Some("127.0.0.1:40123"));
        assert_eq!(listens_on("time=\"x\" msg=\"listening on 127.0.0"), None);
    }
}
