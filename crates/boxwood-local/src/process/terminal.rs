//! The master side of a box's terminal, as an asynchronous stream.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use boxwood_backend::TerminalSize;
use rustix::io::Errno;
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::adopt::kept::StreamGuard;
use crate::process::async_fd::{async_fd, poll_read, poll_write};

#[derive(Clone)]
pub(crate) struct Terminal {
    master: Arc<AsyncFd<OwnedFd>>,
    /// Init closes its copy when the last reference is dropped.
    _guard: Option<Arc<StreamGuard>>,
}

impl Terminal {
    pub(crate) fn new(master: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&master, true)?;
        Ok(Self {
            master: Arc::new(async_fd(master)?),
            _guard: None,
        })
    }

    pub(crate) fn of(self, guard: Option<StreamGuard>) -> Self {
        Self {
            _guard: guard.map(Arc::new),
            ..self
        }
    }

    pub(crate) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let size = Winsize {
            ws_row: size.rows,
            ws_col: size.cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        Ok(tcsetwinsize(self.master.get_ref().as_fd(), size)?)
    }
}

impl AsyncRead for Terminal {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let free = buffer.initialize_unfilled();
        let read = poll_read(&self.master, context, |master| {
            rustix::io::read(master, &mut *free)
        });
        match ready!(read) {
            Ok(read) => buffer.advance(read),
            // EIO means end of file: all slave descriptors are closed.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        poll_write(&self.master, context, |master| {
            rustix::io::write(master, bytes)
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
