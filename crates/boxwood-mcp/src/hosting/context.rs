//! State shared by all supervisors, and creation and removal of their boxes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_agent::{Answer, BoxesError};
use boxwood_api::{ErrorCode, SessionId};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::boxes::keyed_locks::Locks;
use super::cache::Cache;
use super::definitions::store::Store;
use super::{HostingError, HostingSettings, Runtime};

const MAX_PERMITS: usize = 1_000;
/// Concurrent operations on host directories. An unresponsive file system blocks at most this many threads.
pub(crate) const MAX_HOST_IO: usize = 16;

pub(crate) struct HostContext {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) settings: HostingSettings,
    pub(crate) store: Store,
    pub(crate) cache: Cache,
    /// Held while a server starts, so that many starts do not slow each other down until all of them time out.
    pub(crate) start_permits: Semaphore,
    pub(crate) test_permits: Semaphore,
    /// Sessions of tests and installs. A lock is held until the box is removed or its removal has failed.
    pub(crate) temporary: Locks,
    pub(crate) host_io_permits: Arc<Semaphore>,
    /// Reference counts of cached installs.
    pub(crate) uses: Mutex<BTreeMap<String, usize>>,
    /// Tasks that outlive their caller.
    pub(crate) tasks: TaskTracker,
}

impl HostContext {
    pub(crate) fn open(
        runtime: Arc<dyn Runtime>,
        settings: HostingSettings,
    ) -> Result<Arc<Self>, HostingError> {
        let store = Store::open(&settings.directory)?;
        let storage = |source| HostingError::Storage {
            doing: "opening the directory of hosted MCP servers",
            source,
        };
        Ok(Arc::new(Self {
            cache: Cache::open(
                &settings.directory.join("cache"),
                &settings.directory.join("sizes"),
            )
            .map_err(storage)?,
            start_permits: Semaphore::new(settings.starts_at_once.clamp(1, MAX_PERMITS)),
            test_permits: Semaphore::new(settings.max_tests.clamp(1, MAX_PERMITS)),
            temporary: Locks::default(),
            host_io_permits: Arc::new(Semaphore::new(MAX_HOST_IO)),
            uses: Mutex::default(),
            tasks: TaskTracker::new(),
            runtime,
            settings,
            store,
        }))
    }

    /// A missing box is not an error.
    pub(crate) async fn delete_box(&self, session: &SessionId) -> Answer<()> {
        self.with_timeout("removing a box", self.runtime.delete(session))
            .await
    }

    /// Spawns a task that outlives its caller. [`super::Hosting::close`] waits for it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.tasks.spawn_on(work, &runtime);
        }
    }

    /// Bounds calls to the runtime, so that none blocks a server forever.
    pub(crate) async fn with_timeout<T>(
        &self,
        doing: &str,
        call: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        let timeout = self.settings.runtime_timeout;
        tokio::time::timeout(timeout, call)
            .await
            .unwrap_or_else(|_| Err(timeout_error(doing, timeout)))
    }

    /// Runs file system work on host directories. Their file system may never respond and block the thread, so the
    /// number of these threads is limited.
    pub(crate) async fn on_host<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let permit = Arc::clone(&self.host_io_permits).acquire_owned().await;
        let permit = permit.map_err(io::Error::other)?;
        blocking(move || {
            let _permit = permit;
            Ok(work())
        })
        .await
    }
}

/// Changes the store off the async threads.
pub(crate) async fn storing<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> Result<T, HostingError> + Send + 'static,
) -> Result<T, HostingError> {
    let result = tokio::task::spawn_blocking(work).await;
    result.unwrap_or_else(|error| {
        let source = io::Error::other(error);
        Err(HostingError::Storage { doing, source })
    })
}

/// Runs file system work off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn timeout_error(doing: &str, timeout: Duration) -> BoxesError {
    BoxesError {
        code: ErrorCode::Timeout,
        message: format!("{doing} took longer than {} s", timeout.as_secs()),
        hint: None,
        reached: true,
    }
}
