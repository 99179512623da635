//! The listening sockets: inherited from a service manager or the previous daemon, or bound here.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketType, listen, sockopt};

use crate::config::{ActivatedSocket, Config};

/// Backlog for connections during recovery and takeover. The kernel limits it to
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("failed to listen on {address}")]
    Bind {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("failed to listen on `{path}`")]
    BindUnix { path: String, source: io::Error },
    #[error("the socket `{name}` from {sender} cannot be used: {why}")]
    Unusable {
        name: String,
        sender: &'static str,
        why: &'static str,
    },
}

impl SocketError {
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Bind { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("the address is in use by another program; use another --listen address")
            }
            Self::Unusable { sender, .. } if *sender == SERVICE_MANAGER => Some(
                "give the daemon `ListenStream=` sockets with `Accept=no`, TCP or Unix, and nothing else",
            ),
            Self::Bind { .. } | Self::BindUnix { .. } | Self::Unusable { .. } => None,
        }
    }
}

const SERVICE_MANAGER: &str = "the service manager";
const PREDECESSOR: &str = "the previous daemon";

/// Who created a socket, and therefore removes its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketOwner {
    Daemon,
    ServiceManager,
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) kind: SocketKind,
    pub(crate) owner: SocketOwner,
}

#[derive(Debug)]
pub(crate) enum SocketKind {
    Tcp(TcpListener, SocketAddr),
    /// Without a path for an abstract name.
    Unix(UnixListener, Option<PathBuf>),
}

impl Socket {
    /// A socket passed by the service manager.
    pub(crate) fn activated(socket: ActivatedSocket) -> Result<Self, SocketError> {
        let owner = SocketOwner::ServiceManager;
        Self::inherited(socket.descriptor, socket.name, SERVICE_MANAGER, owner)
    }

    /// A socket passed by the previous daemon.
    pub(crate) fn handed_over(
        descriptor: OwnedFd,
        owner: SocketOwner,
    ) -> Result<Self, SocketError> {
        Self::inherited(descriptor, "handed over".to_owned(), PREDECESSOR, owner)
    }

    fn inherited(
        descriptor: OwnedFd,
        name: String,
        sender: &'static str,
        owner: SocketOwner,
    ) -> Result<Self, SocketError> {
        match kind_of(descriptor) {
            Ok(kind) => Ok(Self { kind, owner }),
            Err(why) => Err(SocketError::Unusable { name, sender, why }),
        }
    }

    fn bind_tcp(address: SocketAddr) -> Result<Self, SocketError> {
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listen(&listener, BACKLOG)?;
            listener.set_nonblocking(true)?;
            let local = listener.local_addr()?;
            Ok(SocketKind::Tcp(listener, local))
        };
        Ok(Self {
            kind: bind().map_err(|source| SocketError::Bind { address, source })?,
            owner: SocketOwner::Daemon,
        })
    }

    fn bind_unix(path: &Path) -> io::Result<Self> {
        let listener = bind_unix(path)?;
        listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            kind: SocketKind::Unix(listener, Some(path.to_owned())),
            owner: SocketOwner::Daemon,
        })
    }

    pub(crate) fn unix_path(&self) -> Option<&Path> {
        match &self.kind {
            SocketKind::Unix(_, path) => path.as_deref(),
            SocketKind::Tcp(..) => None,
        }
    }

    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.kind {
            SocketKind::Tcp(_, address) => Some(*address),
            SocketKind::Unix(..) => None,
        }
    }

    /// Both are absent for a Unix socket with an abstract name.
    fn address(&self) -> (Option<SocketAddr>, Option<&Path>) {
        (self.tcp_address(), self.unix_path())
    }

    fn is_unix(&self) -> bool {
        self.tcp_address().is_none()
    }

    /// The socket file to remove when the socket is closed.
    pub(crate) fn own_file(&self) -> Option<&Path> {
        self.unix_path()
            .filter(|_| self.owner == SocketOwner::Daemon)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            SocketKind::Tcp(listener, _) => listener.as_fd(),
            SocketKind::Unix(listener, _) => listener.as_fd(),
        }
    }
}

/// Checks that a descriptor is a usable listening socket.
fn kind_of(descriptor: OwnedFd) -> Result<SocketKind, &'static str> {
    const NO_SOCKET: &str = "it is not a socket";
    let kind = sockopt::socket_type(&descriptor).map_err(|_| NO_SOCKET)?;
    if kind != SocketType::STREAM {
        return Err("it is not a stream socket");
    }
    if !sockopt::socket_acceptconn(&descriptor).map_err(|_| NO_SOCKET)? {
        return Err("it is not a listening socket");
    }
    let family = sockopt::socket_domain(&descriptor).map_err(|_| NO_SOCKET)?;
    let unusable = |_| "its address cannot be read";
    if family == AddressFamily::INET || family == AddressFamily::INET6 {
        let listener = TcpListener::from(descriptor);
        listener.set_nonblocking(true).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        return Ok(SocketKind::Tcp(listener, address));
    }
    if family == AddressFamily::UNIX {
        let listener = UnixListener::from(descriptor);
        listener.set_nonblocking(true).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let path = address.as_pathname().map(Path::to_owned);
        return Ok(SocketKind::Unix(listener, path));
    }
    Err("it is neither TCP nor Unix")
}

/// The sockets to accept on, and those of the previous daemon that are no longer configured.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) used: Vec<Socket>,
    pub(crate) unused: Vec<Socket>,
}

/// Uses all sockets of the service manager, and those of the previous daemon that match the
/// configuration. Binds the missing ones.
pub(crate) fn choose(config: &Config, offered: Vec<Socket>) -> Result<Chosen, SocketError> {
    let mut chosen = Chosen::default();
    let (activated, own): (Vec<_>, Vec<_>) = offered
        .into_iter()
        .partition(|socket| socket.owner == SocketOwner::ServiceManager);
    for socket in activated {
        // The service manager may pass the same socket again after a takeover.
        if chosen
            .used
            .iter()
            .all(|used| used.address() != socket.address())
        {
            chosen.used.push(socket);
        }
    }
    let path = config.run_dir.join("boxwood.sock");
    let mut wants_tcp = chosen.used.iter().all(Socket::is_unix);
    let mut wants_unix = config.http.unix_socket && !chosen.used.iter().any(Socket::is_unix);
    for socket in own {
        let is_configured = match socket.tcp_address() {
            Some(address) => {
                wants_tcp
                    && config
                        .listen
                        .is_some_and(|configured| matches_address(configured, address))
            }
            None => wants_unix && socket.unix_path() == Some(&path),
        };
        if !is_configured {
            chosen.unused.push(socket);
            continue;
        }
        match socket.kind {
            SocketKind::Tcp(..) => wants_tcp = false,
            SocketKind::Unix(..) => wants_unix = false,
        }
        chosen.used.push(socket);
    }
    if let Some(address) = config.listen.filter(|_| wants_tcp) {
        chosen.used.push(Socket::bind_tcp(address)?);
    }
    if wants_unix && let Some(socket) = try_unix(&path)? {
        chosen.used.push(socket);
    }
    Ok(chosen)
}

/// Port 0 matches any port.
fn matches_address(configured: SocketAddr, actual: SocketAddr) -> bool {
    configured == actual || (configured.port() == 0 && configured.ip() == actual.ip())
}

fn try_unix(path: &Path) -> Result<Option<Socket>, SocketError> {
    match Socket::bind_unix(path) {
        Ok(socket) => Ok(Some(socket)),
        // The path is longer than 107 bytes, or the disk is full. The daemon can serve over TCP.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::StorageFull
            ) =>
        {
            tracing::warn!(path = %path.display(), %error, "failed to create the Unix socket; continuing without it");
            Ok(None)
        }
        Err(source) => Err(SocketError::BindUnix {
            path: path.display().to_string(),
            source,
        }),
    }
}

/// Replaces a leftover socket file, but not the socket of a running daemon.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    // Check the length first, before anything is removed.
    std::os::unix::net::SocketAddr::from_pathname(path)?;
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is not a socket exists at this path",
            ));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another daemon is listening on it",
            ));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    // The directory is private by default; this protects the socket if it is not.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

pub(crate) fn remove_file(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(%error, path = %path.display(), "failed to remove the socket file");
    }
}

#[cfg(test)]
mod tests;
