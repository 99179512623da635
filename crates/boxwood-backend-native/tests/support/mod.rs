//! What the native backend's test binaries share: how it is launched here, and what is expected.

mod absent;
mod host;

use std::sync::Arc;

use boxwood_backend::Backend;
use boxwood_backend::suite::machine::privilege;
use boxwood_backend::suite::{Host, Places, Privilege, Subject};
use boxwood_backend_native::NativeBackend;
use boxwood_local::{LocalHost, Settings};

/// As many blank boxes as a daemon keeps by default.
const POOL: usize = 4;

pub(crate) struct Native;

impl Subject for Native {
    fn column(&self) -> String {
        match privilege() {
            Privilege::Root => "native",
            Privilege::Rootless { .. } => "native-rootless",
        }
        .to_owned()
    }

    fn host(&self) -> anyhow::Result<Host> {
        Ok(host::describe())
    }

    fn launch(&self, places: &Places) -> anyhow::Result<Arc<dyn Backend>> {
        let settings = Settings {
            state_dir: places.state_dir(),
            run_dir: places.run_dir(),
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
