//! A pseudo-terminal for a program of a fake box.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::pin::Pin;
use std::process::Stdio as ChildStdio;
use std::task::{Context, Poll, ready};

use boxwood_backend::TerminalSize;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetpgrp, tcsetwinsize};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

pub(super) struct Terminal {
    controller: OwnedFd,
    child_path: String,
}

impl Terminal {
    pub(super) fn open(size: TerminalSize) -> io::Result<Self> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let flags = rustix::fs::fcntl_getfl(&controller)?;
        rustix::fs::fcntl_setfl(&controller, flags | OFlags::NONBLOCK)?;
        let path = ptsname(&controller, Vec::new())?;
        let terminal = Self {
            controller,
            child_path: path.to_string_lossy().into_owned(),
        };
        terminal.resize(size)?;
        Ok(terminal)
    }

    pub(super) fn for_child(&self) -> io::Result<ChildStdio> {
        let open_flags = i32::try_from(OFlags::NOCTTY.bits()).map_err(io::Error::other)?;
        let child_end = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(open_flags)
            .open(&self.child_path)?;
        Ok(ChildStdio::from(child_end))
    }

    /// Tokio's pipe types accept every descriptor that can be polled.
    pub(super) fn output(&self) -> io::Result<TerminalOutput> {
        let controller = self.controller.try_clone()?;
        pipe::Receiver::from_owned_fd_unchecked(controller).map(TerminalOutput)
    }

    pub(super) fn input(&self) -> io::Result<pipe::Sender> {
        pipe::Sender::from_owned_fd_unchecked(self.controller.try_clone()?)
    }

    pub(super) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let size = Winsize {
            ws_row: size.rows,
            ws_col: size.cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.controller, size).map_err(io::Error::from)
    }

    pub(super) fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.controller).ok()
    }
}

/// What the program writes to its terminal.
pub(super) struct TerminalOutput(pipe::Receiver);

impl AsyncRead for TerminalOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.0).poll_read(context, buffer)) {
            // A terminal reports end of file like this, when its last program has ended.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                Poll::Ready(Ok(()))
            }
            outcome => Poll::Ready(outcome),
        }
    }
}
