//! The Docker and Podman backends.
//!
//! The engine creates namespaces, root and limits of a container with `boxwood-init` as its first process.
//! Mounts, network and programs are added from outside, as in every other local box. Commands do not use
//! the engine's `exec`, and no value from a client is in a position where an engine could take it for an
//! option.
#![forbid(unsafe_code)]

mod args;
mod cleanup;
mod cli;
mod container_state;
mod images;
mod isolation_label;
mod ownership;
mod probe;
mod pulled;
mod relayed;
mod settings;
mod start;

use std::sync::Arc;

use boxwood_api::Mechanism;
use boxwood_backend::{
    AdoptError, Adopted, Backend, BoxFuture, BoxHandle, Capabilities, Images, Probe, ProbeError,
    Progress, Sandbox, StartError, StartRecorder,
};
use boxwood_local::{LocalHost, spawn_adopt, spawn_start};
use boxwood_policy::AdmittedSpec;

use crate::cleanup::Cleanup;
use crate::cli::Cli;
use crate::container_state::Container;
use crate::images::EngineImages;
use crate::ownership::Owner;
use crate::relayed::{Access, AccessProbe, Location, has_terminals, kernel_of};
pub use settings::{ContainerSettings, Engine};

/// The backend. Clones share all state.
#[derive(Clone)]
pub struct ContainerBackend {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    host: Arc<LocalHost>,
    settings: ContainerSettings,
    cli: Cli,
    owner: Owner,
    cleanup: Arc<Cleanup>,
    images: EngineImages,
    access: AccessProbe,
}

impl Shared {
    async fn access(&self) -> Access {
        self.access.access(&self.settings, &self.cli).await
    }
}

impl ContainerBackend {
    /// Does not contact the engine.
    pub fn new(host: Arc<LocalHost>, settings: ContainerSettings) -> Self {
        host.join();
        let cli = Cli::new(&settings);
        let owner = Owner::this_process(host.instance());
        Self {
            shared: Arc::new(Shared {
                cleanup: Cleanup::new(cli.clone(), owner.clone()),
                images: EngineImages::new(cli.clone(), &settings, &host.state_dir),
                host,
                settings,
                cli,
                owner,
                access: AccessProbe::default(),
            }),
        }
    }
}

impl Backend for ContainerBackend {
    fn name(&self) -> &'static str {
        self.shared.settings.engine.name()
    }

    fn capabilities(&self) -> Capabilities {
        let settings = &self.shared.settings;
        let access = self.shared.access.known(settings).unwrap_or(Access::Direct);
        let direct = access == Access::Direct;
        let boundary = kernel_of(settings).is_some();
        Capabilities {
            pty: has_terminals(settings),
            managed_processes: true,
            files: direct,
            network: direct,
            host_mounts: access != Access::Through(Location::Remote),
            live_mounts: direct,
            adoption: direct,
            mechanisms: Mechanism::ALL
                .into_iter()
                .filter(|&mechanism| boundary || mechanism != Mechanism::KernelBoundary)
                .collect(),
        }
    }

    fn probe(&self) -> BoxFuture<'_, Result<Probe, ProbeError>> {
        Box::pin(probe::probe(Arc::clone(&self.shared)))
    }

    fn start<'a>(
        &'a self,
        spec: &'a AdmittedSpec,
        progress: &'a Progress,
        recorder: &'a StartRecorder,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, StartError>> {
        let shared = Arc::clone(&self.shared);
        let start = start::start(shared, spec.clone(), progress.clone(), recorder.clone());
        spawn_start(&self.shared.host, start)
    }

    fn left_running(&self) -> BoxFuture<'_, Vec<BoxHandle>> {
        Box::pin(async { self.shared.host.recovery_sockets(self.name()) })
    }

    /// Does not contact the engine, which may be unavailable while the box is running.
    fn adopt<'a>(&'a self, handle: &'a BoxHandle) -> BoxFuture<'a, Result<Adopted, AdoptError>> {
        let (shared, handle) = (Arc::clone(&self.shared), handle.clone());
        let adopt = async move {
            let (host, cleanup) = (&shared.host, &shared.cleanup);
            let reconnected = host.reconnect(&handle).await?;
            let record = reconnected.backend_state();
            let container = Container::found(host, cleanup, &handle.name, record)?;
            let adopted = reconnected.adopt(host, Some(Box::new(container))).await?;
            cleanup.keep(&handle.name);
            Ok(adopted)
        };
        spawn_adopt(&self.shared.host, adopt)
    }

    fn finish_adoption(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.host.finish_adoption(self.name()))
    }

    fn images(&self) -> &dyn Images {
        &self.shared.images
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.host.leave())
    }
}
