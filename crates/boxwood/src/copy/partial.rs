//! A file that appears under its name when it is complete.
//!
//! It is written next to its target under a temporary name and then renamed, so that an existing link is replaced and
//! never followed.

use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt as _;

use crate::failure::{Failure, Outcome};

pub(super) fn unwritable(path: &Path, error: io::Error) -> Failure {
    Failure::local(format!("cannot write `{}`", path.display()), error)
}

/// An incomplete file. Removed when dropped, unless it was completed.
pub(crate) struct Partial {
    path: PathBuf,
    file: tokio::fs::File,
    is_complete: bool,
}

impl Partial {
    pub(crate) fn beside(target: &Path) -> Outcome<Self> {
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce)
            .map_err(|error| unwritable(target, io::Error::other(error.to_string())))?;
        let name = format!(".boxwood-{:016x}.part", u64::from_le_bytes(nonce));
        let path = target.parent().unwrap_or(Path::new("")).join(name);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options
            .open(&path)
            .map_err(|error| unwritable(target, error))?;
        Ok(Self {
            path,
            file: file.into(),
            is_complete: false,
        })
    }

    pub(crate) async fn write(&mut self, target: &Path, bytes: &[u8]) -> Outcome<()> {
        let written = self.file.write_all(bytes).await;
        written.map_err(|error| unwritable(target, error))
    }

    /// Sets the mode and gives the file its name.
    pub(crate) async fn complete(mut self, target: &Path, mode: u32) -> Outcome<()> {
        let completing = async {
            self.file.flush().await?;
            // Without setuid, setgid and sticky: a box must not create such files on the host.
            let permissions = fs::Permissions::from_mode(mode & 0o777);
            self.file.set_permissions(permissions).await?;
            fs::rename(&self.path, target)
        };
        completing
            .await
            .map_err(|error| unwritable(target, error))?;
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_complete {
            // Another error is being returned already.
            let _ = fs::remove_file(&self.path);
        }
    }
}
