//! The native backend: boxes from namespaces, cgroups and seccomp, without other software.
//!
//! The daemon itself never enters a namespace. The spawner, a small process started before the daemon has
//! threads, forks prewarmed boxes: empty namespaces in their cgroups, with an init that waits for its plan.
//! A start takes a prewarmed box, or creates one, and sends the plan.
#![forbid(unsafe_code)]

mod pool;
mod prewarmed;
mod probe;
mod root;
mod start;

use std::sync::Arc;

use boxwood_backend::{
    AdoptError, Adopted, Backend, BoxFuture, BoxHandle, Capabilities, Images, Probe, ProbeError,
    Progress, Sandbox, StartError, StartRecorder,
};
use boxwood_local::{ImageStore, LocalHost, local_capabilities, spawn_adopt, spawn_start};
use boxwood_policy::AdmittedSpec;

use crate::pool::Pool;

const NAME: &str = "native";

/// The backend. Clones share all state.
#[derive(Clone)]
pub struct NativeBackend {
    host: Arc<LocalHost>,
    pool: Arc<Pool>,
    images: ImageStore,
}

impl NativeBackend {
    /// `pool_size` is the number of prewarmed boxes. Each needs a few dozen kilobytes.
    pub fn new(host: Arc<LocalHost>, pool_size: usize) -> Self {
        host.join();
        let pool = Pool::new(if host.mapping.is_root() { pool_size } else { 0 });
        let images = ImageStore::new(&host.state_dir, NAME);
        images.remove_leftovers_later();
        Self {
            host,
            pool: Arc::new(pool),
            images,
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
            reconnected.adopt(&host, None).await
        };
        spawn_adopt(&self.host, adopt)
    }

    fn finish_adoption(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.host.finish_adoption(NAME))
    }

    fn images(&self) -> &dyn Images {
        &self.images
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.host.active_work.idle().await;
            self.pool.drain().await;
            self.host.leave().await;
        })
    }
}
