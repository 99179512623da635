//! Descriptors and channels in the Tokio runtime.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use boxwood_init::{Channel, ChannelError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
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
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    let within = Timespec::try_from(within).ok();
    matches!(poll(&mut polled, within.as_ref()), Ok(1..))
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
        loop {
            let mut ready = self.0.readable().await?;
            match self.channel().receive() {
                Err(ChannelError::WouldBlock) => ready.clear_ready(),
                outcome => return outcome.map_err(into_io),
            }
        }
    }
}
