//! What every start needs, and how its boxes go away again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_agent::{Answer, BoxesError};
use boxwood_api::{ErrorCode, McpServerName, SessionId, SpecRequest};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::cache::Cache;
use super::copies;
use super::journal::Journal;
use super::locks::Locks;
use super::run_record::RunRecord;
use super::store::Store;
use super::turns::Turns;
use super::{HostingError, HostingSettings, MadeBox, OwnMount, Runtime};

pub(crate) struct Kit {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) settings: HostingSettings,
    pub(crate) store: Store,
    pub(crate) cache: Cache,
    pub(crate) journal: Journal,
    pub(crate) turns: Turns,
    pub(crate) tests: Turns,
    /// Sessions of tests and installs, each held until its box is gone or could not be removed.
    pub(crate) temporary: Locks,
    /// Copies of directories that servers work on.
    pub(crate) work: PathBuf,
    /// Held while one is made or removed.
    pub(crate) copies: Locks,
    pub(crate) copy_room: Arc<Semaphore>,
    /// Installs that somebody is about to use or uses.
    pub(crate) uses: Mutex<BTreeMap<String, usize>>,
    /// Installs that go when the last of those is done with them.
    pub(crate) unwanted: Mutex<BTreeSet<String>>,
    /// Boxes whose install is made anew at their next start.
    pub(crate) anew: Mutex<BTreeSet<SessionId>>,
    /// Work that goes on after its caller is gone.
    pub(crate) tasks: TaskTracker,
}

impl Kit {
    pub(crate) fn open(
        runtime: Arc<dyn Runtime>,
        settings: HostingSettings,
    ) -> Result<Arc<Self>, HostingError> {
        let store = Store::open(&settings.directory)?;
        let storage = |source| HostingError::Storage {
            doing: "opening the directory of hosted MCP servers",
            source,
        };
        let work = settings.directory.join("work");
        std::fs::create_dir_all(&work).map_err(storage)?;
        Ok(Arc::new(Self {
            cache: Cache::open(
                &settings.directory.join("cache"),
                &settings.directory.join("sizes"),
            )
            .map_err(storage)?,
            journal: Journal::open(&settings.directory.join("boxes")).map_err(storage)?,
            turns: Turns::new(settings.starts_at_once),
            tests: Turns::new(settings.max_tests),
            temporary: Locks::default(),
            copies: Locks::default(),
            copy_room: Arc::new(Semaphore::new(copies::AT_ONCE)),
            uses: Mutex::default(),
            unwanted: Mutex::default(),
            anew: Mutex::default(),
            tasks: TaskTracker::new(),
            runtime,
            settings,
            store,
            work,
        }))
    }

    /// Puts the box's name down before it is made.
    pub(crate) async fn create_box(
        &self,
        session: &SessionId,
        spec: SpecRequest,
        mounts: Vec<OwnMount>,
    ) -> Answer<MadeBox> {
        let (journal, ours) = (self.journal.clone(), session.clone());
        blocking(move || journal.note(&ours))
            .await
            .map_err(|error| own_trouble(format!("noting a box in the journal failed: {error}")))?;
        self.runtime.create(spec, mounts).await
    }

    /// It is gone afterwards, or the journal still knows about it.
    pub(crate) async fn delete_box(&self, session: &SessionId) -> Answer<()> {
        self.patiently("removing a box", self.runtime.delete(session))
            .await?;
        let (journal, ours) = (self.journal.clone(), session.clone());
        if let Err(error) = blocking(move || journal.forget(&ours)).await {
            tracing::warn!(%session, %error, "a removed box stays in the journal");
        }
        Ok(())
    }

    /// Outlives its caller, but not the daemon's patience at its end.
    pub(crate) fn later(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.tasks.spawn_on(work, &runtime);
        }
    }

    /// No call to the runtime may hold a server up for ever.
    pub(crate) async fn patiently<T>(
        &self,
        doing: &str,
        call: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        let patience = self.settings.runtime_patience;
        tokio::time::timeout(patience, call)
            .await
            .unwrap_or_else(|_| Err(too_slow(doing, patience)))
    }

    pub(crate) fn run_record(&self, name: &McpServerName) -> Option<RunRecord> {
        self.store.greeting(name)
    }
}

/// File work has no place on the runtime's own threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn own_trouble(message: String) -> BoxesError {
    BoxesError {
        code: ErrorCode::InternalError,
        message,
        hint: Some("look at the disk of the daemon's state directory".to_owned()),
        reached: true,
    }
}

fn too_slow(doing: &str, patience: Duration) -> BoxesError {
    BoxesError {
        code: ErrorCode::Timeout,
        message: format!("{doing} took longer than {} s", patience.as_secs()),
        hint: None,
        reached: true,
    }
}
