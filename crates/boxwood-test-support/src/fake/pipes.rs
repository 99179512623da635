//! The streams of a program, as its daemon holds them.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use boxwood_backend::{Copied, Input, Output, Process};
use rustix::pipe::{SpliceFlags, splice};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

use super::control::FakeControl;
use super::link::{Link, Token};
use super::program::{Ends, Program};

/// The process handle of a program that was just started, or that an earlier daemon kept.
pub(super) fn process(link: &Arc<Link>, program: &Arc<Program>, ends: Ends) -> io::Result<Process> {
    let token = Arc::new(Token::new(Arc::clone(link), Arc::clone(program)));
    let control = Arc::new(FakeControl::new(Arc::clone(&token)));
    let Some(terminal) = &program.terminal else {
        let output = |end: Option<OwnedFd>| end.map(|end| PipeOut::new(end, &token)).transpose();
        let stdin = ends.stdin.map(|end| PipeIn::new(end, &token)).transpose()?;
        let Some(stdout) = output(ends.stdout)? else {
            return Err(io::Error::other("the program has no output"));
        };
        return Ok(Process {
            stdin: stdin.map(|stdin| Box::new(stdin) as _),
            stdout: Box::new(stdout),
            stderr: output(ends.stderr)?.map(|stderr| Box::new(stderr) as _),
            control,
        });
    };
    Ok(Process {
        stdin: Some(Box::new(Copied(Held {
            stream: terminal.input()?,
            token: Arc::clone(&token),
        }))),
        stdout: Box::new(Copied(Held {
            stream: terminal.output()?,
            token,
        })),
        stderr: None,
        control,
    })
}

struct PipeOut {
    end: pipe::Receiver,
    token: Arc<Token>,
}

impl PipeOut {
    fn new(end: OwnedFd, token: &Arc<Token>) -> io::Result<Self> {
        Ok(Self {
            end: pipe::Receiver::from_owned_fd(end)?,
            token: Arc::clone(token),
        })
    }
}

impl AsyncRead for PipeOut {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.token.link.is_killed() {
            return Poll::Pending;
        }
        Pin::new(&mut self.end).poll_read(context, buffer)
    }
}

impl Output for PipeOut {
    fn poll_move(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        file: BorrowedFd<'_>,
        max_bytes: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.token.link.is_killed() {
                return Poll::Pending;
            }
            ready!(self.end.poll_read_ready(context))?;
            let moved = self.end.try_io(|| {
                let moved = splice(
                    &self.end,
                    None,
                    file,
                    None,
                    max_bytes,
                    SpliceFlags::NONBLOCK,
                );
                moved.map_err(io::Error::from)
            });
            if !would_block(&moved) {
                return Poll::Ready(moved);
            }
        }
    }
}

struct PipeIn {
    end: pipe::Sender,
    token: Arc<Token>,
}

impl PipeIn {
    fn new(end: OwnedFd, token: &Arc<Token>) -> io::Result<Self> {
        Ok(Self {
            end: pipe::Sender::from_owned_fd(end)?,
            token: Arc::clone(token),
        })
    }
}

impl AsyncWrite for PipeIn {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.token.link.is_killed() {
            return Poll::Pending;
        }
        Pin::new(&mut self.end).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Input for PipeIn {
    fn poll_feed(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        file: BorrowedFd<'_>,
        max_bytes: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.token.link.is_killed() {
                return Poll::Pending;
            }
            ready!(self.end.poll_write_ready(context))?;
            let fed = self.end.try_io(|| {
                let fed = splice(
                    file,
                    None,
                    &self.end,
                    None,
                    max_bytes,
                    SpliceFlags::NONBLOCK,
                );
                fed.map_err(io::Error::from)
            });
            if !would_block(&fed) {
                return Poll::Ready(fed);
            }
        }
    }
}

fn would_block(outcome: &io::Result<usize>) -> bool {
    matches!(outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl Drop for PipeIn {
    fn drop(&mut self) {
        if self.token.link.is_active() {
            self.token.program.release_stdin();
        }
    }
}

/// A terminal's stream. It makes no progress after its daemon was killed.
struct Held<S> {
    stream: S,
    token: Arc<Token>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Held<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.token.link.is_killed() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Held<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.token.link.is_killed() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
