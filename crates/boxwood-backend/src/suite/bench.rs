//! The place one case works at: a backend, a description of its host, and a scratch directory.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;

use super::{HeldBox, Host, Wish};
use crate::{Backend, Progress, Sandbox, StartError};

pub struct Bench {
    backend: Arc<dyn Backend>,
    host: Host,
    scratch: TempDir,
    boxes: Mutex<Vec<Arc<dyn Sandbox>>>,
    started: AtomicU32,
}

/// No start takes longer, unless it hangs.
const START_LIMIT: Duration = Duration::from_secs(30);

impl Bench {
    pub fn new(backend: Arc<dyn Backend>, host: Host) -> anyhow::Result<Self> {
        let scratch = tempfile::Builder::new()
            .prefix("boxwood-suite-")
            .tempdir()
            .context("making a scratch directory")?;
        // World-readable on purpose: what keeps a box out of it must be the box, not its mode.
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755))?;
        Ok(Self {
            backend,
            host,
            scratch,
            boxes: Mutex::default(),
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

    /// A fresh directory on the host, open to everybody there.
    pub fn host_dir(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.scratch.path().join(name);
        std::fs::create_dir_all(&path)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777))?;
        Ok(path)
    }

    /// A file on the host that no box was given, readable and writable by everybody there.
    pub fn host_file(&self, name: &str, content: &str) -> anyhow::Result<PathBuf> {
        let path = self.scratch.path().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, content)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666))?;
        Ok(path)
    }

    pub async fn start(&self, wish: &Wish) -> anyhow::Result<HeldBox> {
        self.try_start(wish)
            .await?
            .context("the box was expected to start")
    }

    /// The outer error is the suite's own, the inner one the backend's answer.
    pub async fn try_start(&self, wish: &Wish) -> anyhow::Result<Result<HeldBox, StartError>> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let spec = wish.admit(&format!("suite-{number}"))?;
        self.start_admitted(&spec).await
    }

    pub(super) async fn start_admitted(
        &self,
        spec: &boxwood_policy::AdmittedSpec,
    ) -> anyhow::Result<Result<HeldBox, StartError>> {
        let started =
            tokio::time::timeout(START_LIMIT, self.backend.start(spec, &Progress::silent()))
                .await
                .context("the box did not start in time")?;
        Ok(started.map(|sandbox| {
            let mut boxes = self.lock();
            // A stopped one is nobody's any more; holding it would hold its descriptors.
            boxes.retain(|known| known.is_alive());
            boxes.push(Arc::clone(&sandbox));
            drop(boxes);
            HeldBox::new(sandbox)
        }))
    }

    /// Stops whatever a case left running.
    pub(super) async fn sweep(&self) -> anyhow::Result<()> {
        let boxes = std::mem::take(&mut *self.lock());
        for sandbox in boxes {
            tokio::time::timeout(START_LIMIT, sandbox.stop())
                .await
                .with_context(|| format!("box `{}` did not stop in time", sandbox.id()))?
                .with_context(|| format!("stopping box `{}`", sandbox.id()))?;
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<dyn Sandbox>>> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
