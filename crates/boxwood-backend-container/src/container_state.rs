//! What the engine and the daemon keep of a box besides its processes.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boxwood_backend::{AdoptError, BoxFuture};
use boxwood_local::{
    BackendState, BootstrapDir, BoxIds, IdsRecord, LeftoverBootstrapDir, LocalHost,
};
use serde::{Deserialize, Serialize};

use crate::cleanup::Cleanup;

pub(crate) struct Container {
    cleanup: Arc<Cleanup>,
    name: String,
    rest: Mutex<Option<Rest>>,
}

/// Released after the container is removed.
struct Rest {
    location: Location,
    /// The ids that the box's users are mapped to, if the daemon allocated them.
    range: Option<BoxIds>,
}

/// The directory of the bootstrap socket.
enum Location {
    Created(BootstrapDir),
    Found {
        name: String,
        left: LeftoverBootstrapDir,
    },
}

/// The state in the record of the box.
#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(rename = "meeting")]
    bootstrap: String,
    range: Option<IdsRecord>,
}

impl Container {
    pub(crate) fn created(
        cleanup: &Arc<Cleanup>,
        name: &str,
        bootstrap: BootstrapDir,
        range: Option<BoxIds>,
    ) -> Self {
        Self::new(cleanup, name, Location::Created(bootstrap), range)
    }

    /// The container of a box that an earlier daemon created.
    pub(crate) fn found(
        host: &LocalHost,
        cleanup: &Arc<Cleanup>,
        name: &str,
        record: &serde_json::Value,
    ) -> Result<Self, AdoptError> {
        let failed = |source: io::Error| AdoptError::Step {
            step: "parse the record of its container".to_owned(),
            source,
        };
        let Record { bootstrap, range } =
            Record::deserialize(record).map_err(|error| failed(error.into()))?;
        let range = range.map(|range| host.mapping.claim(&range)).transpose();
        let range = range.map_err(failed)?;
        let left = BootstrapDir::leftover(host, &bootstrap).map_err(failed)?;
        let location = Location::Found {
            name: bootstrap,
            left,
        };
        Ok(Self::new(cleanup, name, location, range))
    }

    fn new(cleanup: &Arc<Cleanup>, name: &str, location: Location, range: Option<BoxIds>) -> Self {
        Self {
            cleanup: Arc::clone(cleanup),
            name: name.to_owned(),
            rest: Mutex::new(Some(Rest { location, range })),
        }
    }

    fn rest(&self) -> MutexGuard<'_, Option<Rest>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackendState for Container {
    fn remove(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let outcome = self.cleanup.remove(&self.name).await;
            drop(self.rest().take());
            outcome.map_err(io::Error::other)
        })
    }

    fn record(&self) -> serde_json::Value {
        let rest = self.rest();
        let Some(Rest { location, range }) = &*rest else {
            return serde_json::Value::Null;
        };
        let bootstrap = match location {
            Location::Created(bootstrap) => bootstrap.name().unwrap_or_default(),
            Location::Found { name, .. } => name,
        };
        let record = Record {
            bootstrap: bootstrap.to_owned(),
            range: range.as_ref().map(BoxIds::record),
        };
        serde_json::to_value(record).unwrap_or_default()
    }

    fn detach(&self) {
        match self.rest().as_ref().map(|rest| &rest.location) {
            Some(Location::Created(bootstrap)) => bootstrap.detach(),
            Some(Location::Found { left, .. }) => left.detach(),
            None => {}
        }
    }
}
