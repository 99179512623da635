//! A separate Docker daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::daemon::{Daemon, ends_with_parent};
use super::run_directory::RunDirectory;
use super::{IMAGE_SMALL, Variables};
use crate::run::output;

/// The programs of the Debian packages, so that client and daemon are one version.
pub(crate) const PROGRAMS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// `ptrace` needs no hardware virtualization and works in every version of Debian's package. Boxes have no network.
/// Without `--ignore-cgroups`, `runsc` would create cgroups itself.
const RUNSC: &str = r#"#!/bin/sh
exec /usr/bin/runsc --platform=ptrace --network=none --ignore-cgroups "$@"
"#;

pub(crate) struct Dockerd {
    daemon: Daemon,
    directory: PathBuf,
}

impl Dockerd {
    /// Starts it, but does not wait. The daemon ends with the thread that started it, so call this from a thread that
    /// lives long enough.
    pub(crate) fn spawn(run_directory: &RunDirectory) -> Result<Self> {
        let directory = run_directory.directory("docker")?;
        write_script(&directory.join("runsc"), RUNSC)?;
        // Boxes have no network, so Docker needs no bridge and does not change the machine's firewall rules.
        let configuration = json!({
            "bridge": "none",
            "iptables": false,
            "ip6tables": false,
            "ip-forward": false,
            "ip-masq": false,
            "userland-proxy": false,
            "cgroup-parent": format!("/{}", run_directory.cgroup()),
            "shutdown-timeout": 3,
            "runtimes": { "runsc": { "path": directory.join("runsc") } },
        });
        fs::write(
            directory.join("daemon.json"),
            serde_json::to_string_pretty(&configuration)?,
        )?;
        let starter = directory.join("dockerd");
        write_script(
            &starter,
            &format!(
                "#!/bin/sh\n# One more dockerd of this run: dockerd DIR\n\
                 PATH={PROGRAMS}\nexport PATH\nmkdir -p \"$1\"\n\
                 exec dockerd --config-file {}/daemon.json --host \"unix://$1/docker.sock\" \
                 --data-root \"$1/data\" --exec-root \"$1/run\" --pidfile \"$1/pid\"\n",
                directory.display()
            ),
        )?;
        fs::create_dir(directory.join("config"))?;
        // Podman reads it too, and fails if it is missing.
        fs::write(directory.join("config/config.json"), "{}\n")?;
        let daemon = Daemon::spawn(
            "dockerd",
            ends_with_parent(&starter).arg(directory.join("d")),
            directory.join("log"),
        )?;
        Ok(Self { daemon, directory })
    }

    pub(crate) fn wait_until_ready(&mut self) -> Result<()> {
        let command = || {
            let mut command = docker_command(&self.directory);
            command.arg("version");
            command
        };
        self.daemon.wait_until(|| output(&mut command()).ok())?;
        Ok(())
    }

    pub(crate) fn import(&self, tar: &Path, image: &str) -> Result<()> {
        output(self.command().arg("import").arg(tar).arg(image))?;
        Ok(())
    }

    /// The reason if gVisor cannot run a container on this machine.
    pub(super) fn probe_runsc(&self) -> Option<String> {
        let mut command = Command::new("timeout");
        self.configure_client(&mut command);
        command
            .args(["60", "docker", "run", "--rm", "--network", "none"])
            .args(["--runtime", "runsc", IMAGE_SMALL, "/bin/true"]);
        output(&mut command)
            .err()
            .map(|error| format!("{error:#}").trim_end().to_owned())
    }

    pub(super) fn push(&self, image: &str, to: &str) -> Result<()> {
        output(self.command().args(["tag", image, to]))?;
        output(self.command().args(["push", "--quiet", to]))?;
        // Removes only the name, so that the image has to be pulled.
        output(self.command().args(["rmi", to]))?;
        Ok(())
    }

    pub(super) fn variables(&self) -> Variables {
        let starter = self.directory.join("dockerd");
        let config = self.directory.join("config");
        [
            ("BOXWOOD_TEST_DOCKER_HOST", host(&self.directory)),
            ("BOXWOOD_TEST_DOCKERD", starter.display().to_string()),
            ("DOCKER_CONFIG", config.display().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Makes a command that runs `docker` use this daemon.
    pub(crate) fn configure_client(&self, command: &mut Command) {
        set_variables(&self.directory, command);
    }

    fn command(&self) -> Command {
        docker_command(&self.directory)
    }
}

impl Drop for Dockerd {
    fn drop(&mut self) {
        // At shutdown the daemon would wait for containers that do not end. The clean-up of the run directory removes
        // what is left.
        let Ok(listed) = output(self.command().args(["ps", "--all", "--quiet"])) else {
            return;
        };
        let containers: Vec<_> = listed.split_whitespace().collect();
        if !containers.is_empty() {
            let mut command = Command::new("timeout");
            self.configure_client(&mut command);
            let _ = output(
                command
                    .args(["20", "docker", "rm", "--force"])
                    .args(containers),
            );
        }
    }
}

fn docker_command(directory: &Path) -> Command {
    let mut command = Command::new("docker");
    set_variables(directory, &mut command);
    command
}

fn set_variables(directory: &Path, command: &mut Command) {
    command
        .env("PATH", PROGRAMS)
        .env("DOCKER_HOST", host(directory))
        .env("DOCKER_CONFIG", directory.join("config"));
}

fn host(directory: &Path) -> String {
    format!("unix://{}", directory.join("d/docker.sock").display())
}

/// A program that all users may start.
pub(super) fn write_script(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("`{}` could not be written", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
