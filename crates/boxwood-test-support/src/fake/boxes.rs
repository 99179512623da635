//! A fake box: a temporary directory and the programs in it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use boxwood_api::SessionId;
use boxwood_backend::{BoxHandle, ExitStatus};
use boxwood_policy::{AdmittedMount, AdmittedSpec};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::sync::watch;

use super::life::Life;
use super::program::{self, Program};
use super::{lock, tree};

/// Where a path inside the box is on the host.
#[derive(Clone, Debug)]
struct PathMapping {
    /// Absolute, inside the box, without a slash at its end.
    box_path: String,
    host_path: PathBuf,
}

pub struct FakeBox {
    id: String,
    session: SessionId,
    backend: &'static str,
    root: Mutex<Option<TempDir>>,
    root_path: PathBuf,
    /// Longest first, and among equals the latest.
    mappings: Mutex<Vec<PathMapping>>,
    numbers: AtomicU64,
    programs: Mutex<BTreeMap<u64, Arc<Program>>>,
    /// Set when the first real program starts. Scripts run in this process; only real programs are searched in `/proc`.
    has_children: AtomicBool,
    record: Mutex<Option<Vec<u8>>>,
    /// The daemon that created the box, or adopted it last.
    owner: Mutex<Weak<Life>>,
    alive: watch::Sender<bool>,
    /// Whether its programs should be frozen.
    frozen: AtomicBool,
    /// Whether some of them may have been stopped. Locked during a freeze or a thaw.
    stopped: Mutex<bool>,
}

impl FakeBox {
    pub(super) fn create(
        spec: &AdmittedSpec,
        backend: &'static str,
        number: u64,
    ) -> io::Result<Self> {
        let root = tempfile::Builder::new().prefix("boxwood-fake-").tempdir()?;
        for directory in ["tmp", "home/box"] {
            fs::create_dir_all(root.path().join(directory))?;
        }
        fs::create_dir_all(root.path().join(spec.mount_path().trim_start_matches('/')))?;
        let mounts = spec.workspace().into_iter().chain(spec.extra_mounts());
        let mut mappings: Vec<_> = mounts.map(mapping_of).collect();
        mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.box_path.len()));
        Ok(Self {
            id: Self::id_of(number),
            session: spec.session().clone(),
            backend,
            root_path: root.path().to_owned(),
            root: Mutex::new(Some(root)),
            mappings: Mutex::new(mappings),
            numbers: AtomicU64::new(1),
            programs: Mutex::default(),
            has_children: AtomicBool::new(false),
            record: Mutex::default(),
            owner: Mutex::default(),
            alive: watch::Sender::new(true),
            frozen: AtomicBool::new(false),
            stopped: Mutex::default(),
        })
    }

    fn id_of(number: u64) -> String {
        format!("fake-{}-{number}", std::process::id())
    }

    /// The handle of the box with this number, also before it exists.
    pub(super) fn handle_of(backend: &str, number: u64) -> BoxHandle {
        handle(backend, Self::id_of(number))
    }

    pub fn handle(&self) -> BoxHandle {
        handle(self.backend, self.id.clone())
    }

    pub fn backend(&self) -> &'static str {
        self.backend
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Where `/` of the box is on the host, for tests that inspect its files.
    pub fn root(&self) -> &Path {
        &self.root_path
    }

    pub fn is_alive(&self) -> bool {
        *self.alive.borrow()
    }

    /// The record that its daemon stored for the next one.
    pub fn record(&self) -> Option<Vec<u8>> {
        lock(&self.record).clone()
    }

    /// Programs that run, and ended ones whose exit status is kept.
    pub fn programs(&self) -> usize {
        lock(&self.programs).len()
    }

    /// Ends the box as a crash would.
    pub fn die(&self) {
        // Set first, so that programs which end now report that the box is gone.
        self.alive.send_replace(false);
        let programs = std::mem::take(&mut *lock(&self.programs));
        for program in programs.values() {
            program.end_script(ExitStatus::BoxGone);
            program.release_kept();
        }
        if self.has_children.load(Ordering::Acquire) {
            tree::kill_marked(&program::box_mark(&self.id));
        }
    }

    /// Ends the running script of this name, also without a daemon. Returns false if there is none.
    pub fn end_program(&self, name: &str, code: i32) -> bool {
        let programs: Vec<_> = lock(&self.programs).values().cloned().collect();
        let found = programs
            .iter()
            .find(|program| program.is_called(name) && program.is_running());
        found.is_some_and(|program| program.end_script(ExitStatus::Code(code)))
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        self.die();
        let root = lock(&self.root).take();
        root.map_or(Ok(()), TempDir::close)
    }

    /// Ends every program. The box stays.
    pub(super) fn kill_all(&self) {
        let programs: Vec<_> = lock(&self.programs).values().cloned().collect();
        for program in programs {
            program.end_script(ExitStatus::Signal(Signal::KILL.as_raw()));
        }
        if self.has_children.load(Ordering::Acquire) {
            tree::kill_marked(&program::box_mark(&self.id));
        }
    }

    /// Whether its programs are frozen or about to be.
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }

    /// Sets the desired state of its programs. `settle` applies it.
    pub(super) fn set_frozen(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::Release);
    }

    /// Stops or continues every real program, as last requested: a freeze whose caller gave up must not overtake the
    /// thaw. Scripts run in this process and continue: a caller thaws the box before it sends them anything.
    pub(super) fn settle(&self) {
        let mut stopped = lock(&self.stopped);
        if !self.has_children.load(Ordering::Acquire) {
            return;
        }
        let mark = program::box_mark(&self.id);
        if self.is_frozen() {
            *stopped = true;
            tree::stop_marked(&mark, || self.is_frozen());
        }
        if *stopped && !self.is_frozen() {
            tree::signal_marked(&mark, Signal::CONT);
            *stopped = false;
        }
    }

    pub(super) fn remember(&self, record: &[u8]) {
        *lock(&self.record) = Some(record.to_owned());
    }

    pub(super) fn set_owner(&self, life: &Arc<Life>) {
        *lock(&self.owner) = Arc::downgrade(life);
    }

    pub(super) fn clear_owner(&self) {
        *lock(&self.owner) = Weak::new();
    }

    pub(super) fn is_owned_by(&self, life: &Arc<Life>) -> bool {
        std::ptr::eq(lock(&self.owner).as_ptr(), Arc::as_ptr(life))
    }

    pub(super) fn alive(&self) -> watch::Receiver<bool> {
        self.alive.subscribe()
    }

    pub(super) fn next_program(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn record_child(&self) {
        self.has_children.store(true, Ordering::Release);
    }

    pub(super) fn add(&self, program: Arc<Program>) {
        lock(&self.programs).insert(program.number(), program);
    }

    pub(super) fn all(&self) -> Vec<Arc<Program>> {
        lock(&self.programs).values().cloned().collect()
    }

    /// Drops what is kept for adoption: the daemon does not need the program any more.
    pub(super) fn release(&self, program: &Program) {
        program.release_kept();
        self.drop_if_ended(program);
    }

    /// Removes a program that has ended, unless it is kept.
    pub(super) fn drop_if_ended(&self, program: &Program) {
        if !program.is_running() && !program.is_kept() {
            lock(&self.programs).remove(&program.number());
        }
    }

    /// The host directory that contains a path, and the rest of the path below it.
    pub(super) fn locate<'a>(&self, path: &'a str) -> (PathBuf, &'a str) {
        for mapping in &*lock(&self.mappings) {
            if let Some(rest) = path.strip_prefix(&mapping.box_path)
                && (rest.is_empty() || rest.starts_with('/'))
            {
                return (mapping.host_path.clone(), rest.trim_start_matches('/'));
            }
        }
        (self.root_path.clone(), path.trim_start_matches('/'))
    }

    pub(super) fn mount(&self, mount: &AdmittedMount) {
        let mut mappings = lock(&self.mappings);
        mappings.insert(0, mapping_of(mount));
        // The sort is stable, so the later of two mounts at one path is found.
        mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.box_path.len()));
    }
}

impl Drop for FakeBox {
    fn drop(&mut self) {
        if self.is_alive() {
            self.die();
        }
    }
}

/// The socket does not exist: boxes are in this process.
fn handle(backend: &str, name: String) -> BoxHandle {
    BoxHandle {
        backend: backend.to_owned(),
        socket: PathBuf::from(format!("/nowhere/{name}.sock")),
        name,
    }
}

fn mapping_of(mount: &AdmittedMount) -> PathMapping {
    PathMapping {
        box_path: mount.mount_path().trim_end_matches('/').to_owned(),
        host_path: mount.source().real_path.clone(),
    }
}
