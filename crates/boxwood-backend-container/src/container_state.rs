//! What the engine and the daemon keep of a box besides its processes.

use std::io;
use std::sync::{Arc, Mutex};

use boxwood_api::with_causes;
use boxwood_backend::{AdoptError, BoxFuture};
use boxwood_local::{BackendState, BootstrapDir, BoxIds, IdsRecord, LocalHost, adopt_step, lock};
use serde::{Deserialize, Serialize};

use crate::cleanup::Cleanup;

pub(crate) struct Container {
    cleanup: Arc<Cleanup>,
    name: String,
    resources: Mutex<Option<ContainerResources>>,
}

/// Released after the container is removed.
pub(crate) struct ContainerResources {
    pub(crate) bootstrap: BootstrapDir,
    /// The ids that the box's users are mapped to, if the daemon allocated them.
    pub(crate) range: Option<BoxIds>,
}

impl ContainerResources {
    fn found(host: &LocalHost, record: &serde_json::Value) -> io::Result<Self> {
        let Record { bootstrap, range } = Record::deserialize(record)?;
        let range = range.map(|range| host.mapping.claim(&range)).transpose()?;
        let bootstrap = BootstrapDir::leftover(host, &bootstrap)?;
        Ok(Self { bootstrap, range })
    }
}

/// The state in the record of the box.
#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(rename = "meeting")]
    bootstrap: String,
    range: Option<IdsRecord>,
}

impl Container {
    /// The container of a box that an earlier daemon created.
    pub(crate) fn found(
        host: &LocalHost,
        cleanup: &Arc<Cleanup>,
        name: &str,
        record: &serde_json::Value,
    ) -> Result<Self, AdoptError> {
        let resources = ContainerResources::found(host, record)
            .map_err(adopt_step("parse the record of its container"))?;
        Ok(Self::new(cleanup, name, Some(resources)))
    }

    /// A relayed box ends with its connection and has nothing else to keep.
    pub(crate) fn new(
        cleanup: &Arc<Cleanup>,
        name: &str,
        resources: Option<ContainerResources>,
    ) -> Self {
        Self {
            cleanup: Arc::clone(cleanup),
            name: name.to_owned(),
            resources: Mutex::new(resources),
        }
    }
}

impl BackendState for Container {
    fn remove(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let outcome = self.cleanup.remove(&self.name).await;
            drop(lock(&self.resources).take());
            outcome.map_err(|error| io::Error::other(with_causes(&error)))
        })
    }

    fn record(&self) -> serde_json::Value {
        let resources = lock(&self.resources);
        let Some(ContainerResources { bootstrap, range }) = &*resources else {
            return serde_json::Value::Null;
        };
        let record = Record {
            bootstrap: bootstrap.name().unwrap_or_default().to_owned(),
            range: range.as_ref().map(BoxIds::record),
        };
        serde_json::to_value(record).unwrap_or_default()
    }

    fn detach(&self) {
        if let Some(resources) = &*lock(&self.resources) {
            resources.bootstrap.detach();
        }
    }
}
