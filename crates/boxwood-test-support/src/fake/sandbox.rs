//! One pretended box: a temporary directory and the programs started for it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use boxwood_api::{IsolationLabel, Mechanism, MissingMechanism, NetworkIsolation, SessionId};
use boxwood_backend::{
    BoxFuture, FileAnswer, FileCall, FileError, Process, Sandbox, SpawnError, SpawnRequest,
    StopError,
};
use boxwood_policy::AdmittedSpec;
use tempfile::TempDir;
use tokio::sync::watch;

use super::{files, lock, program, tree};

/// Where a path inside the box is on the host.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Absolute, inside the box, without a slash at its end; empty for the root.
    pub(super) inside: String,
    pub(super) outside: PathBuf,
}

pub struct FakeSandbox {
    id: String,
    session: SessionId,
    label: IsolationLabel,
    root: Mutex<Option<TempDir>>,
    /// Longest first; the root is the last.
    places: Vec<Place>,
    programs: AtomicU64,
    alive: watch::Sender<bool>,
}

impl FakeSandbox {
    pub(super) fn create(spec: &AdmittedSpec, number: u64) -> io::Result<Self> {
        let root = tempfile::Builder::new().prefix("boxwood-fake-").tempdir()?;
        for directory in ["tmp", "home/box"] {
            fs::create_dir_all(root.path().join(directory))?;
        }
        fs::create_dir_all(root.path().join(spec.mount_path().trim_start_matches('/')))?;
        let mounts = spec.workspace().into_iter().chain(spec.extra_mounts());
        let mut places: Vec<_> = mounts
            .map(|mount| Place {
                inside: mount.mount_path().trim_end_matches('/').to_owned(),
                outside: mount.source().real_path.clone(),
            })
            .collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.inside.len()));
        places.push(Place {
            inside: String::new(),
            outside: root.path().to_owned(),
        });
        Ok(Self {
            id: format!("fake-{}-{number}", std::process::id()),
            session: spec.session().clone(),
            label: label(),
            root: Mutex::new(Some(root)),
            places,
            programs: AtomicU64::new(1),
            alive: watch::Sender::new(true),
        })
    }

    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Where `/` of the box is on the host, for tests that look behind the curtain.
    pub fn root(&self) -> &Path {
        self.places
            .last()
            .map_or(Path::new("/"), |place| place.outside.as_path())
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
    pub(super) fn locate<'a>(&self, path: &'a str) -> (&Path, &'a str) {
        for place in &self.places {
            if let Some(rest) = path.strip_prefix(&place.inside)
                && (rest.is_empty() || rest.starts_with('/'))
            {
                return (&place.outside, rest.trim_start_matches('/'));
            }
        }
        (self.root(), path.trim_start_matches('/'))
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

    fn stop(&self) -> BoxFuture<'_, Result<(), StopError>> {
        Box::pin(self.tear_down())
    }
}
