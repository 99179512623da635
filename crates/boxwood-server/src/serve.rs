//! The life of the daemon: bind, serve, drain.
//!
//! Comes in: a configuration and backends. Goes out: nothing until it is told to stop, then an end
//! that leaves no box behind. Never here: reading configuration, printing.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::BackendInfo;
use boxwood_ledger::OpenError;
use boxwood_policy::{PolicyRules, RulesError};
use boxwood_session::{Backends, SessionError, Sessions, Settings, ShutdownBoxes};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};

use crate::agent::{AgentError, Home};
use crate::auth::Trust;
use crate::config::{Config, ServiceManager};
use crate::http::{App, router};
use crate::langbot::{self, LangBot, LangBotError};
use crate::listen::{Connections, Listener};
use crate::places::{PlaceError, StateLock};
use crate::recovery::{Recovery, recover};
use crate::sockets::{Socket, SocketError, remove_file};
use crate::start::Start;
use crate::systemd::Notify;
use crate::takeover::{Door, Successor, TakeoverError};
use crate::warm;
use crate::wiring::LaunchError;

/// For every WebSocket to be closed once what it was about is gone.
const GOODBYE: Duration = Duration::from_secs(1);

/// For the first look at a backend. A daemon that is ready knows whether one works.
const FIRST_LOOK: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Takeover(#[from] TakeoverError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("the configuration cannot be used: {0}")]
    Rules(#[from] RulesError),
    #[error("profiles.{profile}.backend: {source}")]
    ProfileBackend {
        profile: String,
        source: SessionError,
    },
    #[error(transparent)]
    Ledger(#[from] OpenError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("LangBot's environment cannot be used: {0}")]
    LangBot(#[from] LangBotError),
    #[error("a socket cannot be accepted on")]
    Accept { source: io::Error },
    #[error("there is no socket to serve on")]
    NoSocket,
    #[error("signals cannot be received")]
    Signals { source: io::Error },
}

impl ServeError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Place(PlaceError::InUse { .. }) => Some(
                "stop that daemon, follow it with --takeover, or use another --state-dir"
                    .to_owned(),
            ),
            Self::Takeover(error) => error.hint(),
            Self::Socket(error) => error.hint().map(str::to_owned),
            Self::Launch(error) => error.hint(),
            Self::ProfileBackend { source, .. } => source.hint(),
            Self::Agent(error) => error.hint(),
            Self::NoSocket => Some(
                "with `listen = \"none\"` the Unix socket is needed: leave `http.unix_socket` on, and use a --state-dir with a shorter path"
                    .to_owned(),
            ),
            Self::Place(_)
            | Self::Rules(_)
            | Self::Ledger(_)
            | Self::LangBot(_)
            | Self::Accept { .. }
            | Self::Signals { .. } => None,
        }
    }
}

/// What a daemon that accepts connections can tell.
#[derive(Debug)]
pub struct Ready {
    pub address: Option<SocketAddr>,
    /// The Unix socket, unless it has an abstract name.
    pub socket: Option<PathBuf>,
    /// The backend that boxes get.
    pub backend: BackendInfo,
    /// The pid of the daemon that this one followed.
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

    /// For whoever looks after services.
    fn status(&self) -> String {
        let mut text = format!("serving on {}", self.url());
        if !self.recovery.is_empty() {
            text = format!("{text}; {}", self.recovery);
        }
        text
    }
}

/// Runs the daemon until SIGTERM or SIGINT, or until another one takes over. `on_ready` is called
/// once connections are accepted.
///
/// The first signal drains: no new connections, running requests may end. A second one cuts that
/// short. A third one gives up on the boxes, which the next daemon finds.
pub async fn serve(
    config: Config,
    backends: Backends,
    start: Start,
    on_ready: impl FnOnce(&Ready),
) -> Result<(), ServeError> {
    let stop = StopSignals::new().map_err(|source| ServeError::Signals { source })?;
    run(config, backends, start, on_ready, stop, Parent::Elsewhere).await
}

/// The same for a LangBot that started the daemon itself: it speaks over standard input and output,
/// and the daemon ends when it hangs up. Nobody can take over from this one: the conversation is its own.
pub async fn serve_stdio(
    config: Config,
    backends: Backends,
    start: Start,
    on_ready: impl FnOnce(&Ready),
) -> Result<(), ServeError> {
    let stop = StopSignals::new().map_err(|source| ServeError::Signals { source })?;
    run(config, backends, start, on_ready, stop, Parent::OnStdio).await
}

/// The same for a program that started the daemon for itself: the daemon ends when its standard input
/// does, however that program ended. Nobody can take over from this one: the pipe is its own.
pub async fn serve_until_stdin_closes(
    config: Config,
    backends: Backends,
    start: Start,
    on_ready: impl FnOnce(&Ready),
) -> Result<(), ServeError> {
    let stop = StopSignals::new().map_err(|source| ServeError::Signals { source })?;
    run(config, backends, start, on_ready, stop, Parent::HoldsStdin).await
}

/// What whoever started the daemon does with its standard input and output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parent {
    Elsewhere,
    /// Speaks over them.
    OnStdio,
    /// Says nothing, and is there for as long as the input is open.
    HoldsStdin,
}

/// A thread of its own reads: a read cannot be taken back, and must not keep the daemon from ending.
async fn stdin_closed() {
    let (closed, is_closed) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        // Whatever goes wrong with it, there is nobody at its other end any more.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(closed);
    });
    // Never sent to, only closed.
    let _ = is_closed.await;
}

/// Tells when to stop. Each call of `next` waits for one more request to do so.
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

/// The same in a process that has other things to do: alone, and stopped by something else than a
/// signal.
pub async fn serve_until(
    config: Config,
    backends: Backends,
    on_ready: impl FnOnce(&Ready),
    stop: impl Stop,
) -> Result<(), ServeError> {
    let lock = StateLock::take(&config.state_dir)?;
    let start = Start::with_lock(&config, lock, ServiceManager::default())?;
    run(config, backends, start, on_ready, stop, Parent::Elsewhere).await
}

async fn run(
    config: Config,
    backends: Backends,
    start: Start,
    on_ready: impl FnOnce(&Ready),
    mut stop: impl Stop,
    parent: Parent,
) -> Result<(), ServeError> {
    let followed = start.followed();
    let Start {
        lock: _lock,
        sockets,
        notify,
        ..
    } = start;
    let rules = rules(&config)?;
    let backends = backends.with_usual(rules.profiles.default_profile().backend.as_deref());
    check_profiles(&rules, &backends)?;
    let home = Home::prepare(&config, &rules)?;
    raise_descriptor_limit();
    let address = sockets.used.iter().find_map(Socket::tcp_address);
    let socket = sockets.used.iter().find_map(Socket::unix_path);
    let socket = socket.map(Path::to_owned);
    if sockets.used.is_empty() {
        return Err(ServeError::NoSocket);
    }
    // Nobody connects there any more: this configuration does not name them.
    sockets
        .left
        .iter()
        .filter_map(Socket::own_file)
        .for_each(remove_file);
    drop(sockets.left);

    let langbot = LangBot::new(&config)?;
    let drain = Duration::from_secs(config.http.drain_sec);
    let door = match parent {
        Parent::Elsewhere => open_door(&config, &sockets.used, drain),
        Parent::OnStdio | Parent::HoldsStdin => None,
    };
    let listeners = listeners(sockets.used)?;

    // From here on nothing ends this daemon but its end: boxes that it adopted would go with it.
    let (stopping, is_stopping) = watch::channel(false);
    let (leaving, is_leaving) = watch::channel(false);
    notify.status("looking for boxes of an earlier daemon");
    let (sessions, recovery) = recover(&config, backends).await?;
    look_for_backends(&sessions).await;
    sessions.keep_warm(warm::wishes(&rules));
    let app = Arc::new(App::new(
        &config,
        sessions.clone(),
        rules,
        langbot,
        home,
        is_stopping,
        is_leaving,
    ));
    app.langbot.begin(&app).await;
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

    let parent_left = async {
        match parent {
            Parent::OnStdio => langbot::stdio::converse(Arc::clone(&app)).await,
            Parent::HoldsStdin => stdin_closed().await,
            Parent::Elsewhere => std::future::pending().await,
        }
    };
    let handed_over = async {
        match &door {
            Some(door) => door.handed_over().await,
            None => std::future::pending().await,
        }
    };
    let ending = tokio::select! {
        () = connections.accept(&listeners) => Ending::Told,
        () = parent_left => Ending::Told,
        () = stop.next() => Ending::Told,
        successor = handed_over => Ending::Followed(successor),
    };
    ending.tell(&notify);
    match ending {
        Ending::Told => drop(listeners),
        Ending::Followed(_) => listeners.into_iter().for_each(Listener::hand_on),
    }
    drop(door);
    let serving = Serving {
        app,
        connections,
        stopping,
        leaving,
        drain,
    };
    serving.end(ending.boxes(config.shutdown.boxes), stop).await;
    Ok(())
}

fn connections(config: &Config, app: &Arc<App>) -> Connections {
    let own = rustix::process::geteuid().as_raw();
    let trust = Trust::new(own, &config.auth.trusted_uids)
        .with_langbot_peers(&config.langbot.trusted_peers);
    Connections::new(
        Arc::clone(app),
        router(Arc::clone(app)),
        trust,
        &config.load,
    )
}

async fn look_for_backends(sessions: &Sessions) {
    let looking = sessions.backends().first_look();
    if tokio::time::timeout(FIRST_LOOK, looking).await.is_err() {
        tracing::warn!("looking for a backend takes long; serving meanwhile");
    }
}

/// A daemon that accepts no more connections.
struct Serving {
    app: Arc<App>,
    connections: Connections,
    stopping: watch::Sender<bool>,
    leaving: watch::Sender<bool>,
    drain: Duration,
}

impl Serving {
    async fn end(self, boxes: ShutdownBoxes, mut stop: impl Stop) {
        let app = &self.app;
        self.stopping.send_replace(true);
        let answered = async {
            tokio::join!(
                self.connections.drained(self.drain),
                app.langbot.idle(self.drain)
            )
        };
        tokio::select! {
            _ = answered => {}
            () = stop.next() => tracing::warn!("told to stop again: not waiting for running requests"),
        }
        // Before any box goes: a server that ends now has not failed.
        tokio::select! {
            () = app.mcp.close() => {}
            () = stop.next() => tracing::warn!("told to stop again: not waiting for MCP servers"),
        }
        if boxes != ShutdownBoxes::Stop {
            // First: a client that is sent away would take its command along.
            app.sessions.begin_shutdown(boxes);
            self.leaving.send_replace(true);
            app.sockets_closed(GOODBYE).await;
        }
        tokio::select! {
            () = app.sessions.shutdown(boxes) => {}
            () = stop.next() => tracing::warn!("told to stop again: leaving boxes to the next start"),
        }
        app.sockets_closed(GOODBYE).await;
        tracing::info!("stopped");
    }
}

/// Why a daemon ends.
#[derive(Clone, Copy)]
enum Ending {
    Told,
    /// Its sockets are somebody else's now, and so will be its boxes.
    Followed(Successor),
}

impl Ending {
    fn tell(self, notify: &Notify) {
        match self {
            Self::Told => {
                tracing::info!("stopping: no new connections, waiting for running requests");
                notify.stopping("waiting for running requests");
            }
            Self::Followed(Successor { pid }) => {
                tracing::info!(
                    pid,
                    "another daemon takes over: waiting for running requests"
                );
                if let Some(pid) = pid {
                    notify.followed_by(pid);
                }
            }
        }
    }

    fn boxes(self, told: ShutdownBoxes) -> ShutdownBoxes {
        match self {
            Self::Told => told,
            Self::Followed(_) => ShutdownBoxes::Keep,
        }
    }
}

/// Without it the daemon serves as well; it cannot be followed then.
fn open_door(config: &Config, sockets: &[Socket], drain: Duration) -> Option<Door> {
    match Door::open(&config.state_dir, sockets, drain) {
        Ok(door) => Some(door),
        Err(error) => {
            tracing::warn!(%error, "no daemon will be able to take over from this one");
            None
        }
    }
}

fn listeners(sockets: Vec<Socket>) -> Result<Vec<Listener>, ServeError> {
    let listeners = sockets.into_iter().map(Listener::new);
    listeners
        .collect::<io::Result<_>>()
        .map_err(|source| ServeError::Accept { source })
}

/// A profile whose boxes could never start is a mistake to hear of now.
fn check_profiles(rules: &PolicyRules, backends: &Backends) -> Result<(), ServeError> {
    for profile in rules.profiles.iter() {
        let backend = profile.backend.as_deref().unwrap_or_default();
        backends
            .check(backend)
            .map_err(|source| ServeError::ProfileBackend {
                profile: profile.name.clone(),
                source,
            })?;
    }
    Ok(())
}

pub(crate) fn settings(config: &Config) -> Settings {
    Settings {
        session_ttl: config.session.ttl(),
        max_sessions: config.session.max_sessions,
        max_processes: config.session.max_processes,
        capture_bytes: config.session.capture_bytes,
        stop_grace: Duration::from_secs(config.session.stop_grace_sec),
        freeze_after: Duration::from_secs(config.session.freeze_after_sec),
        // Rules that make no sense were refused before.
        freeze_after_by_profile: rules(config)
            .map(|rules| warm::freeze_after(&rules))
            .unwrap_or_default(),
        load: config.load.limits(),
        ..Settings::default()
    }
}

/// What requests are judged by. The operator's paths are judged by where they really are, as
/// requests' paths are.
pub fn rules(config: &Config) -> Result<PolicyRules, RulesError> {
    let own = [&config.state_dir, &config.run_dir]
        .into_iter()
        .flat_map(|dir| [Some(dir.clone()), dir.canonicalize().ok()])
        .flatten();
    let mut policy = config.policy.clone();
    for list in [
        &mut policy.mounts.allowed_roots,
        &mut policy.mounts.extra_blocked,
    ] {
        let real: Vec<_> = list
            .iter()
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        list.extend(real);
        list.dedup();
    }
    let platform_roots = config.langbot.allowed_roots.as_ref().map(|roots| {
        let real = roots.iter().filter_map(|root| root.canonicalize().ok());
        roots.iter().cloned().chain(real).collect()
    });
    let skills = skills_root(config);
    let skills_real = skills.canonicalize().unwrap_or_else(|_| skills.clone());
    PolicyRules::new(&policy, own.filter(|path| path.is_absolute()))?
        .with_platform_roots(platform_roots)?
        .with_skills_dir(skills, skills_real)
}

/// Where skills are unless LangBot keeps them elsewhere.
pub fn skills_root(config: &Config) -> PathBuf {
    let root = config.skills.root.clone();
    let agents = || {
        let here = config.agent.endpoint.is_none();
        config.agent.skills_root.clone().filter(|_| here)
    };
    root.or_else(agents)
        .unwrap_or_else(|| config.state_dir.join("skills"))
}

/// Every box and every connection needs descriptors, and the usual soft limit is 1,024.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
}
