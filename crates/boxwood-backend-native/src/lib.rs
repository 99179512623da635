//! Boxes from namespaces, cgroups and seccomp, with nothing installed.
//!
//! Comes in: an admitted spec. Goes out: a box with `boxwood-init` as its first process. Never here:
//! a namespace entered by this process. A small *spawner* process, started before any thread, forks
//! *blank* boxes: new, empty namespaces with limits in place, whose init waits for its plan. A start
//! takes a blank, or makes one, and sends it the plan.
#![forbid(unsafe_code)]

mod blank;
mod busy;
mod cgroup;
mod files;
mod idmap;
mod instance;
mod label;
mod live_mount;
mod mapping;
mod net;
mod plan;
mod pool;
mod probe;
mod process;
mod sandbox;
mod settings;
mod spawner;
mod start;
mod streams;
mod terminal;
mod watched;

use std::sync::Arc;

use boxwood_api::Mechanism;
use boxwood_backend::{Backend, BoxFuture, Capabilities, Probe, ProbeError, Sandbox, StartError};
use boxwood_policy::AdmittedSpec;

use crate::busy::{Busy, Pulse};
use crate::cgroup::Cgroups;
use crate::instance::Instance;
use crate::mapping::Mapping;
use crate::net::WaysOut;
use crate::pool::Pool;
use crate::spawner::Spawner;
pub use net::NetworkSettings;
pub use settings::{Kind, Settings};

/// The backend. Clones share everything.
#[derive(Clone)]
pub struct NativeBackend {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    _instance: Instance,
    spawner: Spawner,
    mapping: Mapping,
    cgroups: Cgroups,
    ways_out: WaysOut,
    landlock: bool,
    pool: Pool,
    busy: Busy,
    pulse: Arc<Pulse>,
}

impl NativeBackend {
    /// Starts the spawner and looks at the host. Call it before the process has threads: the
    /// spawner is a fork, and lives as long as the backend.
    pub fn launch(settings: &Settings) -> Result<Self, StartError> {
        let instance = Instance::claim(settings)?;
        let mapping = Mapping::detect()?;
        let cgroups = Cgroups::detect(&instance.name, &mapping)?;
        let ways_out = WaysOut::new(&instance.name, settings, mapping.is_root());
        let spawner = Spawner::start().map_err(|source| StartError::Step {
            step: "start the spawner".to_owned(),
            source,
        })?;
        let pool = Pool::new(if mapping.is_root() {
            settings.pool_size
        } else {
            0
        });
        Ok(Self {
            shared: Arc::new(Shared {
                _instance: instance,
                spawner,
                mapping,
                cgroups,
                ways_out,
                landlock: probe::landlock_works(),
                pool,
                busy: Busy::new(),
                pulse: Arc::new(Pulse::new()),
            }),
        })
    }
}

impl Backend for NativeBackend {
    fn name(&self) -> &'static str {
        "native"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pty: true,
            managed_processes: true,
            files: true,
            network: true,
            host_mounts: true,
            live_mounts: true,
            mechanisms: Mechanism::ALL
                .into_iter()
                .filter(|&mechanism| mechanism != Mechanism::KernelBoundary)
                .collect(),
        }
    }

    fn probe(&self) -> BoxFuture<'_, Result<Probe, ProbeError>> {
        Box::pin(probe::probe(Arc::clone(&self.shared)))
    }

    fn start<'a>(
        &'a self,
        spec: &'a AdmittedSpec,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, StartError>> {
        let (shared, spec) = (Arc::clone(&self.shared), spec.clone());
        let work = self.shared.busy.enter();
        self.shared.pulse.beat();
        let (tell, told) = tokio::sync::oneshot::channel();
        // A task of its own: a caller that goes away half-way must not leave half a box.
        tokio::spawn(async move {
            let outcome = start::start(shared, spec).await;
            if let Err(Ok(unwanted)) = tell.send(outcome)
                && let Err(error) = unwanted.stop().await
            {
                tracing::warn!(%error, "a box that nobody wanted any more was not removed");
            }
            drop(work);
        });
        Box::pin(async move {
            match told.await {
                Ok(outcome) => Ok(outcome? as Arc<dyn Sandbox>),
                Err(error) => Err(StartError::Step {
                    step: "run the start".to_owned(),
                    source: std::io::Error::other(error),
                }),
            }
        })
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.shared.busy.idle().await;
            self.shared.pool.drain().await;
            self.shared.spawner.end().await;
            self.shared.cgroups.remove_base();
            self.shared.ways_out.close();
        })
    }
}
