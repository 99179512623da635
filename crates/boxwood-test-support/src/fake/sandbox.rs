//! One pretended box: a temporary directory and the programs started for it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use boxwood_api::{IsolationLabel, Mechanism, MissingMechanism, NetworkIsolation, SessionId};
use boxwood_backend::{
    BoxFuture, ControlError, FileAnswer, FileCall, FileError, MountError, Process, Sandbox,
    SpawnError, SpawnRequest, StopError,
};
use boxwood_policy::{AdmittedMount, AdmittedSpec};
use tempfile::TempDir;
use tokio::sync::watch;

use super::{Mounting, files, lock, program, tree};

/// Where a path inside the box is on the host.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Absolute, inside the box, without a slash at its end.
    pub(super) inside: String,
    pub(super) outside: PathBuf,
}

pub struct FakeSandbox {
    id: String,
    session: SessionId,
    label: IsolationLabel,
    root: Mutex<Option<TempDir>>,
    root_path: PathBuf,
    /// Longest first, and among equals the latest.
    places: Mutex<Vec<Place>>,
    /// `None`: takes no mounts while it lives.
    mounting: Option<Arc<Mounting>>,
    programs: AtomicU64,
    alive: watch::Sender<bool>,
}

impl FakeSandbox {
    pub(super) fn create(
        spec: &AdmittedSpec,
        number: u64,
        mounting: Option<Arc<Mounting>>,
    ) -> io::Result<Self> {
        let root = tempfile::Builder::new().prefix("boxwood-fake-").tempdir()?;
        for directory in ["tmp", "home/box"] {
            fs::create_dir_all(root.path().join(directory))?;
        }
        fs::create_dir_all(root.path().join(spec.mount_path().trim_start_matches('/')))?;
        let mounts = spec.workspace().into_iter().chain(spec.extra_mounts());
        let mut places: Vec<_> = mounts.map(place_of).collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.inside.len()));
        Ok(Self {
            id: format!("fake-{}-{number}", std::process::id()),
            session: spec.session().clone(),
            label: label(),
            root_path: root.path().to_owned(),
            root: Mutex::new(Some(root)),
            places: Mutex::new(places),
            mounting,
            programs: AtomicU64::new(1),
            alive: watch::Sender::new(true),
        })
    }

    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Where `/` of the box is on the host, for tests that look behind the curtain.
    pub fn root(&self) -> &Path {
        &self.root_path
    }

    /// Ends the box as a crash would.
    pub fn die(&self) {
        // First the flag: a program that sees its end now knows that the box went with it.
        self.alive.send_replace(false);
        tree::kill_marked(&program::box_mark(&self.id));
    }

    pub(super) fn alive(&self) -> watch::Receiver<bool> {
        self.alive.subscribe()
    }

    /// The place that holds a path, and the rest of the path below it.
    pub(super) fn locate<'a>(&self, path: &'a str) -> (PathBuf, &'a str) {
        for place in &*lock(&self.places) {
            if let Some(rest) = path.strip_prefix(&place.inside)
                && (rest.is_empty() || rest.starts_with('/'))
            {
                return (place.outside.clone(), rest.trim_start_matches('/'));
            }
        }
        (self.root_path.clone(), path.trim_start_matches('/'))
    }

    async fn join(&self, mount: &AdmittedMount) -> Result<(), MountError> {
        let Some(mounting) = &self.mounting else {
            return Err(MountError::Unsupported);
        };
        let delay = *lock(&mounting.delay);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if !self.is_alive() {
            return Err(MountError::Gone);
        }
        if let Some(why) = lock(&mounting.failure).take() {
            return Err(MountError::Step {
                mount_path: mount.mount_path().to_owned(),
                step: "the test asked for it".to_owned(),
                source: io::Error::other(why),
            });
        }
        mounting.count.fetch_add(1, Ordering::AcqRel);
        let mut places = lock(&self.places);
        places.insert(0, place_of(mount));
        // Stable, so of two at one place the later one is found.
        places.sort_by_key(|place| std::cmp::Reverse(place.inside.len()));
        Ok(())
    }

    async fn tear_down(&self) -> Result<(), StopError> {
        self.alive.send_replace(false);
        let mark = program::box_mark(&self.id);
        let root = lock(&self.root).take();
        let removing = tokio::task::spawn_blocking(move || {
            tree::kill_marked(&mark);
            root.map_or(Ok(()), TempDir::close)
        });
        let failed = |source| StopError {
            step: "removing the box's directory".to_owned(),
            source,
        };
        match removing.await {
            Ok(outcome) => outcome.map_err(failed),
            Err(error) => Err(failed(io::Error::other(error))),
        }
    }
}

fn place_of(mount: &AdmittedMount) -> Place {
    Place {
        inside: mount.mount_path().trim_end_matches('/').to_owned(),
        outside: mount.source().real_path.clone(),
    }
}

impl Drop for FakeSandbox {
    fn drop(&mut self) {
        if self.is_alive() {
            self.die();
        }
    }
}

fn label() -> IsolationLabel {
    let missing = Mechanism::ALL
        .into_iter()
        .map(|mechanism| MissingMechanism {
            mechanism,
            why: "the fake backend has no isolation; it exists for tests".to_owned(),
        })
        .collect();
    IsolationLabel {
        backend: "fake (no isolation)".to_owned(),
        runtime: None,
        network: NetworkIsolation::Host,
        in_force: Vec::new(),
        missing,
    }
}

impl Sandbox for FakeSandbox {
    fn id(&self) -> &str {
        &self.id
    }

    fn label(&self) -> &IsolationLabel {
        &self.label
    }

    fn spawn(&self, request: SpawnRequest) -> BoxFuture<'_, Result<Process, SpawnError>> {
        Box::pin(async move {
            if !self.is_alive() {
                return Err(SpawnError::Gone);
            }
            let number = self.programs.fetch_add(1, Ordering::Relaxed);
            program::start(self, request, number).await
        })
    }

    fn file(&self, call: FileCall) -> BoxFuture<'_, Result<FileAnswer, FileError>> {
        Box::pin(async move {
            if !self.is_alive() {
                return Err(FileError::Gone);
            }
            files::answer(self, call)
        })
    }

    fn mount<'a>(&'a self, mount: &'a AdmittedMount) -> BoxFuture<'a, Result<(), MountError>> {
        Box::pin(self.join(mount))
    }

    fn is_alive(&self) -> bool {
        *self.alive.borrow()
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        let mut alive = self.alive();
        Box::pin(async move {
            // A closed channel means that the box itself is gone.
            let _ = alive.wait_for(|alive| !alive).await;
        })
    }

    fn remember<'a>(&'a self, _record: &'a [u8]) -> BoxFuture<'a, Result<(), ControlError>> {
        Box::pin(async { Ok(()) })
    }

    fn let_go(&self) {}

    fn freeze(&self) -> BoxFuture<'_, Result<bool, ControlError>> {
        Box::pin(async { Ok(false) })
    }

    fn thaw(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async { Ok(()) })
    }

    fn stop(&self) -> BoxFuture<'_, Result<(), StopError>> {
        Box::pin(self.tear_down())
    }
}
