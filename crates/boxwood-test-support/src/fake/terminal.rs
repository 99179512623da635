//! A pseudo-terminal for a program of a pretended box.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::pin::Pin;
use std::process::Stdio as ChildStdio;
use std::task::{Context, Poll, ready};

use boxwood_backend::TerminalSize;
use rustix::fs::OFlags;
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetpgrp, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(super) struct Terminal {
    ours: OwnedFd,
    child_path: String,
}

impl Terminal {
    pub(super) fn open(size: TerminalSize) -> io::Result<Self> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let flags = rustix::fs::fcntl_getfl(&ours)?;
        rustix::fs::fcntl_setfl(&ours, flags | OFlags::NONBLOCK)?;
        let path = ptsname(&ours, Vec::new())?;
        let terminal = Self {
            ours,
            child_path: path.to_string_lossy().into_owned(),
        };
        terminal.resize(size)?;
        Ok(terminal)
    }

    pub(super) fn for_child(&self) -> io::Result<ChildStdio> {
        let nothing_special = i32::try_from(OFlags::NOCTTY.bits()).map_err(io::Error::other)?;
        let child_end = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(nothing_special)
            .open(&self.child_path)?;
        Ok(ChildStdio::from(child_end))
    }

    pub(super) fn ours(&self) -> io::Result<TerminalStream> {
        let file = std::fs::File::from(self.ours.try_clone()?);
        Ok(TerminalStream(AsyncFd::register(file)?))
    }

    pub(super) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let size = Winsize {
            ws_row: size.rows,
            ws_col: size.cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.ours, size).map_err(io::Error::from)
    }

    pub(super) fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.ours).ok()
    }
}

pub(super) struct TerminalStream(AsyncFd<std::fs::File>);

impl AsyncRead for TerminalStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let unfilled = buffer.initialize_unfilled();
            match guard.try_io(|fd| fd.get_ref().read(unfilled)) {
                Ok(Ok(count)) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                // The last program on the terminal is gone: its way to say end of file.
                Ok(Err(error))
                    if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) =>
                {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for TerminalStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(context))?;
            if let Ok(outcome) = guard.try_io(|fd| fd.get_ref().write(bytes)) {
                return Poll::Ready(outcome);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
