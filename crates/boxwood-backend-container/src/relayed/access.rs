//! Decides whether boxes of an engine are reached directly or through the engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::args;
use crate::cli::{Cli, CliError};
use crate::settings::{ContainerSettings, Engine};

/// Docker's client replies to this without its daemon.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Descriptors can be passed and namespaces entered.
    Direct,
    /// Everything goes through the engine's connection.
    Through(Location),
}

/// Where a relayed box runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// On this machine with its own kernel: the engine can mount paths of the host.
    Local,
    /// On another machine, where paths of this host do not exist.
    Remote,
}

#[derive(Debug, Default)]
pub(crate) struct AccessProbe {
    found: OnceCell<Access>,
    /// The engine turned out to be on another machine.
    remote: AtomicBool,
}

impl AccessProbe {
    pub(crate) async fn access(&self, settings: &ContainerSettings, cli: &Cli) -> Access {
        if let Some(access) = self.known(settings) {
            return access;
        }
        let find = || async {
            let output = match settings.engine {
                Engine::Docker => cli
                    .run(args::endpoint(), ENDPOINT_TIMEOUT)
                    .await
                    .unwrap_or_default(),
                Engine::Podman => String::new(),
            };
            by_endpoint(settings, output.trim())
        };
        *self.found.get_or_init(find).await
    }

    /// What is known without contacting the engine.
    pub(crate) fn known(&self, settings: &ContainerSettings) -> Option<Access> {
        if self.remote.load(Ordering::Acquire) {
            return Some(Access::Through(Location::Remote));
        }
        let output = settings.docker_host.as_deref();
        let by_settings = output.map(|host| by_endpoint(settings, host));
        by_settings.or_else(|| self.found.get().copied())
    }

    /// From now on this engine counts as remote.
    pub(crate) fn set_remote(&self) {
        self.remote.store(true, Ordering::Release);
    }
}

fn by_endpoint(settings: &ContainerSettings, endpoint: &str) -> Access {
    let remote = ["tcp://", "ssh://", "http://", "https://"];
    if remote.iter().any(|scheme| endpoint.starts_with(scheme)) {
        Access::Through(Location::Remote)
    } else if kernel_of(settings).is_some() {
        Access::Through(Location::Local)
    } else {
        Access::Direct
    }
}

/// Returns true if the error shows that a directory of this machine does not exist on the engine's.
pub(crate) fn is_remote(error: &CliError) -> bool {
    let CliError::Refused { message } = error else {
        return false;
    };
    let message = message.to_lowercase();
    ["bind source path does not exist", "mounts denied"]
        .iter()
        .any(|text| message.contains(text))
}

/// gVisor's terminals support neither interrupts nor resizing, so they are not offered.
pub(crate) fn has_terminals(settings: &ContainerSettings) -> bool {
    let kernel = kernel_of(settings).unwrap_or_default();
    !(kernel.contains("runsc") || kernel.contains("gvisor"))
}

/// The OCI runtime if it runs containers on their own kernel.
pub(crate) fn kernel_of(settings: &ContainerSettings) -> Option<&str> {
    let runtime = settings.runtime.as_deref()?;
    let name = runtime.rsplit('/').next().unwrap_or(runtime);
    ["runsc", "gvisor", "kata"]
        .iter()
        .any(|kernel| name.contains(kernel))
        .then_some(runtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(runtime: Option<&str>, endpoint: &str, expected: Access) {
        let settings = ContainerSettings {
            runtime: runtime.map(str::to_owned),
            ..ContainerSettings::new(Engine::Docker)
        };
        assert_eq!(by_endpoint(&settings, endpoint), expected, "{endpoint}");
    }

    #[test]
    fn access_follows_from_runtime_and_endpoint() {
        check(None, "unix:///var/run/docker.sock", Access::Direct);
        check(None, "", Access::Direct);
        check(Some("crun"), "", Access::Direct);
        check(Some("runsc"), "", Access::Through(Location::Local));
        let kata = "/usr/bin/kata-runtime";
        check(Some(kata), "unix:///x", Access::Through(Location::Local));
        let remote = Access::Through(Location::Remote);
        check(None, "tcp://127.0.0.1:2375", remote);
        check(None, "ssh://user@host", remote);
        check(Some("runsc"), "tcp://host:2376", remote);
    }

    #[test]
    fn a_remote_engine_stays_remote() {
        let settings = ContainerSettings::new(Engine::Docker);
        let access = AccessProbe::default();
        assert_eq!(access.known(&settings), None);
        access.set_remote();
        let remote = Access::Through(Location::Remote);
        assert_eq!(access.known(&settings), Some(remote));
    }
}
