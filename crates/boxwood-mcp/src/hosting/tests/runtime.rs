//! A fake runtime. Boxes are entries in a map, and processes are real or tasks.
//!
//! Paths in the box are replaced by the host paths of its mounts.

use std::collections::{BTreeMap, HashMap};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use boxwood_agent::{Answer, Begun, BoxesError, Command, Running};
use boxwood_api::{
    ErrorCode, ExecExit, ExecStatus, IsolationLabel, McpBoxSettings, MountMode, Network,
    NetworkIsolation, ProcessId, ProcessInfo, ProcessSpec, SessionId, SessionInfo, SpecRequest,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::io::AsyncReadExt as _;

use super::program::{Pipes, Process};
use crate::hosting::{
    BoxAvailability, BoxKind, CreatedBox, HostingMount, ProcessExit, ProcessIo, Runtime,
};

type Program = Arc<dyn Fn(Pipes) -> BoxFuture<'static, ProcessExit> + Send + Sync>;

#[derive(Default)]
pub(super) struct TestRuntime {
    state: Mutex<State>,
    pub(super) created: AtomicUsize,
    /// Duration of box creation.
    pub(super) create_takes: Mutex<Duration>,
    /// Duration of box removal.
    pub(super) delete_takes: Mutex<Duration>,
    /// Number of box removals that fail from now on.
    pub(super) delete_fails: AtomicUsize,
    /// Duration of stopping a process.
    pub(super) stop_takes: Mutex<Duration>,
    /// Duration of attaching to a process.
    pub(super) attach_takes: Mutex<Duration>,
    /// Number of attach attempts that fail from now on.
    pub(super) attach_fails: AtomicUsize,
    /// Another reader is attached to every process.
    pub(super) has_other_reader: AtomicBool,
    /// Every install fails, as without a network.
    pub(super) install_fails: AtomicBool,
    /// Creating a box panics.
    pub(super) panics: AtomicBool,
    /// Notices of every box.
    pub(super) notices: Mutex<Vec<String>>,
    /// Image of boxes without one.
    pub(super) image: Mutex<String>,
}

#[derive(Default)]
struct State {
    availability: Option<BoxAvailability>,
    sessions: BTreeMap<SessionId, Session>,
    programs: HashMap<String, Program>,
    executed: Vec<SpecRequest>,
    requested: Vec<(SpecRequest, Vec<HostingMount>)>,
    refuses: Option<BoxesError>,
    /// Sessions of another client.
    foreign: Vec<SessionId>,
}

struct Session {
    incarnation: u64,
    spec: SpecRequest,
    mounts: Vec<HostingMount>,
    scratch: Arc<tempfile::TempDir>,
    processes: BTreeMap<ProcessId, Arc<Process>>,
}

impl TestRuntime {
    /// Registers a command that runs as a task.
    pub(super) fn program<F>(&self, name: &str, run: impl Fn(Pipes) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ProcessExit> + Send + 'static,
    {
        let run: Program = Arc::new(move |pipes| run(pipes).boxed());
        self.state().programs.insert(name.to_owned(), run);
    }

    pub(super) fn set_availability(&self, availability: BoxAvailability) {
        self.state().availability = Some(availability);
    }

    pub(super) fn refuses(&self, error: Option<BoxesError>) {
        self.state().refuses = error;
    }

    /// Another client creates this session.
    pub(super) fn occupy(&self, session: &str) {
        let session = SessionId::new(session).expect("an id");
        self.state().foreign.push(session);
    }

    pub(super) fn names(&self) -> Vec<String> {
        let state = self.state();
        state.sessions.keys().map(ToString::to_string).collect()
    }

    pub(super) fn requested(&self) -> Vec<(SpecRequest, Vec<HostingMount>)> {
        self.state().requested.clone()
    }

    pub(super) fn executed(&self) -> Vec<SpecRequest> {
        self.state().executed.clone()
    }

    pub(super) fn process(&self, session: &str, process: &str) -> Option<Arc<Process>> {
        let session = SessionId::new(session).expect("an id");
        let process = ProcessId::new(process).expect("an id");
        let state = self.state();
        state
            .sessions
            .get(&session)?
            .processes
            .get(&process)
            .cloned()
    }

    pub(super) fn running(&self, session: &str) -> Vec<String> {
        let session = SessionId::new(session).expect("an id");
        let state = self.state();
        let processes = state.sessions.get(&session).map(|found| &found.processes);
        processes
            .into_iter()
            .flatten()
            .filter(|(_, process)| process.is_running())
            .map(|(id, _)| id.to_string())
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    fn find(&self, session: &SessionId, process: &ProcessId) -> Answer<Arc<Process>> {
        let state = self.state();
        let found = state
            .sessions
            .get(session)
            .ok_or_else(|| missing(session))?;
        let process = found.processes.get(process).cloned();
        process.ok_or_else(|| missing(session))
    }
}

/// Other scripts only check an install.
pub(super) fn is_install(script: &SpecRequest) -> bool {
    script.cmd.contains("set -eu")
}

impl Session {
    /// Replaces paths in the box by host paths.
    fn on_the_host(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for mount in &self.spec.extra_mounts {
            text = text.replace(&mount.mount_path, &mount.host_path);
        }
        for mount in &self.mounts {
            text = text.replace(&mount.mount_path, &mount.host_path.display().to_string());
        }
        let workspace = match &self.spec.host_path {
            Some(path) => path.clone(),
            None => self.scratch.path().display().to_string(),
        };
        // A mounted workspace was replaced above.
        text.replace("/workspace", &workspace)
    }

    fn cwd(&self, cwd: &str) -> std::path::PathBuf {
        self.on_the_host(cwd).into()
    }
}

impl Runtime for TestRuntime {
    fn availability<'a>(&'a self, _: &'a McpBoxSettings) -> BoxFuture<'a, BoxAvailability> {
        let availability = self
            .state()
            .availability
            .clone()
            .unwrap_or(BoxAvailability::Ready);
        std::future::ready(availability).boxed()
    }

    fn check_policy(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<bool>> {
        let refused = self.state().refuses.clone();
        std::future::ready(refused.map_or(Ok(spec.host_path.is_some()), Err)).boxed()
    }

    fn resolve(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<BoxKind>> {
        let kind = BoxKind {
            image: spec
                .image
                .unwrap_or_else(|| self.image.lock().expect("no panic").clone()),
            backend: "test".to_owned(),
            memory_mb: spec.memory_mb.unwrap_or(512),
        };
        std::future::ready(Ok(kind)).boxed()
    }

    fn create(
        &self,
        spec: SpecRequest,
        mounts: Vec<HostingMount>,
    ) -> BoxFuture<'_, Answer<CreatedBox>> {
        async move {
            let takes = *self.create_takes.lock().expect("no panic");
            tokio::time::sleep(takes).await;
            assert!(!self.panics.load(Ordering::Relaxed), "configured to panic");
            let id = spec.session_id.clone().expect("a name");
            let mut state = self.state();
            if let Some(error) = state.refuses.clone() {
                return Err(error);
            }
            if state.foreign.contains(&id) {
                return Err(conflict(&id));
            }
            let incarnation = 1 + self.created.fetch_add(1, Ordering::Relaxed) as u64;
            state.requested.push((spec.clone(), mounts.clone()));
            let info = info(&id, incarnation, &spec);
            let scratch = Arc::new(tempfile::tempdir().expect("a directory"));
            let session = Session {
                incarnation,
                spec,
                mounts,
                scratch,
                processes: BTreeMap::new(),
            };
            state.sessions.insert(id, session);
            Ok(CreatedBox {
                session: info,
                notices: self.notices.lock().expect("no panic").clone(),
            })
        }
        .boxed()
    }

    fn exec(&self, mut spec: SpecRequest) -> BoxFuture<'_, Answer<Begun>> {
        async move {
            if is_install(&spec) && self.install_fails.load(Ordering::Relaxed) {
                spec.cmd.insert_str(0, "exit 1; ");
            }
            let id = spec.session_id.clone().expect("a name");
            let mut state = self.state();
            state.executed.push(spec.clone());
            let session = state.sessions.get(&id).ok_or_else(|| missing(&id))?;
            let child = tokio::process::Command::new("/bin/sh")
                .args(["-c", &session.on_the_host(&spec.cmd)])
                .envs(
                    spec.env
                        .iter()
                        .map(|(key, value)| (key, session.on_the_host(value))),
                )
                .current_dir(session.cwd(spec.workdir.as_deref().unwrap_or("/workspace")))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .expect("a shell");
            Ok(Begun {
                session_id: id,
                backend: "test".to_owned(),
                notices: Vec::new(),
                timeout: Duration::from_secs(spec.timeout_sec.unwrap_or(30)),
                command: Box::new(Child(child)),
            })
        }
        .boxed()
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<()>> {
        let decrement = |count: usize| count.checked_sub(1);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let exists = self.state().sessions.contains_key(session);
        if exists && self.delete_fails.fetch_update(set, get, decrement).is_ok() {
            return std::future::ready(Err(not_now())).boxed();
        }
        let found = self.state().sessions.get_mut(session).map(|found| {
            let processes = std::mem::take(&mut found.processes);
            (found.incarnation, processes)
        });
        let takes = *self.delete_takes.lock().expect("no panic");
        async move {
            let Some((incarnation, processes)) = found else {
                return Ok(());
            };
            tokio::time::sleep(takes).await;
            for process in processes.values() {
                process.kill.cancel();
                process.exited().await;
            }
            let sessions = &mut self.state().sessions;
            sessions.retain(|id, found| id != session || found.incarnation != incarnation);
            Ok(())
        }
        .boxed()
    }

    fn session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<Option<SessionInfo>>> {
        let state = self.state();
        let found = state.sessions.get(session);
        std::future::ready(Ok(
            found.map(|found| info(session, found.incarnation, &found.spec))
        ))
        .boxed()
    }

    fn sessions(&self) -> BoxFuture<'_, Answer<Vec<SessionId>>> {
        let found = self.state().sessions.keys().cloned().collect();
        std::future::ready(Ok(found)).boxed()
    }

    fn start<'a>(
        &'a self,
        session: &'a SessionId,
        mut process: ProcessSpec,
    ) -> BoxFuture<'a, Answer<ProcessInfo>> {
        async move {
            let mut state = self.state();
            let program = state.programs.get(&process.command).cloned();
            let found = state.sessions.get_mut(session);
            let found = found.ok_or_else(|| missing(session))?;
            let id = process.process_id.clone();
            let cwd = found.cwd(&process.cwd);
            process.command = found.on_the_host(&process.command);
            for word in process.args.iter_mut().chain(process.env.values_mut()) {
                *word = found.on_the_host(word);
            }
            let (started, pipes) = Process::new(session, process);
            match program {
                Some(program) => {
                    let running = Arc::clone(&started);
                    tokio::spawn(async move {
                        let exit = tokio::select! {
                            exit = program(pipes) => exit,
                            () = running.kill.cancelled() => ProcessExit { exit_code: Some(137), why: None },
                        };
                        running.end(exit);
                    });
                }
                None => Process::spawn(pipes, &cwd).map_err(|error| BoxesError {
                    code: ErrorCode::ValidationError,
                    message: format!("`{}` cannot be started: {error}", started.spec.command),
                    hint: None,
                    reached: true,
                })?,
            }
            found.processes.insert(id, Arc::clone(&started));
            Ok(started.info())
        }
        .boxed()
    }

    fn processes<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<Vec<ProcessInfo>>> {
        let state = self.state();
        let found = state.sessions.get(session).ok_or_else(|| missing(session));
        let found = found.map(|found| {
            found
                .processes
                .values()
                .map(|process| process.info())
                .collect()
        });
        std::future::ready(found).boxed()
    }

    fn attach<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<Box<dyn ProcessIo>>> {
        async move {
            let takes = *self.attach_takes.lock().expect("no panic");
            tokio::time::sleep(takes).await;
            let decrement = |count: usize| count.checked_sub(1);
            let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
            if self.attach_fails.fetch_update(set, get, decrement).is_ok() {
                return Err(not_now());
            }
            let found = self.find(session, process)?;
            if self.has_other_reader.load(Ordering::Relaxed) {
                return Err(BoxesError {
                    message: "it is already attached".to_owned(),
                    ..ended()
                });
            }
            found.is_running().then(|| found.attach()).ok_or_else(ended)
        }
        .boxed()
    }

    fn stop<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<()>> {
        let found = self.find(session, process).ok();
        let takes = *self.stop_takes.lock().expect("no panic");
        async move {
            if let Some(found) = found {
                tokio::time::sleep(takes).await;
                found.kill.cancel();
                found.exited().await;
            }
            Ok(())
        }
        .boxed()
    }

    fn stderr<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<String>> {
        let found = self.find(session, process);
        let text = found.map(|found| found.stderr.lock().expect("no panic").clone());
        std::future::ready(text).boxed()
    }
}

/// A command that is killed on drop.
struct Child(tokio::process::Child);

#[async_trait::async_trait]
impl Command for Child {
    async fn next(&mut self) -> Answer<Running> {
        let mut buffer = vec![0; 4096];
        if let Some(stdout) = &mut self.0.stdout {
            if let Ok(count @ 1..) = stdout.read(&mut buffer).await {
                buffer.truncate(count);
                return Ok(Running::Stdout(buffer.into()));
            }
            self.0.stdout = None;
        }
        if let Some(stderr) = &mut self.0.stderr {
            if let Ok(count @ 1..) = stderr.read(&mut buffer).await {
                buffer.truncate(count);
                return Ok(Running::Stderr(buffer.into()));
            }
            self.0.stderr = None;
        }
        let status = self.0.wait().await.expect("a status");
        Ok(Running::Exited(ExecExit {
            exit_code: status.code(),
            status: ExecStatus::Completed,
            reason: None,
            duration_ms: 0,
            notices: Vec::new(),
        }))
    }
}

fn not_now() -> BoxesError {
    BoxesError {
        code: ErrorCode::Timeout,
        message: "not now".to_owned(),
        hint: None,
        reached: true,
    }
}

fn conflict(session: &SessionId) -> BoxesError {
    BoxesError {
        code: ErrorCode::SessionConflict,
        message: format!("session `{session}` was not created for a hosted server"),
        hint: Some(format!("remove it with `boxwood rm {session}`")),
        reached: true,
    }
}

fn ended() -> BoxesError {
    BoxesError {
        code: ErrorCode::ManagedProcessConflict,
        message: "it is not running".to_owned(),
        hint: None,
        reached: true,
    }
}

fn missing(session: &SessionId) -> BoxesError {
    BoxesError {
        code: ErrorCode::SessionNotFound,
        message: format!("no session `{session}`, or no such process in it"),
        hint: None,
        reached: true,
    }
}

fn info(id: &SessionId, incarnation: u64, spec: &SpecRequest) -> SessionInfo {
    SessionInfo {
        session_id: id.clone(),
        backend_name: "test".to_owned(),
        backend_session_id: "test".to_owned(),
        incarnation,
        profile: "default".to_owned(),
        image: String::new(),
        network: spec.network.unwrap_or(Network::On),
        host_path: spec.host_path.clone(),
        host_path_mode: spec.host_path_mode.unwrap_or(MountMode::Rw),
        mount_path: "/workspace".to_owned(),
        extra_mounts: Vec::new(),
        persistent: spec.persistent.unwrap_or_default(),
        cpus: 1.0,
        memory_mb: 512,
        pids_limit: 64,
        read_only_rootfs: false,
        workspace_quota_mb: 0,
        created_at: Timestamp::UNIX_EPOCH,
        last_used_at: Timestamp::UNIX_EPOCH,
        adopted_at: None,
        frozen: false,
        isolation: IsolationLabel {
            backend: "test".to_owned(),
            runtime: None,
            network: NetworkIsolation::Off,
            in_force: Vec::new(),
            missing: Vec::new(),
        },
    }
}
