//! Which way leads into a box of this engine, decided once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::args;
use crate::cli::{Cli, CliError};
use crate::settings::{ContainerSettings, Engine};

/// The client answers this without its daemon.
const ASK: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Descriptors are passed, namespaces entered.
    Direct,
    /// Everything goes through the engine's own connection.
    Through(Place),
}

/// Where a box that is reached through its engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On this machine, behind a kernel of its own: the host's paths exist for its engine.
    Here,
    /// On a machine whose paths are not ours.
    Elsewhere,
}

#[derive(Debug, Default)]
pub(crate) struct Ways {
    found: OnceCell<Way>,
    /// An engine that seemed to be here turned out not to be.
    elsewhere: AtomicBool,
}

impl Ways {
    pub(crate) async fn way(&self, settings: &ContainerSettings, cli: &Cli) -> Way {
        if let Some(way) = self.known(settings) {
            return way;
        }
        let find = || async {
            let told = match settings.engine {
                Engine::Docker => cli.run(args::endpoint(), ASK).await.unwrap_or_default(),
                Engine::Podman => String::new(),
            };
            by_endpoint(settings, told.trim())
        };
        *self.found.get_or_init(find).await
    }

    /// As far as it is known without asking.
    pub(crate) fn known(&self, settings: &ContainerSettings) -> Option<Way> {
        if self.elsewhere.load(Ordering::Acquire) {
            return Some(Way::Through(Place::Elsewhere));
        }
        let told = settings.docker_host.as_deref();
        let by_settings = told.map(|host| by_endpoint(settings, host));
        by_settings.or_else(|| self.found.get().copied())
    }

    /// From now on this engine is taken to be on another machine.
    pub(crate) fn is_elsewhere(&self) {
        self.elsewhere.store(true, Ordering::Release);
    }
}

fn by_endpoint(settings: &ContainerSettings, endpoint: &str) -> Way {
    let remote = ["tcp://", "ssh://", "http://", "https://"];
    if remote.iter().any(|scheme| endpoint.starts_with(scheme)) {
        Way::Through(Place::Elsewhere)
    } else if kernel_of(settings).is_some() {
        Way::Through(Place::Here)
    } else {
        Way::Direct
    }
}

/// Whether the engine says by this that a directory of this machine is not on its own.
pub(crate) fn is_elsewhere(error: &CliError) -> bool {
    let CliError::Refused { said } = error else {
        return false;
    };
    let said = said.to_lowercase();
    ["bind source path does not exist", "mounts denied"]
        .iter()
        .any(|words| said.contains(words))
}

/// gVisor's terminals know neither an interrupt nor another size, so there are none.
pub(crate) fn has_terminals(settings: &ContainerSettings) -> bool {
    let kernel = kernel_of(settings).unwrap_or_default();
    !(kernel.contains("runsc") || kernel.contains("gvisor"))
}

/// The OCI runtime, where it is one that runs boxes on a kernel of their own.
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

    fn check(runtime: Option<&str>, endpoint: &str, expected: Way) {
        let settings = ContainerSettings {
            runtime: runtime.map(str::to_owned),
            ..ContainerSettings::new(Engine::Docker)
        };
        assert_eq!(by_endpoint(&settings, endpoint), expected, "{endpoint}");
    }

    #[test]
    fn the_way_follows_from_runtime_and_endpoint() {
        check(None, "unix:///var/run/docker.sock", Way::Direct);
        check(None, "", Way::Direct);
        check(Some("crun"), "", Way::Direct);
        check(Some("runsc"), "", Way::Through(Place::Here));
        let kata = "/usr/bin/kata-runtime";
        check(Some(kata), "unix:///x", Way::Through(Place::Here));
        let far = Way::Through(Place::Elsewhere);
        check(None, "tcp://127.0.0.1:2375", far);
        check(None, "ssh://user@host", far);
        check(Some("runsc"), "tcp://host:2376", far);
    }

    #[test]
    fn what_turned_out_to_be_elsewhere_stays_there() {
        let settings = ContainerSettings::new(Engine::Docker);
        let ways = Ways::default();
        assert_eq!(ways.known(&settings), None);
        ways.is_elsewhere();
        let far = Way::Through(Place::Elsewhere);
        assert_eq!(ways.known(&settings), Some(far));
    }
}
