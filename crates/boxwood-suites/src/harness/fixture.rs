//! What one case uses: a backend, a description of its host, and a scratch directory.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use boxwood_api::Mechanism;
use boxwood_policy::BoxUser;
use tempfile::TempDir;

use super::images::Imported;
use crate::{BoxSpec, Host, TestBox};
use boxwood_backend::{Backend, Progress, Sandbox, StartError};

pub struct Fixture {
    backend: Arc<dyn Backend>,
    host: Host,
    scratch: TempDir,
    boxes: Mutex<Vec<Arc<dyn Sandbox>>>,
    imported: Imported,
    started: AtomicU32,
}

/// No start takes longer, unless it hangs.
const START_LIMIT: Duration = Duration::from_secs(30);

impl Fixture {
    pub fn new(backend: Arc<dyn Backend>, host: Host) -> anyhow::Result<Self> {
        let scratch = tempfile::Builder::new()
            .prefix("boxwood-suite-")
            .tempdir()
            .context("making a scratch directory")?;
        // World-readable, so that the isolation of the box is tested and not the mode of the directory.
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755))?;
        Ok(Self {
            backend,
            host,
            scratch,
            boxes: Mutex::default(),
            imported: Imported::default(),
            started: AtomicU32::new(0),
        })
    }

    pub fn backend(&self) -> &dyn Backend {
        self.backend.as_ref()
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// A new directory on the host, accessible to all users.
    pub fn host_dir(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.scratch.path().join(name);
        std::fs::create_dir_all(&path)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777))?;
        Ok(path)
    }

    /// A file on the host that no box has, readable and writable by all users.
    pub fn host_file(&self, name: &str, content: &str) -> anyhow::Result<PathBuf> {
        let path = self.scratch.path().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, content)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666))?;
        Ok(path)
    }

    pub async fn start(&self, spec: &BoxSpec) -> anyhow::Result<TestBox> {
        self.try_start(spec)
            .await?
            .context("the box was expected to start")
    }

    /// Checks a request for root on a host that does not expect it to work: it is refused, or commands are root in the
    /// user namespace of the box, never the host's root.
    pub(crate) async fn assert_no_root_inside(&self) -> anyhow::Result<()> {
        let spec = BoxSpec::new().user(BoxUser::Root);
        let test_box = match self.try_start(&spec).await? {
            Ok(test_box) => test_box,
            Err(StartError::Unsupported { .. } | StartError::Missing { .. }) => return Ok(()),
            Err(other) => return Err(other).context("refusing root inside"),
        };
        ensure!(
            test_box.sandbox().label().has(Mechanism::UserNamespace),
            "root inside without a user namespace"
        );
        test_box.assert_isolated().await
    }

    /// The outer error is one of the test itself, the inner one is the backend's.
    pub async fn try_start(&self, spec: &BoxSpec) -> anyhow::Result<Result<TestBox, StartError>> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let spec = self.imported.resolve(self, spec).await?;
        let spec = spec.admit(&format!("suite-{number}"))?;
        self.start_admitted(&spec).await
    }

    pub(crate) async fn start_admitted(
        &self,
        spec: &boxwood_policy::AdmittedSpec,
    ) -> anyhow::Result<Result<TestBox, StartError>> {
        let started = tokio::time::timeout(
            START_LIMIT,
            self.backend.start(
                spec,
                &Progress::silent(),
                &boxwood_backend::StartRecorder::none(),
            ),
        )
        .await
        .context("the box did not start in time")?;
        Ok(started.map(|sandbox| self.hold(sandbox)))
    }

    /// Stops the box at the latest when the fixture is closed.
    pub(crate) fn hold(&self, sandbox: Arc<dyn Sandbox>) -> TestBox {
        let mut boxes = self.lock();
        // A stopped box is dropped, to close its descriptors.
        boxes.retain(|known| known.is_alive());
        boxes.push(Arc::clone(&sandbox));
        drop(boxes);
        TestBox::new(sandbox)
    }

    /// Leaves every box running for the next daemon, and shuts the backend down.
    pub(crate) async fn detach_boxes(&self) {
        let boxes = std::mem::take(&mut *self.lock());
        for sandbox in &boxes {
            sandbox.detach();
        }
        drop(boxes);
        self.backend.shutdown().await;
    }

    /// Stops all boxes, removes the imported images, and shuts the backend down.
    pub async fn close(&self) -> anyhow::Result<()> {
        let swept = self.sweep().await;
        self.backend.shutdown().await;
        swept
    }

    /// Stops the boxes that a case left running, and removes the images that it imported.
    pub(crate) async fn sweep(&self) -> anyhow::Result<()> {
        let boxes = std::mem::take(&mut *self.lock());
        let mut outcome = Ok(());
        for sandbox in boxes {
            let stopped = tokio::time::timeout(START_LIMIT, sandbox.stop()).await;
            let stopped = match stopped {
                Ok(stopped) => stopped.with_context(|| format!("stopping box `{}`", sandbox.id())),
                Err(late) => Err(late)
                    .with_context(|| format!("box `{}` did not stop in time", sandbox.id())),
            };
            // One failure does not leave the other boxes running.
            outcome = outcome.and(stopped);
        }
        outcome.and(self.imported.remove(self).await)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<dyn Sandbox>>> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
