//! Errors in the agent settings.

use std::path::PathBuf;

use boxwood_client::ClientError;
use boxwood_policy::Denial;

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("box.runtime.endpoint is invalid")]
    Endpoint(#[source] ClientError),
    #[error("box.local.default_workspace must point to a directory on the host")]
    NotADirectory,
    #[error(
        "box.local.default_workspace cannot be created because no allowed_mount_roots are configured"
    )]
    NoRoots,
    #[error(transparent)]
    Denied(Denial),
    #[error("box.local.default_workspace `{}` could not be created", path.display())]
    Make {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl AgentError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Endpoint(_) => Some(
                "write the other daemon's address, such as `http://10.0.0.7:5410` or `unix:///run/boxwood/boxwood.sock`"
                    .to_owned(),
            ),
            Self::NotADirectory => Some(
                "name a directory in `default_workspace` under `[box.local]`, or none".to_owned(),
            ),
            Self::NoRoots => Some(
                "set `host_root` or `allowed_mount_roots` under `[box.local]`, or leave the workspace out"
                    .to_owned(),
            ),
            Self::Denied(Denial::OutsideRoots { .. }) => Some(
                "choose a directory below one of these, or add another to `allowed_mount_roots` under `[box.local]`"
                    .to_owned(),
            ),
            Self::Denied(denial) => denial.hint(),
            Self::Make { .. } => Some("create it, or let the daemon's user do so".to_owned()),
        }
    }
}
