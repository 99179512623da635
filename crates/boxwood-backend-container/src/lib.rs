//! Boxes from Docker and Podman.
//!
//! Comes in: an admitted spec. Goes out: a container with `boxwood-init` as its first process. The
//! engine makes namespaces, root and limits; mounts, network and everything that runs are put in from
//! outside, as in every other local box. Never here: an engine's `exec` on the way of a command, or a
//! value of a client's in a place where an engine could take it for an option.
#![forbid(unsafe_code)]

mod args;
mod cli;
mod images;
mod janitor;
mod label;
mod labels;
mod probe;
mod pulled;
mod sandbox;
mod settings;
mod shell;
mod start;
mod through;

use std::sync::Arc;

use boxwood_api::Mechanism;
use boxwood_backend::{
    AdoptError, Adopted, Backend, BoxFuture, BoxHandle, Capabilities, Images, Probe, ProbeError,
    Progress, Sandbox, StartError, Witness,
};
use boxwood_local::{LocalHost, adopt_apart, start_apart};
use boxwood_policy::AdmittedSpec;

use crate::cli::Cli;
use crate::images::EngineImages;
use crate::janitor::Janitor;
use crate::labels::Owner;
use crate::sandbox::ContainerBox;
use crate::shell::Container;
use crate::through::{Place, Way, Ways, has_terminals, kernel_of};
pub use settings::{ContainerSettings, Engine};

/// The backend. Clones share everything.
#[derive(Clone)]
pub struct ContainerBackend {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    host: Arc<LocalHost>,
    settings: ContainerSettings,
    cli: Cli,
    owner: Owner,
    janitor: Arc<Janitor>,
    images: EngineImages,
    ways: Ways,
}

impl Shared {
    async fn way(&self) -> Way {
        self.ways.way(&self.settings, &self.cli).await
    }
}

impl ContainerBackend {
    /// Asks nothing of the engine yet.
    pub fn new(host: Arc<LocalHost>, settings: ContainerSettings) -> Self {
        host.join();
        let cli = Cli::new(&settings);
        let owner = Owner::this_process(host.instance());
        Self {
            shared: Arc::new(Shared {
                janitor: Janitor::new(cli.clone(), owner.clone()),
                images: EngineImages::new(cli.clone(), &settings, host.state_dir()),
                host,
                settings,
                cli,
                owner,
                ways: Ways::default(),
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
        let way = self.shared.ways.known(settings).unwrap_or(Way::Direct);
        let direct = way == Way::Direct;
        let boundary = kernel_of(settings).is_some();
        Capabilities {
            pty: has_terminals(settings),
            managed_processes: true,
            files: direct,
            network: direct,
            host_mounts: way != Way::Through(Place::Elsewhere),
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
        witness: &'a Witness,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, StartError>> {
        let shared = Arc::clone(&self.shared);
        let start = start::start(shared, spec.clone(), progress.clone(), witness.clone());
        start_apart(&self.shared.host, start)
    }

    fn left_running(&self) -> BoxFuture<'_, Vec<BoxHandle>> {
        Box::pin(async { self.shared.host.doors_of(self.name()) })
    }

    /// Without a word to the engine: it may be away, and the box is not.
    fn adopt<'a>(&'a self, handle: &'a BoxHandle) -> BoxFuture<'a, Result<Adopted, AdoptError>> {
        let (shared, handle) = (Arc::clone(&self.shared), handle.clone());
        let adopt = async move {
            let (host, janitor) = (&shared.host, &shared.janitor);
            let reunion = host.reconnect(&handle).await?;
            let name = reunion.name().to_owned();
            let container = Container::found(host, janitor, &name, reunion.shell())?;
            let taken = reunion.take_over(host, Some(Box::new(container))).await?;
            janitor.spare(&name);
            Ok(taken)
        };
        let wrap = |made| Arc::new(ContainerBox::direct(made)) as Arc<dyn Sandbox>;
        adopt_apart(&self.shared.host, adopt, wrap)
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.host.settle(self.name()))
    }

    fn images(&self) -> &dyn Images {
        &self.shared.images
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.host.leave())
    }
}
