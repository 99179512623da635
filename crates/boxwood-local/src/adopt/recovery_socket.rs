//! The recovery socket of a box: the next daemon connects to init there.
//!
//! The daemon binds it and init listens on it. The directory of an instance lists the boxes that may
//! still be running.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use boxwood_backend::BoxHandle;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with,
};

const SUFFIX: &str = ".sock";
/// Directory below the run directory.
const BOXES: &str = "boxes";
/// Another daemon that shuts down may remove the common directory in between.
const ATTEMPTS: usize = 5;

/// Binds the socket of a box without listening: init listens, so that the peer credentials are init's.
pub(crate) fn create(
    directory: &Path,
    backend: &str,
    name: &str,
) -> io::Result<(BoxHandle, OwnedFd)> {
    let file = format!("{backend}-{name}{SUFFIX}");
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for _ in 0..ATTEMPTS {
        make_directory(directory)?;
        // Only the daemon's user may use the socket.
        outcome = bind_in(directory, &file, SocketFlags::empty(), 0o600);
        match outcome.as_ref().map_err(io::Error::kind) {
            Err(io::ErrorKind::NotFound) => {}
            _ => break,
        }
    }
    let handle = BoxHandle {
        backend: backend.to_owned(),
        name: name.to_owned(),
        socket: directory.join(file),
    };
    Ok((handle, outcome?))
}

pub(crate) fn remove(socket: &Path) {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %socket.display(), "failed to remove a recovery socket");
        }
        _ => {}
    }
}

/// The directory with the sockets of one instance.
pub(crate) fn directory(run_dir: &Path, instance: &str) -> PathBuf {
    run_dir.join(BOXES).join(instance)
}

/// Removes the directory, and the one of all instances, if they are empty.
pub(crate) fn remove_directory(directory: &Path) {
    let _ = fs::remove_dir(directory);
    if let Some(parent) = directory.parent() {
        let _ = fs::remove_dir(parent);
    }
}

/// Only the daemon's user can enter the directory.
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

/// A socket address has room for about 100 bytes, and the directory may have a longer path.
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

/// Binds a socket in a directory, without listening.
pub(crate) fn bind_in(
    directory: &Path,
    file: &str,
    flags: SocketFlags,
    mode: u32,
) -> io::Result<OwnedFd> {
    let socket = socket(flags)?;
    let opened = File::open(directory)?;
    bind(&socket, &address(&opened, file)?)?;
    fs::set_permissions(directory.join(file), fs::Permissions::from_mode(mode))?;
    Ok(socket)
}

/// Connects to the listener at `path`.
pub(crate) fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let parts = path
        .parent()
        .zip(path.file_name().and_then(|name| name.to_str()));
    let (directory, file) = parts.ok_or(io::ErrorKind::InvalidInput)?;
    let opened = File::open(directory)?;
    // Nonblocking, so that an init that does not accept cannot block the daemon.
    let socket = socket(SocketFlags::NONBLOCK)?;
    connect(&socket, &address(&opened, file)?)?;
    Ok(socket)
}

/// Every socket in the directory, of any backend.
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

/// Backend and box name, from the file name of the socket.
fn parts(socket: &Path) -> Option<(&str, &str)> {
    let file = socket.file_name()?.to_str()?;
    file.strip_suffix(SUFFIX)?.split_once('-')
}

pub(crate) fn name_of(socket: &Path) -> Option<&str> {
    parts(socket).map(|(_, name)| name)
}

/// The sockets of one backend's boxes.
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
    fn sockets_are_found_by_backend_until_they_are_removed() {
        let run = tempfile::tempdir().expect("a directory");
        // Longer than a socket address.
        let socket_dir = directory(&run.path().join("x".repeat(150)), "instance");
        let (one, _socket) = create(&socket_dir, "native", "b1-0-0").expect("bind");
        let (other, _other) = create(&socket_dir, "docker", "c-b-1").expect("bind");
        assert_eq!(
            of_backend(&socket_dir, "native"),
            std::slice::from_ref(&one)
        );
        assert_eq!(
            of_backend(&socket_dir, "docker"),
            std::slice::from_ref(&other)
        );
        // There is no listener.
        assert!(connect_to(&one.socket).is_err());
        remove(&one.socket);
        assert_eq!(all(&socket_dir), [other.socket]);
    }
}
