//! The side of the daemon that is there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use boxwood_local::watch;
use boxwood_sys::peer;
use rustix::net::{SocketFlags, accept_with, bind, listen};
use tokio::io::unix::AsyncFd;

use super::wire::{self, Answer, Ask, Go, Passed, Place};
use super::{SOCKET, VERSION};
use crate::sockets::{Maker, Socket, remove_file};

/// For a successor to say its next word. It binds what it needs beside the sockets in between.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two tries when accepting fails.
const RETRY: Duration = Duration::from_millis(100);

/// Where a successor asks. Dropping it closes it, with the sockets that it would hand over.
pub(crate) struct Door {
    listener: AsyncFd<OwnedFd>,
    path: PathBuf,
    sockets: Vec<(OwnedFd, Maker)>,
    drain: Duration,
}

/// The process that has the sockets now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Successor {
    /// Missing where it has no number here, as in another process namespace.
    pub(crate) pid: Option<u32>,
}

impl Door {
    /// Needs the lock of the state directory: what is in its place is a dead daemon's.
    pub(crate) fn open(state_dir: &Path, sockets: &[Socket], drain: Duration) -> io::Result<Self> {
        let path = state_dir.join(SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let sockets = sockets
            .iter()
            .map(|socket| Ok((socket.as_fd().try_clone_to_owned()?, socket.maker)))
            .collect::<io::Result<_>>()?;
        let place = Place::new(state_dir)?;
        let socket = wire::socket()?;
        bind(&socket, &place.address)?;
        rustix::fs::chmod(&path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
        listen(&socket, 8)?;
        Ok(Self {
            listener: watch(socket)?,
            path,
            sockets,
            drain,
        })
    }

    /// Resolves once a successor has everything. Whoever gives up half-way changed nothing.
    pub(crate) async fn handed_over(&self) -> Successor {
        loop {
            let caller = match self.next_caller().await {
                Ok(caller) => caller,
                Err(error) => {
                    tracing::warn!(%error, "a request to take over could not be accepted");
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
                Err(error) => tracing::warn!(%error, "a takeover did not happen; serving on"),
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
                return watch(caller?);
            }
        }
    }

    async fn hand_over(&self, caller: &AsyncFd<OwnedFd>) -> io::Result<()> {
        let uid = peer::uid(caller.as_fd())?;
        if !wire::is_trusted(uid) {
            return Err(io::Error::other(format!("user {uid} may not take over")));
        }
        let ask: Ask = hear(caller).await?;
        let mut answer = Answer {
            version: VERSION,
            pid: std::process::id(),
            drain_sec: self.drain.as_secs(),
            ..Answer::default()
        };
        if ask.version != VERSION {
            let why = format!(
                "this daemon speaks version {VERSION} of the takeover, not {}",
                ask.version
            );
            answer.refused = Some(why.clone());
            wire::send(caller, &answer, &[])?;
            return Err(io::Error::other(why));
        }
        let passed = |(_, maker): &(OwnedFd, Maker)| Passed {
            activated: *maker == Maker::ServiceManager,
        };
        answer.sockets = self.sockets.iter().map(passed).collect();
        let descriptors: Vec<_> = self.sockets.iter().map(|(fd, _)| fd.as_fd()).collect();
        wire::send(caller, &answer, &descriptors)?;
        let Go { go } = hear(caller).await?;
        if !go {
            return Err(io::Error::other("the successor changed its mind"));
        }
        Ok(())
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        remove_file(&self.path);
    }
}

async fn hear<M: serde::de::DeserializeOwned>(caller: &AsyncFd<OwnedFd>) -> io::Result<M> {
    let heard = async {
        loop {
            let mut ready = caller.readable().await?;
            if let Ok(message) = ready.try_io(|caller| wire::receive(caller.get_ref())) {
                return message.map(|(message, _)| message);
            }
        }
    };
    match tokio::time::timeout(PATIENCE, heard).await {
        Ok(message) => message,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the successor said nothing",
        )),
    }
}
