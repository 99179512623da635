//! A Podman with configuration and storage of its own, for root or for an ordinary user.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, getrlimit};

use super::Variables;
use super::dockerd::{PROGRAMS, write_script};
use super::run_directory::RunDirectory;
use crate::run::output;
use crate::test::rootless::User;

/// Podman's defaults raise limits that root of a small virtual machine may not raise.
const MAX_OPEN_FILES: u64 = 20_000;
const MAX_PROCESSES: u64 = 4_096;

pub(super) struct Podman {
    directory: PathBuf,
    user: Option<User>,
}

impl Podman {
    pub(super) fn for_root(run_directory: &RunDirectory) -> Result<Self> {
        let podman = Self {
            directory: run_directory.directory("podman")?,
            user: None,
        };
        podman.configure()?;
        Ok(podman)
    }

    pub(super) fn for_user(run_directory: &RunDirectory) -> Result<Self> {
        let user = User::ensure()?;
        let podman = Self {
            directory: run_directory.directory("rootless")?,
            user: Some(user),
        };
        podman.configure()?;
        fs::create_dir(podman.directory.join("xdg"))?;
        if let Some(user) = &podman.user {
            user.own(&podman.directory)?;
        }
        Ok(podman)
    }

    /// Where its configuration lies. A user's Podman runs itself once more when a container ends,
    /// without most of its variables: it must find everything from its home.
    fn configuration(&self) -> PathBuf {
        if self.user.is_some() {
            self.directory.join("home/.config/containers")
        } else {
            self.directory.clone()
        }
    }

    fn configure(&self) -> Result<()> {
        let configuration = self.configuration();
        fs::create_dir_all(&configuration)?;
        let path = |name: &str| self.directory.join(name).display().to_string();
        let open_files = at_most(Resource::Nofile, MAX_OPEN_FILES);
        let processes = at_most(Resource::Nproc, MAX_PROCESSES);
        // Without this, `runc` of root shares its state with the whole machine.
        let runtime = self.directory.join("runc");
        write_script(
            &runtime,
            &format!(
                "#!/bin/sh\nexec /usr/sbin/runc --root {} \"$@\"\n",
                path("state")
            ),
        )?;
        // Its default runtime refuses hosts with both cgroup versions. Its default locks are one
        // piece of memory for all Podmans of a user, and a new one would free those of the others.
        fs::write(
            configuration.join("containers.conf"),
            format!(
                "[containers]\n\
                 default_ulimits = [\"nofile={open_files}:{open_files}\", \"nproc={processes}:{processes}\"]\n\
                 [engine]\n\
                 runtime = \"runc\"\n\
                 cgroup_manager = \"cgroupfs\"\n\
                 events_logger = \"file\"\n\
                 lock_type = \"file\"\n\
                 tmp_dir = \"{}\"\n\
                 volume_path = \"{}\"\n\
                 [engine.runtimes]\n\
                 runc = [\"{}\"]\n",
                path("tmp"),
                path("volumes"),
                runtime.display(),
            ),
        )?;
        // Each `podman` process mounts its storage directory over itself and unmounts it at its end. One of two
        // concurrent processes can hide a layer that the other is mapping. Then every `podman` fails until the layer
        // is unmounted manually.
        fs::write(
            configuration.join("storage.conf"),
            format!(
                "[storage]\ndriver = \"overlay\"\ngraphroot = \"{0}\"\nrootless_storage_path = \"{0}\"\nrunroot = \"{1}\"\n\
                 [storage.options.overlay]\nskip_mount_home = \"true\"\n",
                path("storage"),
                path("run"),
            ),
        )?;
        self.set_registry(None)
    }

    /// Configures the registry as one without TLS. Docker needs no setting for that on loopback.
    pub(super) fn set_registry(&self, address: Option<&str>) -> Result<()> {
        let registry = address.map_or_else(String::new, |address| {
            format!("[[registry]]\nlocation = \"{address}\"\ninsecure = true\n")
        });
        let text = format!("unqualified-search-registries = []\n{registry}");
        fs::write(self.configuration().join("registries.conf"), text)?;
        Ok(())
    }

    pub(super) fn import(&self, tar: &Path, image: &str) -> Result<()> {
        // Opened here, because the user may not have access to the directory of the archive.
        let file =
            File::open(tar).with_context(|| format!("`{}` could not be opened", tar.display()))?;
        let output = self
            .command()
            .args(["import", "--quiet", "-", image])
            .stdin(file)
            .stdout(Stdio::null())
            .output()
            .context("`podman` could not be started")?;
        if !output.status.success() {
            bail!(
                "`podman import` of {image} failed: {}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }

    pub(super) fn push(&self, image: &str, to: &str) -> Result<()> {
        output(self.command().args(["push", "--quiet", image, to]))?;
        Ok(())
    }

    pub(super) fn variables(&self) -> Variables {
        let path = |name: &str| self.directory.join(name).display().to_string();
        let variables = if self.user.is_some() {
            // New directories, which are removed with the run directory.
            vec![("HOME", path("home")), ("XDG_RUNTIME_DIR", path("xdg"))]
        } else {
            vec![
                ("CONTAINERS_CONF", path("containers.conf")),
                ("CONTAINERS_STORAGE_CONF", path("storage.conf")),
                ("CONTAINERS_REGISTRIES_CONF", path("registries.conf")),
            ]
        };
        variables
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// A script that runs a command as this Podman's user, with these variables.
    pub(super) fn write_as_user(&self, variables: &Variables) -> Result<PathBuf> {
        let path = self.directory.join("as-user");
        let mut command = self.program("\"$@\"");
        command.envs(variables);
        write_script(&path, &script(&command))?;
        Ok(path)
    }

    fn command(&self) -> Command {
        self.program("podman")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = if let Some(user) = &self.user {
            user.command(name.as_ref())
        } else {
            let mut command = Command::new(name);
            command.env("PATH", PROGRAMS);
            command
        };
        command.envs(self.variables()).current_dir(&self.directory);
        command
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // The clean-up of the run directory removes what is left.
        let _ = output(
            self.command()
                .args(["rm", "--all", "--force", "--time", "0"]),
        );
    }
}

/// A command as a script with nothing else in its environment.
fn script(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        let value = value?.to_string_lossy().into_owned();
        Some(format!("'{}={value}'", name.to_string_lossy()))
    });
    let argv = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned());
    let line: Vec<_> = variables.chain(argv).collect();
    format!("#!/bin/sh\nexec env -i {}\n", line.join(" "))
}

/// The highest limit that can be set without the right to raise limits.
fn at_most(resource: Resource, requested: u64) -> u64 {
    getrlimit(resource)
        .maximum
        .map_or(requested, |hard| hard.min(requested))
}
