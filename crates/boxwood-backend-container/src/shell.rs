//! What an engine and the daemon keep of a box beside its processes.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boxwood_backend::{AdoptError, BoxFuture};
use boxwood_local::{BoxIds, IdsRecord, Left, LocalHost, Meeting, Shell};
use serde::{Deserialize, Serialize};

use crate::janitor::Janitor;

/// The container, and what goes with it.
pub(crate) struct Container {
    janitor: Arc<Janitor>,
    name: String,
    rest: Mutex<Option<Rest>>,
}

/// Let go of when the container is gone.
struct Rest {
    place: Place,
    /// The ids that the engine maps the box's users to, where they are of our choosing.
    range: Option<BoxIds>,
}

/// Where init met the daemon that made the box.
enum Place {
    Arranged(Meeting),
    Found { name: String, left: Left },
}

/// For the next daemon.
#[derive(Serialize, Deserialize)]
struct Record {
    meeting: String,
    range: Option<IdsRecord>,
}

impl Container {
    pub(crate) fn made(
        janitor: &Arc<Janitor>,
        name: &str,
        meeting: Meeting,
        range: Option<BoxIds>,
    ) -> Self {
        Self::new(janitor, name, Place::Arranged(meeting), range)
    }

    /// That of a box which an earlier daemon made.
    pub(crate) fn found(
        host: &LocalHost,
        janitor: &Arc<Janitor>,
        name: &str,
        record: &serde_json::Value,
    ) -> Result<Self, AdoptError> {
        let failed = |source: io::Error| AdoptError::Step {
            step: "read what was written down of its container".to_owned(),
            source,
        };
        let Record { meeting, range } =
            Record::deserialize(record).map_err(|error| failed(error.into()))?;
        let range = range.map(|range| host.mapping.claim(&range)).transpose();
        let range = range.map_err(failed)?;
        let left = Meeting::found(host, &meeting).map_err(failed)?;
        let place = Place::Found {
            name: meeting,
            left,
        };
        Ok(Self::new(janitor, name, place, range))
    }

    fn new(janitor: &Arc<Janitor>, name: &str, place: Place, range: Option<BoxIds>) -> Self {
        Self {
            janitor: Arc::clone(janitor),
            name: name.to_owned(),
            rest: Mutex::new(Some(Rest { place, range })),
        }
    }

    fn rest(&self) -> MutexGuard<'_, Option<Rest>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shell for Container {
    fn remove(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let outcome = self.janitor.remove(&self.name).await;
            drop(self.rest().take());
            outcome.map_err(io::Error::other)
        })
    }

    fn record(&self) -> serde_json::Value {
        let rest = self.rest();
        let Some(Rest { place, range }) = &*rest else {
            return serde_json::Value::Null;
        };
        let meeting = match place {
            Place::Arranged(meeting) => meeting.name().unwrap_or_default(),
            Place::Found { name, .. } => name,
        };
        let record = Record {
            meeting: meeting.to_owned(),
            range: range.as_ref().map(BoxIds::record),
        };
        serde_json::to_value(record).unwrap_or_default()
    }

    fn let_go(&self) {
        match self.rest().as_ref().map(|rest| &rest.place) {
            Some(Place::Arranged(meeting)) => meeting.let_go(),
            Some(Place::Found { left, .. }) => left.let_go(),
            None => {}
        }
    }
}
