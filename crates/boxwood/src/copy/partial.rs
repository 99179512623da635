//! A file that appears under its name when it is complete.
//!
//! It is written next to its target under a temporary name and then renamed, so that an existing link is replaced and
//! never followed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt as _;

use crate::failure::{Failure, Outcome};

pub(super) fn unwritable(path: &Path, error: io::Error) -> Failure {
    Failure::local(format!("`{}` could not be written", path.display()), error)
}

/// A file on its way. Removed again unless it arrives.
pub(crate) struct Partial {
    path: PathBuf,
    file: tokio::fs::File,
    arrived: bool,
}

impl Partial {
    pub(crate) fn beside(target: &Path) -> Outcome<Self> {
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce)
            .map_err(|error| unwritable(target, io::Error::other(error.to_string())))?;
        let name = format!(".boxwood-{:016x}.part", u64::from_le_bytes(nonce));
        let path = target.parent().unwrap_or(Path::new("")).join(name);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options
            .open(&path)
            .map_err(|error| unwritable(target, error))?;
        Ok(Self {
            path,
            file: file.into(),
            arrived: false,
        })
    }

    pub(crate) async fn write(&mut self, target: &Path, bytes: &[u8]) -> Outcome<()> {
        let written = self.file.write_all(bytes).await;
        written.map_err(|error| unwritable(target, error))
    }

    pub(crate) async fn settle(mut self, target: &Path, mode: u32) -> Outcome<()> {
        let settle = async {
            self.file.flush().await?;
            set_mode(&self.file, mode).await?;
            fs::rename(&self.path, target)
        };
        settle.await.map_err(|error| unwritable(target, error))?;
        self.arrived = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.arrived {
            // Already on the way out with an error; a file that cannot be removed adds nothing.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Without setuid, setgid and sticky: a box must not make such a file here.
#[cfg(unix)]
async fn set_mode(file: &tokio::fs::File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(mode & 0o777))
        .await
}

#[cfg(not(unix))]
async fn set_mode(_: &tokio::fs::File, _: u32) -> io::Result<()> {
    Ok(())
}
