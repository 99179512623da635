//! Where the init of a box that somebody else starts finds the daemon.
//!
//! Comes in: a name. Goes out: a directory to be mounted read-only in the box (or opened for its
//! init), with a socket and, where it is wanted, the init program; then the one connection that comes
//! from there. Never one directory for two boxes: all that init knows of its peer is that it is
//! outside.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use boxwood_init::{Channel, PROGRAM_NAME, SOCKET_NAME};
use boxwood_sys::peer;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;

use crate::host::LocalHost;
use crate::names;
use crate::watched::watch;

const TRIES: usize = 5;

/// Dropping it removes the directory.
pub struct Meeting {
    directory: PathBuf,
    listener: AsyncFd<OwnedFd>,
    let_go: AtomicBool,
}

/// What is left of an earlier daemon's meeting place. Dropping it removes the directory.
pub struct Left {
    directories: [PathBuf; 2],
    let_go: AtomicBool,
}

impl Left {
    /// The box outlives this daemon: the directory stays.
    pub fn let_go(&self) {
        self.let_go.store(true, Ordering::Release);
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        if !self.let_go.load(Ordering::Acquire) {
            for directory in &self.directories {
                remove(directory);
            }
        }
    }
}

/// Whoever connected, pinned.
pub struct Caller {
    pub channel: Channel,
    pub pid: i32,
    pub pidfd: OwnedFd,
}

impl Meeting {
    /// With the init program beside the socket. Needs a Tokio runtime.
    pub fn arrange(host: &LocalHost, name: &str) -> io::Result<Self> {
        Self::make(host, name, Program::Beside)
    }

    /// With the socket alone, for whoever executes init by other means. Needs a Tokio runtime.
    pub fn arrange_socket(host: &LocalHost, name: &str) -> io::Result<Self> {
        Self::make(host, name, Program::Elsewhere)
    }

    fn make(host: &LocalHost, name: &str, program: Program) -> io::Result<Self> {
        let directory = parent(host, program).join(name);
        make_directory(&directory)?;
        // From here on an error removes the directory.
        let mut meeting = Unlisted(directory);
        if program == Program::Beside {
            meeting.put_program()?;
        }
        let listener = watch(meeting.listen()?)?;
        Ok(Self {
            directory: std::mem::take(&mut meeting.0),
            listener,
            let_go: AtomicBool::new(false),
        })
    }

    /// Removes the common directories when nobody, of whatever daemon, is in them.
    pub(crate) fn remove_parents(host: &LocalHost) {
        for program in [Program::Beside, Program::Elsewhere] {
            let _ = fs::remove_dir(parent(host, program));
        }
    }

    /// Removes the directories that killed daemons left and no adopted box has.
    pub(crate) fn settle(host: &LocalHost) {
        let is_left = |name: &str| names::maker_is_dead(name) && !host.heritage.is_wanted(name);
        for program in [Program::Beside, Program::Elsewhere] {
            let entries = fs::read_dir(parent(host, program)).into_iter().flatten();
            for entry in entries.flatten() {
                if entry.file_name().to_str().is_some_and(is_left) {
                    remove(&entry.path());
                }
            }
        }
    }

    /// That of a box which was found again, by the name it was arranged under. Nobody calls there any
    /// more; what is left of it goes with the box. The name comes back from inside a box, and is about
    /// to be part of a path.
    pub fn found(host: &LocalHost, name: &str) -> io::Result<Left> {
        if !names::is_one(name) {
            return Err(io::Error::other("its meeting place has no name of ours"));
        }
        host.heritage.adopt(name);
        let directories =
            [Program::Beside, Program::Elsewhere].map(|it| parent(host, it).join(name));
        Ok(Left {
            directories,
            let_go: AtomicBool::new(false),
        })
    }

    /// The name it was arranged under.
    pub fn name(&self) -> Option<&str> {
        self.directory.file_name()?.to_str()
    }

    /// The box outlives this daemon: the directory stays.
    pub fn let_go(&self) {
        self.let_go.store(true, Ordering::Release);
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
pub(crate) fn by_number(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

impl Drop for Meeting {
    fn drop(&mut self) {
        if !self.let_go.load(Ordering::Acquire) {
            remove(&self.directory);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Beside,
    Elsewhere,
}

/// Most hosts mount `/run` so that nothing there can be executed, and a box sees it as it is.
fn parent(host: &LocalHost, program: Program) -> PathBuf {
    match program {
        Program::Beside => host.state_dir().join("boxes"),
        Program::Elsewhere => host.run_dir().join("boxes"),
    }
}

/// Another daemon that leaves may take the common directory away in between.
fn make_directory(directory: &Path) -> io::Result<()> {
    let mut outcome = Ok(());
    for _ in 0..TRIES {
        if let Some(parent) = directory.parent() {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o711).create(parent)?;
        }
        outcome = fs::DirBuilder::new().mode(0o755).create(directory);
        match outcome.as_ref().map_err(io::Error::kind) {
            Err(io::ErrorKind::NotFound) => {}
            // Names are given once. This one is that of a dead process with our pid.
            Err(io::ErrorKind::AlreadyExists) => fs::remove_dir_all(directory)?,
            _ => break,
        }
    }
    outcome
}

struct Unlisted(PathBuf);

impl Unlisted {
    fn put_program(&self) -> io::Result<()> {
        let mut program = File::options()
            .write(true)
            .create_new(true)
            .mode(0o755)
            .open(self.0.join(PROGRAM_NAME))?;
        program.write_all(boxwood_init::PROGRAM)?;
        program.set_permissions(fs::Permissions::from_mode(0o755))
    }

    fn listen(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let path = self.0.join(SOCKET_NAME);
        // An address has room for a hundred letters, whatever the operator calls his directories.
        let directory = File::open(&self.0)?;
        let short = format!("/proc/self/fd/{}/{SOCKET_NAME}", directory.as_raw_fd());
        bind(&listener, &SocketAddrUnix::new(short)?)?;
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
