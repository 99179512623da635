//! The settings themselves, with their defaults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use boxwood_agent::{AgentSettings, BoxSection};
use boxwood_client::Token;
use boxwood_policy::{Maxima, MountsConfig, NetworkConfig, PolicyConfig, ProfileConfig};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::agent;
use super::load::{ConfigError, Environment};
use super::peers::PeerNetwork;
use super::places::Places;
use crate::load::LoadConfig;

use super::{
    DockerConfig, McpConfig, NsjailConfig, PodmanConfig, Pull, RecoveryConfig, ShutdownConfig,
};

/// Everything the daemon was told, with every default filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// `None`: on the Unix socket alone.
    pub listen: Option<SocketAddr>,
    pub state_dir: PathBuf,
    pub run_dir: PathBuf,
    /// `auto`, `local` or a backend's name.
    pub backend: String,
    /// Whether the operator chose the backend; then nobody else does.
    pub backend_chosen: bool,
    pub session: SessionConfig,
    pub recovery: RecoveryConfig,
    pub shutdown: ShutdownConfig,
    pub http: HttpConfig,
    pub load: LoadConfig,
    pub auth: AuthConfig,
    /// Profiles, mounts, images, limits, network: what judgement goes by.
    pub policy: PolicyConfig,
    pub native: NativeConfig,
    pub docker: DockerConfig,
    pub podman: PodmanConfig,
    pub nsjail: NsjailConfig,
    pub skills: SkillsConfig,
    pub langbot: LangBotConfig,
    pub mcp: McpConfig,
    /// What agents get, over HTTP and MCP.
    pub agent: AgentSettings,
    /// For the daemon that `box.runtime.endpoint` names.
    pub runtime_token: Option<Token>,
    pub log: LogConfig,
}

impl Config {
    /// How long an engine may take to fetch an image.
    pub(crate) fn longest_pull(&self) -> Duration {
        let pulls = [
            (self.docker.pull, self.docker.pull_timeout()),
            (self.podman.pull, self.podman.pull_timeout()),
        ];
        let longest = pulls
            .into_iter()
            .filter(|(pull, _)| *pull == Pull::Missing)
            .map(|(_, timeout)| timeout)
            .max();
        longest.unwrap_or_default()
    }
}

/// The file's shape: everything may be left out, nothing may be misspelt.
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
    // The branches of `boxwood_policy::PolicyConfig`, which stand at the top level of the file.
    default_profile: Option<String>,
    profiles: BTreeMap<String, ProfileConfig>,
    mounts: MountsConfig,
    images: BTreeMap<String, PathBuf>,
    limits: Maxima,
    network: NetworkConfig,
    native: NativeConfig,
    docker: DockerConfig,
    podman: PodmanConfig,
    nsjail: NsjailConfig,
    skills: SkillsConfig,
    langbot: LangBotConfig,
    mcp: McpConfig,
    #[serde(rename = "box")]
    agent: BoxSection,
    log: LogConfig,
}

impl Tree {
    /// What only the whole `[box]` table can tell.
    pub(super) fn check_agent(&self) -> Result<(), ConfigError> {
        agent::settle(&self.agent, &self.profiles).map(drop)
    }

    pub(super) fn settle(
        self,
        places: &Places,
        environment: &Environment,
    ) -> Result<Config, ConfigError> {
        if let Some(boxes) = self.shutdown.keeps()
            && self.recovery.grace_sec == 0
        {
            return Err(ConfigError::NothingKept(boxes));
        }
        let own_state_dir = self.state_dir.clone();
        let state_dir =
            self.state_dir
                .or_else(|| places.state_dir.clone())
                .ok_or(ConfigError::NoPlace {
                    what: "state directory",
                    key: "state_dir",
                })?;
        // A daemon with a state directory of its own is a second daemon, and must not meet the
        // first one in the shared run directory.
        let run_dir = self
            .run_dir
            .or_else(|| own_state_dir.map(|dir| dir.join("run")))
            .or_else(|| places.run_dir.clone())
            .unwrap_or_else(|| state_dir.join("run"));
        let agent = self.agent.with_environment(agent::variables(environment));
        let agent = agent::settle(&agent, &self.profiles)?;
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

/// What concerns native boxes alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NativeConfig {
    /// How many blank boxes wait for work, so that a session starts at once.
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
    /// Where the packages are; `state_dir/skills` when left out. When it is given, LangBot cannot
    /// move it.
    pub root: Option<PathBuf>,
    pub limits: boxwood_skills::Limits,
}

/// What concerns LangBot alone.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LangBotConfig {
    /// Where relative paths of its `box:` section start; the daemon's working directory when left
    /// out.
    pub root: Option<PathBuf>,
    /// Caps what it may mount and where its skills may be. When left out, anything that is not
    /// blocked: LangBot keeps a list of its own.
    pub allowed_roots: Option<Vec<PathBuf>>,
    /// Addresses or networks whose connections need no token on LangBot's own routes, because its
    /// client of June cannot send one.
    pub trusted_peers: Vec<PeerNetwork>,
}

/// Relative directories are meant from where the daemon is started, and only there.
fn absolute(path: PathBuf) -> Result<PathBuf, ConfigError> {
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
        let spelled = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.clone(),
        };
        spelled
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
    /// Idle sessions go after this long; 0 keeps them.
    pub ttl_sec: u64,
    pub max_sessions: usize,
    pub max_processes: usize,
    /// Bytes kept of each stream of an exec.
    pub capture_bytes: usize,
    /// Between TERM and KILL when a managed process is stopped.
    pub stop_grace_sec: u64,
    /// Boxes of sessions idle for this long are frozen until the next call; 0 never does.
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
    /// The longest body of any request but a file upload.
    pub max_body_bytes: usize,
    pub max_connections: usize,
    /// Of these, at most so many belong to peers that are not trusted.
    pub max_untrusted_connections: usize,
    pub max_headers: usize,
    pub max_header_bytes: usize,
    /// For the head of a request to arrive, and for an idle connection to be used again.
    pub header_timeout_sec: u64,
    /// For the next piece of a body to arrive, and for a JSON body to be complete.
    pub body_timeout_sec: u64,
    /// Between two pings on a WebSocket. A client silent for two of these is let go.
    pub ping_sec: NonZeroU64,
    /// For running requests to end once the daemon was told to stop.
    pub drain_sec: u64,
    /// Host names under which clients reach the daemon, beside `localhost` and its addresses.
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
    /// Local users who need no token, beside root and the daemon's own.
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
