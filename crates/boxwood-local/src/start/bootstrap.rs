//! The bootstrap directory, in which the init of a box finds the daemon.
//!
//! The directory is mounted read-only in the box, or opened for its init. It contains a socket and
//! optionally the init program. Init connects once. Every box has its own directory, because it is all that
//! identifies the connection.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use boxwood_init::{Channel, PROGRAM_NAME, SOCKET_NAME};
use rustix::net::{SocketFlags, accept_with, listen};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::adopt::peer_of;
use crate::adopt::recovery_socket::bind_in;
use crate::host::LocalHost;
use crate::host::names;
use crate::process::async_fd::async_fd;

const ATTEMPTS: usize = 5;

/// Dropping it removes the directory.
pub struct BootstrapDir {
    directory: PathBuf,
    /// `None` if an earlier daemon created the directory.
    listener: Option<AsyncFd<OwnedFd>>,
    detach: AtomicBool,
}

/// The connection of an init, with its pid and pidfd.
pub struct InitConnection {
    pub channel: Channel,
    pub pid: i32,
    pub pidfd: OwnedFd,
}

impl BootstrapDir {
    /// With the init program besides the socket. Needs a Tokio runtime.
    pub fn create(host: &LocalHost, name: &str) -> io::Result<Self> {
        let bootstrap = Self::create_socket_only(host, name)?;
        bootstrap.write_program()?;
        Ok(bootstrap)
    }

    /// With the socket only, if init is executed by other means. Needs a Tokio runtime.
    pub fn create_socket_only(host: &LocalHost, name: &str) -> io::Result<Self> {
        let directory = parent(host).join(name);
        make_directory(&directory)?;
        // From here on an error removes the directory.
        let mut bootstrap = Self::at(directory);
        bootstrap.listener = Some(async_fd(bootstrap.listen()?)?);
        Ok(bootstrap)
    }

    fn at(directory: PathBuf) -> Self {
        Self {
            directory,
            listener: None,
            detach: AtomicBool::new(false),
        }
    }

    /// Removes the common directory if no daemon uses it.
    pub(crate) fn remove_parent(host: &LocalHost) {
        let _ = fs::remove_dir(parent(host));
    }

    /// Removes directories of killed daemons that do not belong to an adopted box.
    pub(crate) fn remove_leftovers(host: &LocalHost) {
        let is_leftover =
            |name: &str| names::creator_is_dead(name) && !host.inherited.is_wanted(name);
        for entry in fs::read_dir(parent(host)).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(is_leftover) {
                remove(&entry.path());
            }
        }
    }

    /// The bootstrap directory of an adopted box, which is removed with the box. The name is untrusted
    /// because it was kept inside a box, and becomes part of a path.
    pub fn leftover(host: &LocalHost, name: &str) -> io::Result<Self> {
        if !names::is_box_name(name) {
            return Err(io::Error::other("the bootstrap directory has no box name"));
        }
        host.inherited.adopt(name);
        Ok(Self::at(parent(host).join(name)))
    }

    /// The name that it was created with.
    pub fn name(&self) -> Option<&str> {
        self.directory.file_name()?.to_str()
    }

    /// Keeps the directory for the next daemon.
    pub fn detach(&self) {
        self.detach.store(true, Ordering::Release);
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Accepts the first connection. There is only one.
    pub async fn accept(&self) -> io::Result<InitConnection> {
        let listener = self.listener.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let accept = |listener: &OwnedFd| Ok(accept_with(listener, SocketFlags::CLOEXEC)?);
        let socket = listener.async_io(Interest::READABLE, accept).await?;
        fs::remove_file(self.directory.join(SOCKET_NAME))?;
        let (pid, pidfd) = peer_of(&socket)?;
        Ok(InitConnection {
            channel: Channel::from(socket),
            pid,
            pidfd,
        })
    }
}

impl Drop for BootstrapDir {
    fn drop(&mut self) {
        if !self.detach.load(Ordering::Acquire) {
            remove(&self.directory);
        }
    }
}

/// Not in the run directory: most hosts mount `/run` with `noexec`, which also applies inside a box.
fn parent(host: &LocalHost) -> PathBuf {
    host.state_dir.join("boxes")
}

/// Another daemon that shuts down may remove the common directory in between.
fn make_directory(directory: &Path) -> io::Result<()> {
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS {
        if let Some(parent) = directory.parent() {
            // `boxwood run` may be the first to use the state directory, which is private.
            if let Some(state_dir) = parent.parent() {
                let mut builder = fs::DirBuilder::new();
                builder.recursive(true).mode(0o700).create(state_dir)?;
            }
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o711).create(parent)?;
        }
        outcome = fs::DirBuilder::new().mode(0o755).create(directory);
        match outcome.as_ref().map_err(io::Error::kind) {
            Err(io::ErrorKind::NotFound) => {}
            // Names are unique, so this directory belongs to a dead process with our pid.
            Err(io::ErrorKind::AlreadyExists) => boxwood_sys::tree::remove(directory)?,
            _ => break,
        }
    }
    outcome
}

impl BootstrapDir {
    fn write_program(&self) -> io::Result<()> {
        let mut program = File::options()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(self.directory.join(PROGRAM_NAME))?;
        program.write_all(boxwood_init::PROGRAM)?;
        program.set_permissions(fs::Permissions::from_mode(0o755))
    }

    fn listen(&self) -> io::Result<OwnedFd> {
        // Init may have any uid.
        let listener = bind_in(&self.directory, SOCKET_NAME, SocketFlags::NONBLOCK, 0o666)?;
        fs::set_permissions(&self.directory, fs::Permissions::from_mode(0o755))?;
        listen(&listener, 1)?;
        Ok(listener)
    }
}

fn remove(directory: &Path) {
    if let Err(error) = boxwood_sys::tree::remove(directory) {
        tracing::warn!(%error, path = %directory.display(), "failed to remove a bootstrap directory");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_state_directory_is_created_private() {
        let temp = tempfile::tempdir().expect("a directory");
        let state_dir = temp.path().join("state");
        make_directory(&state_dir.join("boxes").join("b1-0-0")).expect("created");
        let mode = fs::metadata(&state_dir).expect("stat").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
