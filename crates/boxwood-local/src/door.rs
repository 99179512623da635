//! The door of a box: a socket by which the next daemon finds it.
//!
//! Comes in: whose box it is. Goes out: a bound socket for its init to listen on; later, the same place
//! as a list of boxes that may still be alive. Never here: what is said at the door.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use boxwood_backend::BoxHandle;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with,
};

const SUFFIX: &str = ".sock";
/// Below the run directory, beside other things of boxes.
const BOXES: &str = "boxes";
/// Another daemon that leaves may take the common directory away in between.
const TRIES: usize = 5;

/// A box's socket. Dropping it takes the socket away, unless the box was let go of.
pub(crate) struct Door {
    pub(crate) handle: BoxHandle,
    let_go: AtomicBool,
}

impl Door {
    /// Binds without listening: that is init's part, and what makes it known to whoever connects. The
    /// socket is for init alone.
    pub(crate) fn build(
        directory: &Path,
        backend: &str,
        name: &str,
    ) -> io::Result<(Self, OwnedFd)> {
        let file = format!("{backend}-{name}{SUFFIX}");
        let mut outcome = Err(io::ErrorKind::NotFound.into());
        for _ in 0..TRIES {
            make_directory(directory)?;
            outcome = bound(directory, &file);
            match outcome.as_ref().map_err(io::Error::kind) {
                Err(io::ErrorKind::NotFound) => {}
                _ => break,
            }
        }
        let socket = outcome?;
        let door = Self {
            handle: BoxHandle {
                backend: backend.to_owned(),
                name: name.to_owned(),
                socket: directory.join(file),
            },
            let_go: AtomicBool::new(false),
        };
        Ok((door, socket))
    }

    /// That of a box that was found again. It stays until somebody holds it.
    pub(crate) fn found(handle: BoxHandle) -> Self {
        Self {
            handle,
            let_go: AtomicBool::new(true),
        }
    }

    /// Stays when this is dropped.
    pub(crate) fn let_go(&self) {
        self.let_go.store(true, Ordering::Release);
    }

    /// Goes when this is dropped.
    pub(crate) fn hold(&self) {
        self.let_go.store(false, Ordering::Release);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if !self.let_go.load(Ordering::Acquire) {
            remove(&self.handle.socket);
        }
    }
}

pub(crate) fn remove(socket: &Path) {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %socket.display(), "a box's door was not removed");
        }
        _ => {}
    }
}

/// Where the doors of one instance are.
pub(crate) fn directory(run_dir: &Path, instance: &str) -> PathBuf {
    run_dir.join(BOXES).join(instance)
}

/// Removes the directory when no door is in it.
pub(crate) fn remove_directory(directory: &Path) {
    let _ = fs::remove_dir(directory);
}

/// Nobody but the daemon's user gets as far as the socket.
fn make_directory(directory: &Path) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome,
    }
}

/// An address has room for a hundred letters, whatever the operator calls his directories.
fn address(directory: &File, file: &str) -> io::Result<SocketAddrUnix> {
    let short = format!("/proc/self/fd/{}/{file}", directory.as_raw_fd());
    Ok(SocketAddrUnix::new(short)?)
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

fn bound(directory: &Path, file: &str) -> io::Result<OwnedFd> {
    let socket = socket(SocketFlags::empty())?;
    let opened = File::open(directory)?;
    bind(&socket, &address(&opened, file)?)?;
    fs::set_permissions(directory.join(file), fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// Connects to whoever listens there.
pub(crate) fn knock(path: &Path) -> io::Result<OwnedFd> {
    let parts = path
        .parent()
        .zip(path.file_name().and_then(|it| it.to_str()));
    let (directory, file) = parts.ok_or(io::ErrorKind::InvalidInput)?;
    let opened = File::open(directory)?;
    // An init that does not come to its door must not hold us up.
    let socket = socket(SocketFlags::NONBLOCK)?;
    connect(&socket, &address(&opened, file)?)?;
    Ok(socket)
}

/// Every door there is, of whichever backend.
pub(crate) fn all(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.ends_with(SUFFIX))
        })
        .collect()
}

/// Backend and name, as the socket's own name tells them.
fn parts(socket: &Path) -> Option<(&str, &str)> {
    let file = socket.file_name()?.to_str()?;
    file.strip_suffix(SUFFIX)?.split_once('-')
}

pub(crate) fn name_of(socket: &Path) -> Option<&str> {
    parts(socket).map(|(_, name)| name)
}

/// The doors of one backend's boxes.
pub(crate) fn of_backend(directory: &Path, backend: &str) -> Vec<BoxHandle> {
    let handle = |socket: PathBuf| {
        let (of, name) = parts(&socket)?;
        (of == backend).then(|| BoxHandle {
            backend: backend.to_owned(),
            name: name.to_owned(),
            socket: socket.clone(),
        })
    };
    let mut handles: Vec<BoxHandle> = all(directory).into_iter().filter_map(handle).collect();
    handles.sort();
    handles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_found_by_backend_and_go_unless_let_go_of() {
        let run = tempfile::tempdir().expect("a directory");
        // Longer than an address has room for.
        let place = directory(&run.path().join("x".repeat(150)), "instance");
        let (one, _socket) = Door::build(&place, "native", "b1-0-0").expect("a door");
        let (other, _other) = Door::build(&place, "docker", "c-b-1").expect("a door");
        assert_eq!(
            of_backend(&place, "native"),
            std::slice::from_ref(&one.handle)
        );
        assert_eq!(
            of_backend(&place, "docker"),
            std::slice::from_ref(&other.handle)
        );
        // Nobody listens.
        assert!(knock(&one.handle.socket).is_err());
        other.let_go();
        drop((one, other));
        assert_eq!(all(&place).len(), 1);
    }
}
