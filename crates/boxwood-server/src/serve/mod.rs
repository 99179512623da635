//! Runs the daemon: recover sessions, accept connections, drain, shut down.

pub(crate) mod recovery;
pub(crate) mod start;
mod systemd;
pub(crate) mod takeover;
mod warm;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::BackendInfo;
use boxwood_langbot::{InstanceError, Setup};
use boxwood_ledger::OpenError;
use boxwood_policy::{PolicyRules, RulesError};
use boxwood_session::{Backends, Sessions, Settings, ShutdownBoxes};
use boxwood_skills::SkillStore;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};

use self::recovery::{Recovery, recover};
use self::start::Start;
use self::systemd::Notify;
use self::takeover::{Successor, TakeoverError, TakeoverListener};
use crate::agent::{AgentError, AgentLocation};
use crate::auth::Trust;
use crate::config::{Config, ServiceManager, langbot_environment};
use crate::http::{App, router};
use crate::listen::sockets::{Socket, SocketError, remove_file};
use crate::listen::{Connections, Listener};
use crate::state_dir::{StateDirError, StateLock};
use crate::wiring::{self, LaunchError};

const WEBSOCKET_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Readiness is reported after the first probe of the backends, or after this time.
const FIRST_PROBE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    #[error(transparent)]
    Takeover(#[from] TakeoverError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("invalid configuration: {0}")]
    Rules(#[from] RulesError),
    #[error(transparent)]
    Ledger(#[from] OpenError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("invalid LangBot environment: {0}")]
    LangBot(#[from] InstanceError),
    #[error("failed to accept on a listening socket")]
    Accept { source: io::Error },
    #[error("no socket to listen on")]
    NoSocket,
    #[error("failed to install the signal handlers")]
    Signals { source: io::Error },
}

impl ServeError {
    /// What the operator can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::StateDir(StateDirError::InUse { .. }) => Some(
                "stop that daemon, replace it with --takeover, or use another --state-dir"
                    .to_owned(),
            ),
            Self::Takeover(error) => error.hint(),
            Self::Socket(error) => error.hint().map(str::to_owned),
            Self::Launch(error) => error.hint(),
            Self::Agent(error) => error.hint(),
            Self::NoSocket => Some(
                "with `listen = \"none\"` the Unix socket is needed: leave `http.unix_socket` on, and use a --state-dir with a shorter path"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// Reported once the daemon accepts connections.
#[derive(Debug)]
pub struct Ready {
    pub address: Option<SocketAddr>,
    /// The Unix socket, unless it has an abstract name.
    pub socket: Option<PathBuf>,
    /// The default backend.
    pub backend: BackendInfo,
    /// The pid of the previous daemon, if this one took over from it.
    pub followed: Option<u32>,
    pub recovery: Recovery,
}

impl Ready {
    fn log(&self) {
        tracing::info!(
            url = self.url(),
            backend = self.backend.name,
            available = self.backend.available,
            "ready"
        );
    }

    /// Where clients reach the daemon.
    pub fn url(&self) -> String {
        match (self.address, &self.socket) {
            (Some(address), _) => format!("http://{address}"),
            (None, Some(socket)) => format!("unix://{}", socket.display()),
            (None, None) => "a socket without a path".to_owned(),
        }
    }

    /// The status line for the service manager.
    fn status(&self) -> String {
        let mut text = format!("serving on {}", self.url());
        if !self.recovery.is_empty() {
            text = format!("{text}; {}", self.recovery);
        }
        text
    }
}

/// Runs the daemon until SIGTERM or SIGINT, until another one takes over, or until its parent closes stdin.
/// `on_ready` is called once connections are accepted.
///
/// The first signal drains: no new connections, running requests complete. The second aborts the
/// drain. The third leaves the boxes to the next daemon.
pub async fn serve(
    config: Config,
    backends: Backends,
    start: Start,
    parent: Parent,
    on_ready: impl FnOnce(&Ready),
) -> Result<(), ServeError> {
    let stop = StopSignals::new().map_err(|source| ServeError::Signals { source })?;
    run(config, backends, start, on_ready, stop, parent).await
}

/// How the parent process uses the daemon's stdin and stdout. A daemon with such a parent stops when stdin
/// closes, and does not support takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    None,
    /// They carry LangBot's RPC.
    OnStdio,
    /// Stdin only signals that the parent is alive.
    HoldsStdin,
}

/// Reads on a separate thread: a blocking read cannot be cancelled and must not delay shutdown.
async fn stdin_closed() {
    let (closed, is_closed) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        // An error also means that the parent is gone.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(closed);
    });
    // Never sent to, only closed.
    let _ = is_closed.await;
}

/// A source of stop requests, such as signals. Each call of `next` waits for one more.
pub trait Stop {
    fn next(&mut self) -> impl Future<Output = ()> + Send;
}

struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

impl Stop for StopSignals {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Like [`serve`], embedded in another process: with its own stop source and without takeover.
pub async fn serve_until(
    config: Config,
    backends: Backends,
    on_ready: impl FnOnce(&Ready),
    stop: impl Stop,
) -> Result<(), ServeError> {
    let lock = StateLock::take(&config.state_dir)?;
    let start = Start::with_lock(&config, lock, ServiceManager::default())?;
    run(config, backends, start, on_ready, stop, Parent::None).await
}

async fn run(
    config: Config,
    backends: Backends,
    start: Start,
    on_ready: impl FnOnce(&Ready),
    mut stop: impl Stop,
    parent: Parent,
) -> Result<(), ServeError> {
    let Start {
        lock: _lock,
        sockets,
        notify,
        followed,
    } = start;
    let rules = rules(&config)?;
    let backends =
        backends.with_default_backend(rules.profiles.default_profile().backend.as_deref());
    for profile in rules.profiles.iter() {
        wiring::check_profile(&profile.name, profile.backend.as_deref(), &backends)?;
    }
    let agent_location = AgentLocation::prepare(&config, &rules)?;
    raise_descriptor_limit();
    let address = sockets.used.iter().find_map(Socket::tcp_address);
    let socket = sockets.used.iter().find_map(Socket::unix_path);
    let socket = socket.map(Path::to_owned);
    if sockets.used.is_empty() {
        return Err(ServeError::NoSocket);
    }
    // Sockets of the previous daemon that this configuration does not use.
    sockets
        .unused
        .iter()
        .filter_map(Socket::own_file)
        .for_each(remove_file);
    drop(sockets.unused);

    let langbot = Setup::new(langbot_settings(&config))?;
    let drain = Duration::from_secs(config.http.drain_sec);
    let takeover = match parent {
        Parent::None => takeover_listener(&config, &sockets.used, drain),
        Parent::OnStdio | Parent::HoldsStdin => None,
    };
    let listeners = sockets.used.into_iter().map(Listener::new);
    let listeners: io::Result<Vec<_>> = listeners.collect();
    let listeners = listeners.map_err(|source| ServeError::Accept { source })?;

    let (stopping, is_stopping) = watch::channel(false);
    let (handing_over, is_handing_over) = watch::channel(false);
    notify.status("recovering boxes of the previous daemon");
    let (sessions, recovery) = recover(&config, backends).await?;
    // No early return from here on: it would stop the adopted boxes.
    probe_backends(&sessions).await;
    sessions.keep_warm(warm::pool_specs(&rules));
    let app = Arc::new(App::new(
        &config,
        sessions.clone(),
        rules,
        langbot,
        agent_location,
        is_stopping,
        is_handing_over,
    ));
    app.langbot.apply_environment().await;
    app.mcp.begin(app.stopping.clone());
    let connections = connections(&config, &app);
    boxwood_sys::memory::release_unused_pages();
    let ready = Ready {
        address,
        socket,
        backend: sessions.backends().info(),
        followed,
        recovery,
    };
    on_ready(&ready);
    notify.ready(&ready.status());
    ready.log();

    let parent_exited = async {
        match parent {
            Parent::OnStdio => boxwood_langbot::serve_stdio(Arc::clone(&app.langbot)).await,
            Parent::HoldsStdin => stdin_closed().await,
            Parent::None => std::future::pending().await,
        }
    };
    let handed_over = async {
        match &takeover {
            Some(takeover) => takeover.handed_over().await,
            None => std::future::pending().await,
        }
    };
    let ending = tokio::select! {
        () = connections.accept(&listeners) => Ending::Stopped,
        () = parent_exited => Ending::Stopped,
        () = stop.next() => Ending::Stopped,
        successor = handed_over => Ending::TakenOver(successor),
    };
    ending.announce(&notify);
    match ending {
        Ending::Stopped => drop(listeners),
        Ending::TakenOver(_) => listeners.into_iter().for_each(Listener::detach),
    }
    drop(takeover);
    stopping.send_replace(true);
    let boxes = ending.boxes(config.shutdown.boxes);
    shut_down(&app, &connections, &handing_over, drain, boxes, stop).await;
    Ok(())
}

fn connections(config: &Config, app: &Arc<App>) -> Arc<Connections> {
    let own = rustix::process::geteuid().as_raw();
    let mut trust = Trust::new(own, &config.auth.trusted_uids);
    trust
        .langbot_peers
        .clone_from(&config.langbot.trusted_peers);
    let router = router(Arc::clone(app));
    Arc::new(Connections::new(
        Arc::clone(app),
        router,
        trust,
        &config.load,
    ))
}

async fn probe_backends(sessions: &Sessions) {
    let probing = sessions.backends().first_probe();
    if tokio::time::timeout(FIRST_PROBE_TIMEOUT, probing)
        .await
        .is_err()
    {
        tracing::warn!("backend probe is slow; accepting connections meanwhile");
    }
}

fn langbot_settings(config: &Config) -> boxwood_langbot::Settings {
    let root = config.langbot.root.clone();
    let max_zip_bytes = usize::try_from(config.skills.limits.max_zip_bytes);
    boxwood_langbot::Settings {
        environment: langbot_environment(),
        root: root.unwrap_or_else(|| std::env::current_dir().unwrap_or_else(|_| "/".into())),
        may_choose_backend: !config.backend_chosen,
        may_move_skills: config.skills.root.is_none(),
        max_zip_bytes: max_zip_bytes.unwrap_or(usize::MAX / 4),
    }
}

/// Called when the daemon no longer accepts connections.
async fn shut_down(
    app: &App,
    connections: &Connections,
    handing_over: &watch::Sender<bool>,
    drain: Duration,
    boxes: ShutdownBoxes,
    mut stop: impl Stop,
) {
    let drained = async { tokio::join!(connections.drained(drain), app.langbot.idle(drain)) };
    tokio::select! {
        _ = drained => {}
        () = stop.next() => tracing::warn!("second stop signal: aborting running requests"),
    }
    // Before boxes stop, so that MCP servers are not reported as failed.
    tokio::select! {
        () = app.mcp.close() => {}
        () = stop.next() => tracing::warn!("another stop signal: not waiting for MCP servers"),
    }
    if boxes != ShutdownBoxes::Stop {
        // Before clients are disconnected, which would kill their commands.
        app.sessions.begin_shutdown(boxes);
        handing_over.send_replace(true);
        app.sockets_closed(WEBSOCKET_CLOSE_TIMEOUT).await;
    }
    tokio::select! {
        () = app.sessions.shutdown(boxes) => {}
        () = stop.next() => tracing::warn!("another stop signal: leaving the remaining boxes to the next daemon"),
    }
    app.sockets_closed(WEBSOCKET_CLOSE_TIMEOUT).await;
    tracing::info!("stopped");
}

/// Why the daemon stops.
#[derive(Clone, Copy)]
enum Ending {
    Stopped,
    /// The successor has the sockets and will adopt the boxes.
    TakenOver(Successor),
}

impl Ending {
    fn announce(self, notify: &Notify) {
        match self {
            Self::Stopped => {
                tracing::info!("stopping: no new connections, waiting for running requests");
                notify.stopping("waiting for running requests");
            }
            Self::TakenOver(Successor { pid }) => {
                tracing::info!(
                    pid,
                    "another daemon is taking over: waiting for running requests"
                );
                if let Some(pid) = pid {
                    notify.followed_by(pid);
                }
            }
        }
    }

    fn boxes(self, configured: ShutdownBoxes) -> ShutdownBoxes {
        match self {
            Self::Stopped => configured,
            Self::TakenOver(_) => ShutdownBoxes::Keep,
        }
    }
}

/// A failure is not fatal: the daemon then only lacks support for takeover.
fn takeover_listener(
    config: &Config,
    sockets: &[Socket],
    drain: Duration,
) -> Option<TakeoverListener> {
    match TakeoverListener::bind(&config.state_dir, sockets, drain) {
        Ok(takeover) => Some(takeover),
        Err(error) => {
            tracing::warn!(%error, "failed to listen for takeover requests; --takeover will not work with this daemon");
            None
        }
    }
}

pub(crate) fn settings(config: &Config) -> Settings {
    Settings {
        session_ttl: config.session.ttl(),
        max_sessions: config.session.max_sessions,
        max_processes: config.session.max_processes,
        capture_bytes: config.session.capture_bytes,
        stop_grace: Duration::from_secs(config.session.stop_grace_sec),
        freeze_after: Duration::from_secs(config.session.freeze_after_sec),
        // Invalid rules have been rejected before.
        freeze_after_by_profile: rules(config)
            .map(|rules| warm::freeze_after(&rules))
            .unwrap_or_default(),
        load: config.load.limits(),
        ..Settings::default()
    }
}

/// The policy rules. Configured paths are added in resolved form too, because request paths are
/// compared by their real path.
pub fn rules(config: &Config) -> Result<PolicyRules, RulesError> {
    let own = with_real_paths(&[config.state_dir.clone(), config.run_dir.clone()]);
    let mut policy = config.policy.clone();
    let mounts = &mut policy.mounts;
    for list in [&mut mounts.allowed_roots, &mut mounts.extra_blocked] {
        *list = with_real_paths(list);
    }
    let platform_roots = config.langbot.allowed_roots.as_deref();
    let platform_roots = platform_roots.map(with_real_paths);
    let skills = skills_root(config);
    let skills_real = skills.canonicalize().unwrap_or_else(|_| skills.clone());
    let own = own.into_iter().filter(|path| path.is_absolute());
    PolicyRules::new(&policy, own)?
        .with_platform_roots(platform_roots)?
        .with_skills_dir(skills, skills_real)
}

/// Each path as given, and with symlinks resolved if it exists.
pub(crate) fn with_real_paths(paths: &[PathBuf]) -> Vec<PathBuf> {
    let with_real_path = |path: &PathBuf| [Some(path.clone()), path.canonicalize().ok()];
    let mut all: Vec<_> = paths.iter().flat_map(with_real_path).flatten().collect();
    all.dedup();
    all
}

/// The skill store of a configuration. Its directory need not exist yet.
pub fn skill_store(config: &Config) -> SkillStore {
    SkillStore::new(skills_root(config), config.skills.limits.clone())
}

/// The directory of the skill store, unless LangBot has moved it.
pub fn skills_root(config: &Config) -> PathBuf {
    let root = config.skills.root.clone();
    let agents = || {
        let is_local = config.agent.endpoint.is_none();
        config.agent.skills_root.clone().filter(|_| is_local)
    };
    root.or_else(agents)
        .unwrap_or_else(|| config.state_dir.join("skills"))
}

/// Each box and connection needs descriptors, and the default soft limit is 1,024.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "failed to raise the limit of open files (RLIMIT_NOFILE)");
    }
}
