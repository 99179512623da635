//! The life of the daemon: bind, serve, drain.
//!
//! Comes in: a configuration and backends. Goes out: nothing until it is told to stop, then an end
//! that leaves no box behind. Never here: reading configuration, printing.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::BackendInfo;
use boxwood_policy::{PolicyRules, RulesError};
use boxwood_session::{Backends, SessionError, Sessions, Settings};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::auth::Trust;
use crate::config::Config;
use crate::http::{App, router};
use crate::langbot::{self, LangBot, LangBotError};
use crate::listen::{Connections, UnixSocket};
use crate::places::{PlaceError, StateLock, private_dir};

/// For every WebSocket to be closed once what it was about is gone.
const GOODBYE: Duration = Duration::from_secs(1);

/// For the first look at a backend. A daemon that is ready knows whether one works.
const FIRST_LOOK: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("the configuration cannot be used: {0}")]
    Rules(#[from] RulesError),
    #[error("profiles.{profile}.backend: {source}")]
    ProfileBackend {
        profile: String,
        source: SessionError,
    },
    #[error("LangBot's environment cannot be used: {0}")]
    LangBot(#[from] LangBotError),
    #[error("the daemon cannot listen on {address}")]
    Bind {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("the daemon cannot listen on `{path}`")]
    BindUnix { path: String, source: io::Error },
    #[error("signals cannot be received")]
    Signals { source: io::Error },
}

impl ServeError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Place(PlaceError::InUse { .. }) => "stop that daemon, or use another --state-dir",
            Self::Bind { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                "another program listens there; use another --listen address"
            }
            Self::ProfileBackend { source, .. } => return source.hint(),
            Self::Place(_)
            | Self::Rules(_)
            | Self::LangBot(_)
            | Self::Bind { .. }
            | Self::BindUnix { .. }
            | Self::Signals { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

/// Runs the daemon until SIGTERM or SIGINT. `on_ready` is called once connections are accepted, with
/// the address they are accepted on and the backend that boxes get.
///
/// The first signal drains: no new connections, running requests may end. A second one cuts that
/// short. A third one gives up on stopping the boxes in an orderly way.
pub async fn serve(
    config: Config,
    backends: Backends,
    on_ready: impl FnOnce(SocketAddr, &BackendInfo),
) -> Result<(), ServeError> {
    let stop = StopSignals::new().map_err(|source| ServeError::Signals { source })?;
    serve_until(config, backends, on_ready, stop).await
}

/// The same for a LangBot that started the daemon itself: it speaks over standard input and output,
/// and the daemon ends when it hangs up.
pub async fn serve_stdio(
    config: Config,
    backends: Backends,
    on_ready: impl FnOnce(SocketAddr, &BackendInfo),
) -> Result<(), ServeError> {
    let stop = StopSignals::new().map_err(|source| ServeError::Signals { source })?;
    run(config, backends, on_ready, stop, Parent::OnStdio).await
}

/// Whether whoever started the daemon talks to it over its standard input and output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parent {
    Elsewhere,
    OnStdio,
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

/// The same, stopped by something else than a signal.
pub async fn serve_until(
    config: Config,
    backends: Backends,
    on_ready: impl FnOnce(SocketAddr, &BackendInfo),
    stop: impl Stop,
) -> Result<(), ServeError> {
    run(config, backends, on_ready, stop, Parent::Elsewhere).await
}

async fn run(
    config: Config,
    backends: Backends,
    on_ready: impl FnOnce(SocketAddr, &BackendInfo),
    mut stop: impl Stop,
    parent: Parent,
) -> Result<(), ServeError> {
    let _lock = StateLock::take(&config.state_dir)?;
    private_dir(&config.run_dir).map_err(|source| PlaceError::Create {
        path: config.run_dir.clone(),
        source,
    })?;
    let rules = rules(&config)?;
    let backends = backends.with_usual(rules.profiles.default_profile().backend.as_deref());
    check_profiles(&rules, &backends)?;
    raise_descriptor_limit();
    let tcp = TcpListener::bind(config.listen)
        .await
        .map_err(|source| ServeError::Bind {
            address: config.listen,
            source,
        })?;
    let address = tcp.local_addr().map_err(|source| ServeError::Bind {
        address: config.listen,
        source,
    })?;
    let unix = bind_unix(&config)?;

    let (stopping, is_stopping) = watch::channel(false);
    let sessions = Sessions::new(backends, settings(&config));
    if tokio::time::timeout(FIRST_LOOK, sessions.backends().first_look())
        .await
        .is_err()
    {
        tracing::warn!("looking for a backend takes long; serving meanwhile");
    }
    let app = Arc::new(App::new(
        &config,
        sessions.clone(),
        rules,
        LangBot::new(&config)?,
        is_stopping,
    ));
    app.langbot.begin(&app).await;
    let trust = Trust::new(
        rustix::process::geteuid().as_raw(),
        &config.auth.trusted_uids,
    )
    .with_langbot_peers(&config.langbot.trusted_peers);
    let connections = Connections::new(Arc::clone(&app), router(Arc::clone(&app)), trust);
    let accepting = connections.accept(tcp, unix);
    let backend = sessions.backends().info();
    on_ready(address, &backend);
    tracing::info!(%address, backend = backend.name, available = backend.available, "ready");

    let parent_left = async {
        match parent {
            Parent::OnStdio => langbot::stdio::converse(Arc::clone(&app)).await,
            Parent::Elsewhere => std::future::pending().await,
        }
    };
    tokio::select! {
        () = accepting => {}
        () = parent_left => {}
        () = stop.next() => {}
    }
    tracing::info!("stopping: no new connections, waiting for running requests");
    stopping.send_replace(true);
    let drain = Duration::from_secs(config.http.drain_sec);
    let answered = async { tokio::join!(connections.drained(drain), app.langbot.idle(drain)) };
    tokio::select! {
        _ = answered => {}
        () = stop.next() => tracing::warn!("told to stop again: not waiting for running requests"),
    }
    tokio::select! {
        () = sessions.shutdown() => {}
        () = stop.next() => tracing::warn!("told to stop again: leaving boxes to the next start"),
    }
    app.sockets_closed(GOODBYE).await;
    tracing::info!("stopped");
    Ok(())
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

fn settings(config: &Config) -> Settings {
    Settings {
        session_ttl: config.session.ttl(),
        max_sessions: config.session.max_sessions,
        max_processes: config.session.max_processes,
        capture_bytes: config.session.capture_bytes,
        stop_grace: Duration::from_secs(config.session.stop_grace_sec),
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
    root.unwrap_or_else(|| config.state_dir.join("skills"))
}

fn bind_unix(config: &Config) -> Result<Option<UnixSocket>, ServeError> {
    if !config.http.unix_socket {
        return Ok(None);
    }
    let path = config.run_dir.join("boxwood.sock");
    match UnixSocket::bind(&path) {
        Ok(socket) => Ok(Some(socket)),
        // The kernel takes 107 bytes. A deep state directory is no reason not to serve.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            tracing::warn!(path = %path.display(), "the path is too long for a Unix socket; serving without it");
            Ok(None)
        }
        Err(source) => Err(ServeError::BindUnix {
            path: path.display().to_string(),
            source,
        }),
    }
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
