//! The running daemon's side of a takeover.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use boxwood_local::async_fd;
use boxwood_sys::peer;
use rustix::net::{SocketFlags, accept_with, bind, listen};
use tokio::io::unix::AsyncFd;

use super::wire::{self, Confirm, PassedSocket, Request, Response, SocketPath};
use super::{SOCKET, VERSION};
use crate::listen::sockets::{Socket, SocketOwner, remove_file};

/// Timeout for each message. The successor binds its other sockets between the two.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

const RETRY: Duration = Duration::from_millis(100);

/// Accepts takeover requests. Holds duplicates of the listening sockets.
pub(crate) struct TakeoverListener {
    listener: AsyncFd<OwnedFd>,
    path: PathBuf,
    sockets: Vec<(OwnedFd, SocketOwner)>,
    drain: Duration,
}

/// The process that received the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Successor {
    /// `None` if the process is in another PID namespace.
    pub(crate) pid: Option<u32>,
}

impl TakeoverListener {
    /// The caller holds the state lock, so an existing socket file is a leftover.
    pub(crate) fn bind(state_dir: &Path, sockets: &[Socket], drain: Duration) -> io::Result<Self> {
        let path = state_dir.join(SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let sockets = sockets
            .iter()
            .map(|socket| Ok((socket.as_fd().try_clone_to_owned()?, socket.owner)))
            .collect::<io::Result<_>>()?;
        let socket_path = SocketPath::new(state_dir)?;
        let socket = wire::socket()?;
        bind(&socket, &socket_path.address)?;
        rustix::fs::chmod(&path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
        listen(&socket, 8)?;
        Ok(Self {
            listener: async_fd(socket)?,
            path,
            sockets,
            drain,
        })
    }

    /// Resolves when a successor has confirmed. Failed requests have no effect.
    pub(crate) async fn handed_over(&self) -> Successor {
        loop {
            let caller = match self.next_caller().await {
                Ok(caller) => caller,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a takeover request");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            match self.hand_over(&caller).await {
                Ok(()) => {
                    let pid = peer::pid(caller.as_fd()).ok();
                    let pid = pid.and_then(|pid| u32::try_from(pid).ok());
                    return Successor {
                        pid: pid.filter(|pid| *pid != 0),
                    };
                }
                Err(error) => tracing::warn!(%error, "takeover failed; continuing to serve"),
            }
        }
    }

    async fn next_caller(&self) -> io::Result<AsyncFd<OwnedFd>> {
        loop {
            let mut ready = self.listener.readable().await?;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let accept = |listener: &AsyncFd<OwnedFd>| {
                accept_with(listener.get_ref(), flags).map_err(io::Error::from)
            };
            if let Ok(caller) = ready.try_io(accept) {
                return async_fd(caller?);
            }
        }
    }

    async fn hand_over(&self, caller: &AsyncFd<OwnedFd>) -> io::Result<()> {
        let uid = peer::uid(caller.as_fd())?;
        if !wire::is_trusted(uid) {
            return Err(io::Error::other(format!(
                "user {uid} is not allowed to take over"
            )));
        }
        let request: Request = receive(caller).await?;
        let mut response = Response {
            version: VERSION,
            pid: std::process::id(),
            drain_sec: self.drain.as_secs(),
            ..Response::default()
        };
        if request.version != VERSION {
            let why = format!(
                "takeover protocol version {} is not supported, this daemon has version {VERSION}",
                request.version
            );
            response.refused = Some(why.clone());
            wire::send(caller, &response, &[])?;
            return Err(io::Error::other(why));
        }
        let passed = |(_, owner): &(OwnedFd, SocketOwner)| PassedSocket {
            activated: *owner == SocketOwner::ServiceManager,
        };
        response.sockets = self.sockets.iter().map(passed).collect();
        let descriptors: Vec<_> = self.sockets.iter().map(|(fd, _)| fd.as_fd()).collect();
        wire::send(caller, &response, &descriptors)?;
        let Confirm { go } = receive(caller).await?;
        if !go {
            return Err(io::Error::other("the successor cancelled the takeover"));
        }
        Ok(())
    }
}

impl Drop for TakeoverListener {
    fn drop(&mut self) {
        remove_file(&self.path);
    }
}

async fn receive<M: serde::de::DeserializeOwned>(caller: &AsyncFd<OwnedFd>) -> io::Result<M> {
    let received = async {
        loop {
            let mut ready = caller.readable().await?;
            if let Ok(message) = ready.try_io(|caller| wire::receive(caller.get_ref())) {
                return message.map(|(message, _)| message);
            }
        }
    };
    match tokio::time::timeout(MESSAGE_TIMEOUT, received).await {
        Ok(message) => message,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "no message from the successor",
        )),
    }
}
