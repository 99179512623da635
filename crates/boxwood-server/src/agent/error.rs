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
        let hint = match self {
            Self::Endpoint(_) => {
                "set it to the address of the other daemon, such as `http://10.0.0.7:5410` or `unix:///run/boxwood/boxwood.sock`"
            }
            Self::NotADirectory => {
                "set `default_workspace` under `[box.local]` to a directory, or remove it"
            }
            Self::NoRoots => {
                "set `host_root` or `allowed_mount_roots` under `[box.local]`, or remove `default_workspace`"
            }
            Self::Denied(Denial::OutsideRoots { .. }) => {
                "choose a directory below one of these, or add another to `allowed_mount_roots` under `[box.local]`"
            }
            Self::Denied(denial) => return denial.hint(),
            Self::Make { .. } => "create it, or give the daemon's user the permission to create it",
        };
        Some(hint.to_owned())
    }
}
