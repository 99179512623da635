//! Creates the backends, in order of preference. Their availability is probed later.

use std::sync::Arc;

use boxwood_api::ErrorCode;
use boxwood_backend::StartError;
use boxwood_backend_container::{ContainerBackend, Engine};
use boxwood_backend_native::NativeBackend;
use boxwood_backend_nsjail::{NsjailBackend, NsjailSettings};
use boxwood_local::{Kind, LocalHost, NetworkSettings, Settings};
use boxwood_session::{Backends, Candidate, Choice, SessionError};

use crate::Config;
use crate::agent;

const NATIVE: &str = "native";
const DOCKER: &str = "docker";
const PODMAN: &str = "podman";
const NSJAIL: &str = "nsjail";
const E2B: &str = "e2b";

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{setting}: {source}")]
    Backend {
        setting: String,
        source: SessionError,
    },
    #[error("network.{key}: {message}")]
    Network { key: &'static str, message: String },
    #[error(transparent)]
    Start(#[from] StartError),
}

impl LaunchError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Backend { source, .. } => source.code(),
            Self::Network { .. } => ErrorCode::ValidationError,
            Self::Start(error) => error.code(),
        }
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Backend { source, .. } => source.hint(),
            Self::Network { .. } => None,
            Self::Start(error) => error.hint().map(str::to_owned),
        }
    }
}

/// Whether boxes are prewarmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolUse {
    /// In the daemon.
    Ahead,
    /// In a command without a daemon: `boxwood run` and `boxwood doctor`.
    OnDemand,
}

/// Creates the backends. Must be called before the process has threads.
pub fn launch(config: &Config, pool: PoolUse) -> Result<Backends, LaunchError> {
    let choice = Choice::new(&config.backend);
    let backends = Backends::new(candidates(config, pool, &choice)?, choice);
    check_names(config, &backends)?;
    Ok(backends)
}

/// Validates the settings of [`launch`] and the profiles' backends without launching anything.
pub(crate) fn check(config: &Config) -> Result<(), LaunchError> {
    network(config)?;
    let names = [NATIVE, DOCKER, PODMAN, NSJAIL, E2B];
    let absent = |name: &str| Candidate::absent(name, "it was not launched", "");
    let candidates: Vec<_> = names.into_iter().map(absent).collect();
    let backends = Backends::new(candidates, Choice::Auto);
    check_names(config, &backends)?;
    let profiles = &config.policy.profiles;
    profiles
        .iter()
        .try_for_each(|(name, profile)| check_profile(name, profile.backend.as_deref(), &backends))
}

/// `box.backend` is not checked if `box.runtime.endpoint` names another daemon, whose backends are not known here.
fn check_names(config: &Config, backends: &Backends) -> Result<(), LaunchError> {
    check_name("backend", &config.backend, backends)?;
    match agent::own_backend(&config.agent) {
        Some(name) if config.agent.endpoint.is_none() => check_name("box.backend", &name, backends),
        _ => Ok(()),
    }
}

pub(crate) fn check_profile(
    profile: &str,
    backend: Option<&str>,
    backends: &Backends,
) -> Result<(), LaunchError> {
    let setting = format!("profiles.{profile}.backend");
    check_name(&setting, backend.unwrap_or_default(), backends)
}

fn check_name(setting: &str, name: &str, backends: &Backends) -> Result<(), LaunchError> {
    let checked = backends.check(name);
    checked.map_err(|source| LaunchError::Backend {
        setting: setting.to_owned(),
        source,
    })
}

/// In order of preference. Creating a backend is cheap and runs nothing, except for the helper
/// process that all local backends share, which is forked here.
fn candidates(
    config: &Config,
    pool: PoolUse,
    choice: &Choice,
) -> Result<Vec<Candidate>, LaunchError> {
    if config.policy.network.allow_host {
        tracing::warn!(
            "network.allow_host has no effect and will be removed: boxes always have a network of \
             their own"
        );
    }
    let is_native_preferred = !matches!(choice, Choice::Named(name) if name != NATIVE);
    let host = LocalHost::launch(&Settings {
        kind: match pool {
            PoolUse::Ahead => Kind::Daemon,
            PoolUse::OnDemand => Kind::Single,
        },
        state_dir: config.state_dir.clone(),
        run_dir: config.run_dir.clone(),
        network: network(config)?,
        grace: config.recovery.grace(),
    })?;
    let pool_size = match pool {
        PoolUse::Ahead if is_native_preferred => config.native.pool_size,
        PoolUse::Ahead | PoolUse::OnDemand => 0,
    };
    let container = |settings| ContainerBackend::new(Arc::clone(&host), settings);
    let nsjail = NsjailSettings {
        program: config.nsjail.program.clone().into(),
    };
    Ok(vec![
        Candidate::initialised(Arc::new(NativeBackend::new(Arc::clone(&host), pool_size))),
        Candidate::initialised(Arc::new(container(config.docker.settings(Engine::Docker)))),
        Candidate::initialised(Arc::new(container(config.podman.settings(Engine::Podman)))),
        Candidate::initialised(Arc::new(NsjailBackend::new(Arc::clone(&host), nsjail))),
        Candidate::absent(
            E2B,
            "this build of Boxwood has no E2B backend",
            "use a backend on this machine: `boxwood doctor` shows them",
        )
        .remote(),
    ])
}

fn network(config: &Config) -> Result<NetworkSettings, LaunchError> {
    let network = &config.policy.network;
    let subnet = |key, text: &String| {
        text.parse().map_err(|_| LaunchError::Network {
            key,
            message: format!("`{text}` is not a network in CIDR notation, such as `10.213.0.0/16`"),
        })
    };
    Ok(NetworkSettings {
        pool: network
            .pool
            .as_ref()
            .map(|text| subnet("pool", text))
            .transpose()?,
        dns: network.dns.clone(),
        denied: network
            .denied
            .iter()
            .map(|text| subnet("denied", text))
            .collect::<Result<_, _>>()?,
    })
}
