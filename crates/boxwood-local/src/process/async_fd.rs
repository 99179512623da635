//! Descriptors and channels in the Tokio runtime.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use boxwood_init::{Channel, ChannelError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::host::spawner::into_io;

/// Registers `fd`. The deprecated constructor accepts any type with a raw descriptor; the `AsFd` bound
/// guarantees that it stays valid. (The replacement constructor is `unsafe` for this reason.)
#[expect(
    deprecated,
    reason = "the bound of this function is what the constructor lacks"
)]
pub fn async_fd<T: AsFd + AsRawFd>(fd: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::new(fd)
}

/// Returns true if the descriptor becomes readable in time. A pidfd is readable once its process is dead.
pub(crate) fn is_readable(fd: impl AsFd, within: Duration) -> bool {
    matches!(first_ready(&[fd.as_fd()], within), Ok(Some(_)))
}

/// Index of the first descriptor that is readable or closed by its peer.
pub(crate) fn first_ready(fds: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<Option<usize>> {
    let deadline = Instant::now() + timeout;
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let remaining = Timespec::try_from(remaining).map_err(io::Error::other)?;
        match poll(&mut polled, Some(&remaining)) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(polled.iter().position(|entry| !entry.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Calls `read` when the descriptor is readable, until it does not block.
pub(crate) fn poll_read(
    fd: &AsyncFd<OwnedFd>,
    context: &mut Context<'_>,
    mut read: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        let mut guard = ready!(fd.poll_read_ready(context))?;
        match guard.try_io(|fd| Ok(read(fd.get_ref().as_fd())?)) {
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(outcome) => return Poll::Ready(outcome),
            Err(_would_block) => {}
        }
    }
}

/// Calls `write` when the descriptor is writable, until it does not block.
pub(crate) fn poll_write(
    fd: &AsyncFd<OwnedFd>,
    context: &mut Context<'_>,
    mut write: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        let mut guard = ready!(fd.poll_write_ready(context))?;
        match guard.try_io(|fd| Ok(write(fd.get_ref().as_fd())?)) {
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(outcome) => return Poll::Ready(outcome),
            Err(_would_block) => {}
        }
    }
}

/// A channel whose calls wait without blocking the thread.
pub struct AsyncChannel(AsyncFd<Channel>);

impl AsyncChannel {
    pub fn new(channel: Channel) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&channel, true)?;
        async_fd(channel).map(Self)
    }

    pub(crate) fn channel(&self) -> &Channel {
        self.0.get_ref()
    }

    pub async fn send(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            match self.channel().send(message, fds) {
                Err(ChannelError::WouldBlock) => self.0.writable().await?.clear_ready(),
                outcome => return outcome.map_err(into_io),
            }
        }
    }

    pub async fn receive<M: DeserializeOwned>(&self) -> io::Result<(M, Vec<OwnedFd>)> {
        let receive = |channel: &Channel| channel.receive().map_err(into_io);
        self.0.async_io(Interest::READABLE, receive).await
    }
}
