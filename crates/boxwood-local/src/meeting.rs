//! Where the init of a box that somebody else starts finds the daemon.
//!
//! Comes in: a name. Goes out: a directory to be mounted read-only in the box, with the init program and
//! a socket; then the one connection that comes from there. Never one directory for two boxes: all
//! that init knows of its peer is that it is outside.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use boxwood_init::{Channel, PROGRAM_NAME, SOCKET_NAME};
use boxwood_sys::peer;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;

use crate::host::LocalHost;
use crate::watched::watch;

/// Dropping it removes the directory.
pub struct Meeting {
    directory: PathBuf,
    listener: AsyncFd<OwnedFd>,
}

/// Whoever connected, pinned.
pub struct Caller {
    pub channel: Channel,
    pub pid: i32,
    pub pidfd: OwnedFd,
}

impl Meeting {
    /// Needs a Tokio runtime.
    pub fn arrange(host: &LocalHost, name: &str) -> io::Result<Self> {
        let parent = host.run_dir().join("boxes");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(&parent)?;
        let directory = parent.join(name);
        fs::DirBuilder::new().mode(0o755).create(&directory)?;
        // From here on an error removes the directory.
        let mut meeting = Unlisted(directory);
        let listener = meeting.furnish()?;
        let listener = watch(listener)?;
        Ok(Self {
            directory: std::mem::take(&mut meeting.0),
            listener,
        })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits for the first call; there is no second.
    pub async fn call(&self) -> io::Result<Caller> {
        let socket = loop {
            let mut ready = self.listener.readable().await?;
            match accept_with(self.listener.get_ref(), SocketFlags::CLOEXEC) {
                Err(rustix::io::Errno::WOULDBLOCK) => ready.clear_ready(),
                outcome => break outcome?,
            }
        };
        fs::remove_file(self.directory.join(SOCKET_NAME))?;
        let pid = peer::pid(socket.as_fd())?;
        let pidfd = match peer::pidfd(socket.as_fd()) {
            Ok(pidfd) => pidfd,
            Err(_) => by_number(pid)?,
        };
        Ok(Caller {
            channel: Channel::from(socket),
            pid,
            pidfd,
        })
    }
}

/// On kernels that do not hand out the pidfd of a peer. The caller is still connected, and whoever
/// waits for its plan does not end.
fn by_number(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

impl Drop for Meeting {
    fn drop(&mut self) {
        remove(&self.directory);
    }
}

struct Unlisted(PathBuf);

impl Unlisted {
    fn furnish(&mut self) -> io::Result<OwnedFd> {
        let mut program = File::options()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(self.0.join(PROGRAM_NAME))?;
        program.write_all(boxwood_init::PROGRAM)?;
        program.set_permissions(fs::Permissions::from_mode(0o755))?;
        drop(program);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let path = self.0.join(SOCKET_NAME);
        bind(&listener, &SocketAddrUnix::new(&path)?)?;
        // Whatever uid init has there.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o755))?;
        listen(&listener, 1)?;
        Ok(listener)
    }
}

impl Drop for Unlisted {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            remove(&self.0);
        }
    }
}

fn remove(directory: &Path) {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %directory.display(), "a box's directory was not removed");
        }
        _ => {}
    }
}
