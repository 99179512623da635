//! Boxes from namespaces, cgroups and seccomp, with nothing installed.
//!
//! Comes in: an admitted spec. Goes out: a box with `boxwood-init` as its first process. Never here:
//! a namespace entered by this process. A small *spawner* process, started before any thread, forks
//! *blank* boxes: new, empty namespaces with limits in place, whose init waits for its plan. A start
//! takes a blank, or makes one, and sends it the plan.
#![forbid(unsafe_code)]

mod blank;
mod label;
mod plan;
mod pool;
mod probe;
mod start;

use std::sync::Arc;

use boxwood_backend::{
    AdoptError, Adopted, Backend, BoxFuture, BoxHandle, Capabilities, Images, Probe, ProbeError,
    Progress, Sandbox, StartError, Witness,
};
use boxwood_local::{ImageStore, LocalHost, adopt_apart, local_capabilities, start_apart};
use boxwood_policy::AdmittedSpec;

use crate::pool::Pool;

const NAME: &str = "native";

/// The backend. Clones share everything.
#[derive(Clone)]
pub struct NativeBackend {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    host: Arc<LocalHost>,
    pool: Pool,
    images: ImageStore,
}

impl NativeBackend {
    /// `pool_size` is how many blank boxes wait for their plan. Each costs a few dozen kilobytes.
    pub fn new(host: Arc<LocalHost>, pool_size: usize) -> Self {
        host.join();
        let pool = Pool::new(if host.mapping.is_root() { pool_size } else { 0 });
        let images = ImageStore::new(host.state_dir(), NAME);
        images.sweep_later();
        Self {
            shared: Arc::new(Shared { host, pool, images }),
        }
    }
}

impl Backend for NativeBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        local_capabilities()
    }

    fn probe(&self) -> BoxFuture<'_, Result<Probe, ProbeError>> {
        Box::pin(probe::probe(Arc::clone(&self.shared)))
    }

    fn start<'a>(
        &'a self,
        spec: &'a AdmittedSpec,
        _progress: &'a Progress,
        witness: &'a Witness,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, StartError>> {
        let start = start::start(Arc::clone(&self.shared), spec.clone(), witness.clone());
        start_apart(&self.shared.host, start)
    }

    fn left_running(&self) -> BoxFuture<'_, Vec<BoxHandle>> {
        Box::pin(async { self.shared.host.doors_of(NAME) })
    }

    fn adopt<'a>(&'a self, handle: &'a BoxHandle) -> BoxFuture<'a, Result<Adopted, AdoptError>> {
        let (host, handle) = (Arc::clone(&self.shared.host), handle.clone());
        let adopt = async move {
            let reunion = host.reconnect(&handle).await?;
            reunion.take_over(&host, None).await
        };
        adopt_apart(&self.shared.host, adopt, |made| Arc::new(made))
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.host.settle(NAME))
    }

    fn images(&self) -> &dyn Images {
        &self.shared.images
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.shared.host.busy.idle().await;
            self.shared.pool.drain().await;
            self.shared.host.leave().await;
        })
    }
}
