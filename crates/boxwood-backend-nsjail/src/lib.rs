//! Boxes that nsjail makes, one long-lived jail per session.
//!
//! Comes in: an admitted spec. Goes out: a box with `boxwood-init` as its first process. nsjail makes
//! the namespaces (but for the user namespace, in which it runs itself) and an empty root, and starts
//! init there; everything else is the same as in a native box and is done by the same code. Never here: a jail per command, or a word of a
//! client's on nsjail's command line.
#![forbid(unsafe_code)]

mod args;
mod jail;
mod label;
mod log;
mod probe;
mod program;
mod start;

use std::path::PathBuf;
use std::sync::Arc;

use boxwood_backend::{
    AdoptError, Adopted, Backend, BoxFuture, BoxHandle, Capabilities, Images, NoImages, Probe,
    ProbeError, Progress, Sandbox, StartError, Witness,
};
use boxwood_local::{LocalHost, adopt_apart, local_capabilities, start_apart};
use boxwood_policy::AdmittedSpec;

use crate::jail::Jail;

const NAME: &str = "nsjail";

/// What an operator may set about this backend.
#[derive(Clone, Debug)]
pub struct NsjailSettings {
    /// The program: a path, or a name to be found in `PATH`.
    pub program: PathBuf,
}

impl Default for NsjailSettings {
    fn default() -> Self {
        Self {
            program: PathBuf::from(NAME),
        }
    }
}

/// The backend. Clones share everything.
#[derive(Clone)]
pub struct NsjailBackend {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    host: Arc<LocalHost>,
    settings: NsjailSettings,
}

impl NsjailBackend {
    /// Runs nothing: whether nsjail is there is found out by whoever asks for a box.
    pub fn new(host: Arc<LocalHost>, settings: NsjailSettings) -> Self {
        host.join();
        Self {
            shared: Arc::new(Shared { host, settings }),
        }
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
            let jail = Jail::found(reunion.pid()).map_err(|source| AdoptError::Step {
                step: "find its nsjail".to_owned(),
                source,
            })?;
            reunion.take_over(&host, Some(Box::new(jail))).await
        };
        adopt_apart(&self.shared.host, adopt, |made| Arc::new(made))
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.host.settle(NAME))
    }

    fn images(&self) -> &dyn Images {
        &NoImages { backend: NAME }
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.host.leave())
    }
}
