//! The host directory that is mounted as `/workspace`, created if needed.
//!
//! Used only if the runtime shares this file system. Policy checks the mount again.

use std::path::PathBuf;

use crate::AgentSettings;

#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("box.local.default_workspace must point to a directory on the host")]
    NotADirectory,
    #[error(
        "box.local.default_workspace cannot be created because no allowed_mount_roots are configured"
    )]
    NoRoots,
    #[error(
        "box.local.default_workspace is outside allowed_mount_roots: {}",
        roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Outside { roots: Vec<PathBuf> },
    #[error("box.local.default_workspace cannot be created at `{}`", path.display())]
    Create {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl AgentSettings {
    /// Makes the default workspace where it is missing and lies below an allowed root.
    pub fn prepare_default_workspace(&self) -> Result<(), WorkspaceError> {
        let Some(path) = &self.default_workspace else {
            return Ok(());
        };
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => return Ok(()),
            Ok(_) => return Err(WorkspaceError::NotADirectory),
            Err(_) => {}
        }
        let roots = &self.allowed_mount_roots;
        if roots.is_empty() {
            return Err(WorkspaceError::NoRoots);
        }
        if !roots.iter().any(|root| path.starts_with(root)) {
            return Err(WorkspaceError::Outside {
                roots: roots.clone(),
            });
        }
        std::fs::create_dir_all(path).map_err(|source| WorkspaceError::Create {
            path: path.clone(),
            source,
        })
    }
}
