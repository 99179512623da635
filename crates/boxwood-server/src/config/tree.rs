//! The settings themselves, with their defaults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use boxwood_agent::{AgentSettings, BoxSection};
use boxwood_client::Token;
use boxwood_policy::{Maxima, MountsConfig, NetworkConfig, PolicyConfig, ProfileConfig};
use boxwood_session::ShutdownBoxes;
use serde::{Deserialize, Deserializer, de::Error as _};

use super::agent;
use super::load::{ConfigError, Environment};
use super::paths::DefaultPaths;
use super::peers::PeerNetwork;
use crate::load::LoadConfig;

use super::{EngineConfig, McpConfig, NsjailConfig, Pull, RecoveryConfig, ShutdownConfig};

/// All settings of the daemon, with defaults filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// `None`: only the Unix socket.
    pub listen: Option<SocketAddr>,
    pub state_dir: PathBuf,
    pub run_dir: PathBuf,
    /// `auto`, `local` or a backend's name.
    pub backend: String,
    /// Set explicitly by the operator. LangBot cannot override it then.
    pub backend_chosen: bool,
    pub session: SessionConfig,
    pub recovery: RecoveryConfig,
    pub shutdown: ShutdownConfig,
    pub http: HttpConfig,
    pub load: LoadConfig,
    pub auth: AuthConfig,
    /// Profiles, mounts, images, limits, network.
    pub policy: PolicyConfig,
    pub native: NativeConfig,
    pub docker: EngineConfig,
    pub podman: EngineConfig,
    pub nsjail: NsjailConfig,
    pub skills: SkillsConfig,
    pub langbot: LangBotConfig,
    pub mcp: McpConfig,
    /// Agent tools, over HTTP and MCP.
    pub agent: AgentSettings,
    /// Authenticates to the daemon at `box.runtime.endpoint`.
    pub runtime_token: Option<Token>,
    pub log: LogConfig,
}

impl Config {
    /// The longest configured pull timeout of the container engines.
    pub(crate) fn longest_pull(&self) -> Duration {
        [&self.docker, &self.podman]
            .into_iter()
            .filter(|engine| engine.pull == Pull::Missing)
            .map(EngineConfig::pull_timeout)
            .max()
            .unwrap_or_default()
    }
}

/// The schema of the file. All keys are optional; unknown keys are errors.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Tree {
    listen: Option<Listen>,
    state_dir: Option<PathBuf>,
    run_dir: Option<PathBuf>,
    backend: Option<String>,
    session: SessionConfig,
    recovery: RecoveryConfig,
    shutdown: ShutdownConfig,
    http: HttpConfig,
    load: LoadConfig,
    auth: AuthConfig,
    // The fields of `boxwood_policy::PolicyConfig`, which are top-level keys of the file.
    default_profile: Option<String>,
    profiles: BTreeMap<String, ProfileConfig>,
    mounts: MountsConfig,
    images: BTreeMap<String, PathBuf>,
    limits: Maxima,
    network: NetworkConfig,
    native: NativeConfig,
    docker: EngineConfig,
    #[serde(deserialize_with = "EngineConfig::podman")]
    podman: EngineConfig,
    nsjail: NsjailConfig,
    skills: SkillsConfig,
    langbot: LangBotConfig,
    mcp: McpConfig,
    #[serde(rename = "box")]
    agent: BoxSection,
    log: LogConfig,
}

impl Tree {
    /// Checks that span several keys of the `[box]` table.
    pub(super) fn check_agent(&self) -> Result<(), ConfigError> {
        agent::resolve(&self.agent, &self.profiles).map(drop)
    }

    pub(super) fn resolve(
        self,
        defaults: &DefaultPaths,
        environment: &Environment,
    ) -> Result<Config, ConfigError> {
        if self.shutdown.boxes != ShutdownBoxes::Stop && self.recovery.grace_sec == 0 {
            return Err(ConfigError::NothingKept);
        }
        let own_state_dir = self.state_dir.clone();
        let state_dir = self
            .state_dir
            .or_else(|| defaults.state_dir.clone())
            .ok_or(ConfigError::NoStateDir)?;
        // A daemon with its own state directory is a second daemon. It must not use the run directory
        // of the first.
        let run_dir = self
            .run_dir
            .or_else(|| own_state_dir.map(|dir| dir.join("run")))
            .or_else(|| defaults.run_dir.clone())
            .unwrap_or_else(|| state_dir.join("run"));
        let agent = self.agent.with_environment(agent::variables(environment));
        let agent = agent::resolve(&agent, &self.profiles)?;
        Ok(Config {
            listen: self.listen.unwrap_or_default().0,
            state_dir: absolute(state_dir)?,
            run_dir: absolute(run_dir)?,
            backend_chosen: self.backend.is_some(),
            backend: self.backend.unwrap_or_else(|| "auto".to_owned()),
            session: self.session,
            recovery: self.recovery,
            shutdown: self.shutdown,
            http: self.http,
            load: self.load,
            auth: self.auth,
            policy: PolicyConfig {
                default_profile: self.default_profile,
                profiles: self.profiles,
                mounts: self.mounts,
                images: self.images,
                limits: self.limits,
                network: self.network,
            },
            native: self.native,
            docker: self.docker,
            podman: self.podman,
            nsjail: self.nsjail,
            skills: SkillsConfig {
                root: self.skills.root.map(absolute).transpose()?,
                ..self.skills
            },
            langbot: self.langbot,
            mcp: self.mcp,
            agent,
            runtime_token: agent::token(environment)?,
            log: self.log,
        })
    }
}

/// Settings of the native backend.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NativeConfig {
    /// Number of prewarmed boxes that are ready for new sessions.
    pub pool_size: usize,
}

impl Default for NativeConfig {
    fn default() -> Self {
        Self { pool_size: 4 }
    }
}

/// The skill store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SkillsConfig {
    /// Directory of the packages; default `state_dir/skills`. LangBot cannot change it when it is set.
    pub root: Option<PathBuf>,
    pub limits: boxwood_skills::Limits,
}

/// Settings of the LangBot integration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LangBotConfig {
    /// Base of relative paths in its `box:` section; default: the daemon's working directory.
    pub root: Option<PathBuf>,
    /// Restricts its mounts and its skill directory. Default: any directory that is not blocked, because
    /// LangBot applies its own list.
    pub allowed_roots: Option<Vec<PathBuf>>,
    /// Addresses or networks that need no token on LangBot's routes: the client of SDK 0.4 cannot
    /// send one.
    pub trusted_peers: Vec<PeerNetwork>,
}

/// Relative directories are resolved once, against the working directory at startup.
pub(super) fn absolute(path: PathBuf) -> Result<PathBuf, ConfigError> {
    std::path::absolute(&path).map_err(|source| ConfigError::Absolute { path, source })
}

/// `ADDRESS:PORT`, where the address may be `localhost`; or `none`.
#[derive(Clone, Copy, Debug)]
struct Listen(Option<SocketAddr>);

impl Default for Listen {
    fn default() -> Self {
        Self(Some(SocketAddr::from(([127, 0, 0, 1], 5410))))
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        if text == "none" {
            return Ok(Self(None));
        }
        let address_text = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.clone(),
        };
        address_text
            .parse()
            .map(|address| Self(Some(address)))
            .map_err(|_| {
                D::Error::custom(format!(
                    "`{text}` is not an address and a port, such as `127.0.0.1:5410`"
                ))
            })
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionConfig {
    /// Idle sessions are deleted after this time; 0 disables it.
    pub ttl_sec: u64,
    pub max_sessions: usize,
    pub max_processes: usize,
    /// Bytes captured per output stream of a command.
    pub capture_bytes: usize,
    /// Time between SIGTERM and SIGKILL when a managed process is stopped.
    pub stop_grace_sec: u64,
    /// Boxes of sessions idle for this long are frozen until the next call; 0 disables it.
    pub freeze_after_sec: u64,
}

impl SessionConfig {
    pub fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_sec)
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            ttl_sec: 300,
            max_sessions: 1024,
            max_processes: 4096,
            capture_bytes: 1024 * 1024,
            stop_grace_sec: 5,
            freeze_after_sec: 0,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Maximum request body, except for file uploads.
    pub max_body_bytes: usize,
    pub max_connections: usize,
    /// Maximum number of connections from untrusted peers, counted separately.
    pub max_untrusted_connections: usize,
    pub max_headers: usize,
    pub max_header_bytes: usize,
    /// Timeout for a request head, and for idle connections.
    pub header_timeout_sec: u64,
    /// Timeout for the next chunk of a body, and for a complete JSON body.
    pub body_timeout_sec: u64,
    /// Interval of WebSocket pings. A client that sends nothing for two intervals is disconnected.
    pub ping_sec: NonZeroU64,
    /// Time for running requests to complete at shutdown.
    pub drain_sec: u64,
    /// Accepted `Host` names, in addition to `localhost` and the daemon's addresses.
    pub hosts: Vec<String>,
    /// Also listen on `run_dir/boxwood.sock`.
    pub unix_socket: bool,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            max_body_bytes: 16 * 1024 * 1024,
            max_connections: 4096,
            max_untrusted_connections: 256,
            max_headers: 100,
            max_header_bytes: 64 * 1024,
            header_timeout_sec: 30,
            body_timeout_sec: 30,
            ping_sec: const { NonZeroU64::new(20).unwrap() },
            drain_sec: 10,
            hosts: Vec::new(),
            unix_socket: true,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// Local users that need no token, in addition to root and the daemon's user.
    pub trusted_uids: Vec<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// A filter such as `info` or `boxwood_session=debug,info`.
    pub filter: Option<String>,
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}
