//! Which backend a configuration means.

use std::sync::Arc;

use boxwood_api::ErrorCode;
use boxwood_backend::{Backend, StartError};
use boxwood_backend_native::NativeBackend;
use boxwood_local::{Kind, LocalHost, NetworkSettings, Settings};

use crate::Config;

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("there is no backend `{name}`; this build has `native`")]
    Unknown { name: String },
    #[error("network.{key}: {message}")]
    Network { key: &'static str, message: String },
    #[error("network.allow_host: native boxes always have a network of their own")]
    HostNetwork,
    #[error(transparent)]
    Start(#[from] StartError),
}

impl LaunchError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Unknown { .. } | Self::Network { .. } | Self::HostNetwork => {
                ErrorCode::ValidationError
            }
            Self::Start(error) => error.code(),
        }
    }

    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unknown { .. } => Some("start with `--backend native`"),
            Self::Network { .. } => None,
            Self::HostNetwork => Some("remove the key, or set it to false"),
            Self::Start(error) => error.hint(),
        }
    }
}

/// Whether boxes are made ahead of time: a daemon does, a single command need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolUse {
    Ahead,
    OnDemand,
}

/// Starts the configured backend. Call it before the process has threads.
pub fn launch(config: &Config, pool: PoolUse) -> Result<Arc<dyn Backend>, LaunchError> {
    // `local` is what the seed's configuration says for "whatever this machine has".
    if !matches!(config.backend.as_str(), "native" | "local" | "") {
        return Err(LaunchError::Unknown {
            name: config.backend.clone(),
        });
    }
    if config.policy.network.allow_host {
        return Err(LaunchError::HostNetwork);
    }
    let settings = Settings {
        kind: match pool {
            PoolUse::Ahead => Kind::Daemon,
            PoolUse::OnDemand => Kind::Single,
        },
        state_dir: config.state_dir.clone(),
        run_dir: config.run_dir.clone(),
        network: network(config)?,
    };
    let pool_size = match pool {
        PoolUse::Ahead => config.native.pool_size,
        PoolUse::OnDemand => 0,
    };
    let host = LocalHost::launch(&settings)?;
    Ok(Arc::new(NativeBackend::new(host, pool_size)))
}

fn network(config: &Config) -> Result<NetworkSettings, LaunchError> {
    let network = &config.policy.network;
    let subnet = |key, text: &String| {
        text.parse().map_err(|_| LaunchError::Network {
            key,
            message: format!("`{text}` is not a network such as `10.213.0.0/16`"),
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
