//! Shared by the test binaries of the native backend: how it is launched, and what is expected.

mod absent;

use std::sync::Arc;

use boxwood_backend::Backend;
use boxwood_backend_native::NativeBackend;
use boxwood_local::{LocalHost, Settings};
use boxwood_suites::machine::{has_landlock, installed, opens_tun, privilege};
use boxwood_suites::{BackendSetup, Host, Privilege, StateDirs};

/// As many prewarmed boxes as a daemon keeps by default.
const POOL: usize = 4;

pub(crate) struct Native;

impl BackendSetup for Native {
    fn column(&self) -> String {
        match privilege() {
            Privilege::Root => "native",
            Privilege::Rootless { .. } => "native-rootless",
        }
        .to_owned()
    }

    fn host(&self) -> anyhow::Result<Host> {
        let privilege = privilege();
        Ok(Host {
            missing_mechanisms: absent::on(privilege, has_landlock()),
            network: privilege == Privilege::Root || (installed("pasta") && opens_tun()),
            // Delegated groups of an ordinary user are not used.
            counters: privilege == Privilege::Root,
            ..Host::new(privilege)
        })
    }

    fn launch(&self, dirs: &StateDirs) -> anyhow::Result<Arc<dyn Backend>> {
        let settings = Settings {
            state_dir: dirs.state_dir(),
            run_dir: dirs.run_dir(),
            ..Settings::default()
        };
        let host = LocalHost::launch(&settings).map_err(|error| {
            let hint = error.hint().unwrap_or("run `boxwood doctor`").to_owned();
            anyhow::Error::new(error).context(format!(
                "native boxes cannot be started on this host (hint: {hint})"
            ))
        })?;
        Ok(Arc::new(NativeBackend::new(host, POOL)))
    }
}
