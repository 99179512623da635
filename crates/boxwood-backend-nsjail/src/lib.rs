//! The nsjail backend: one long-lived jail per box.
//!
//! nsjail runs in the box's user namespace, creates the other namespaces and an empty root, and starts
//! `boxwood-init` there. Everything else is shared with the native backend. Nothing that a client sends
//! becomes part of nsjail's command line.
#![forbid(unsafe_code)]

mod args;
mod jail;
mod log;
mod probe;
mod program;
mod start;

use std::path::PathBuf;
use std::sync::Arc;

use boxwood_backend::{
    AdoptError, Adopted, Backend, BoxFuture, BoxHandle, Capabilities, Images, NoImages, Probe,
    ProbeError, Progress, Sandbox, StartError, StartRecorder,
};
use boxwood_local::{LocalHost, adopt_step, local_capabilities, spawn_adopt, spawn_start};
use boxwood_policy::AdmittedSpec;

use crate::jail::Jail;

const NAME: &str = "nsjail";

/// Settings of this backend.
#[derive(Clone, Debug)]
pub struct NsjailSettings {
    /// Path of the program, or a name that is looked up in `PATH`.
    pub program: PathBuf,
}

impl Default for NsjailSettings {
    fn default() -> Self {
        Self {
            program: PathBuf::from(NAME),
        }
    }
}

/// The backend. Clones share all state.
#[derive(Clone)]
pub struct NsjailBackend {
    host: Arc<LocalHost>,
    settings: NsjailSettings,
}

impl NsjailBackend {
    /// Does not run nsjail; a missing program is reported by the first start or probe.
    pub fn new(host: Arc<LocalHost>, settings: NsjailSettings) -> Self {
        host.join();
        Self { host, settings }
    }
}

impl Backend for NsjailBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        local_capabilities()
    }

    fn probe(&self) -> BoxFuture<'_, Result<Probe, ProbeError>> {
        Box::pin(probe::probe(self.clone()))
    }

    fn start<'a>(
        &'a self,
        spec: &'a AdmittedSpec,
        _progress: &'a Progress,
        recorder: &'a StartRecorder,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, StartError>> {
        let start = start::start(self.clone(), spec.clone(), recorder.clone());
        spawn_start(&self.host, start)
    }

    fn left_running(&self) -> BoxFuture<'_, Vec<BoxHandle>> {
        Box::pin(async { self.host.recovery_sockets(NAME) })
    }

    fn adopt<'a>(&'a self, handle: &'a BoxHandle) -> BoxFuture<'a, Result<Adopted, AdoptError>> {
        let (host, handle) = (Arc::clone(&self.host), handle.clone());
        let adopt = async move {
            let reconnected = host.reconnect(&handle).await?;
            let jail = Jail::found(reconnected.pid);
            let jail = jail.map_err(adopt_step("find the nsjail process"))?;
            reconnected.adopt(&host, Some(Box::new(jail))).await
        };
        spawn_adopt(&self.host, adopt)
    }

    fn finish_adoption(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.host.finish_adoption(NAME))
    }

    fn images(&self) -> &dyn Images {
        &NoImages { backend: NAME }
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.host.leave())
    }
}
