//! The daemon's ends of a program's pipes, and of its terminal.
//!
//! Besides reads and writes, ends of pipes move bytes between the pipe and a file with `splice`, so that a killed
//! daemon never loses bytes that it has read from a pipe but not yet stored.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use boxwood_backend::{Input, Output};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::adopt::kept_program::StreamGuard;
use crate::process::async_fd::{async_fd, poll_read, poll_write};

const SPLICE: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

pub(crate) struct PipeReader {
    pipe: AsyncFd<OwnedFd>,
    guard: Option<StreamGuard>,
}

impl PipeReader {
    pub(crate) fn new(pipe: OwnedFd, guard: Option<StreamGuard>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self {
            pipe: async_fd(pipe)?,
            guard,
        })
    }

    /// The write end is closed, so init does not have to close its copy.
    fn ended(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.disarm();
        }
    }
}

impl AsyncRead for PipeReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let unfilled = buffer.initialize_unfilled();
        let capacity = unfilled.len();
        let read = ready!(poll_read(&self.pipe, context, |pipe| {
            match rustix::io::read(pipe, &mut *unfilled) {
                // The end of a terminal: all its other descriptors are closed.
                Err(Errno::IO) => Ok(0),
                read => read,
            }
        }))?;
        if read == 0 && capacity > 0 {
            self.ended();
        }
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl Output for PipeReader {
    fn poll_move(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        file: BorrowedFd<'_>,
        max_bytes: usize,
    ) -> Poll<io::Result<usize>> {
        let moved = ready!(poll_read(&self.pipe, context, |pipe| {
            splice(pipe, None, file, None, max_bytes, SPLICE)
        }))?;
        if moved == 0 && max_bytes > 0 {
            self.ended();
        }
        Poll::Ready(Ok(moved))
    }
}

/// Dropping it closes the program's stdin.
pub(crate) struct PipeWriter {
    pipe: AsyncFd<OwnedFd>,
    _guard: Option<StreamGuard>,
}

impl PipeWriter {
    pub(crate) fn new(pipe: OwnedFd, guard: Option<StreamGuard>) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self {
            pipe: async_fd(pipe)?,
            _guard: guard,
        })
    }
}

impl AsyncWrite for PipeWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        poll_write(&self.pipe, context, |pipe| rustix::io::write(pipe, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Input for PipeWriter {
    fn poll_feed(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        file: BorrowedFd<'_>,
        max_bytes: usize,
    ) -> Poll<io::Result<usize>> {
        poll_write(&self.pipe, context, |pipe| {
            splice(file, None, pipe, None, max_bytes, SPLICE)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::os::fd::AsFd as _;

    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::pipe::{PipeFlags, pipe_with};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn pipe() -> (PipeReader, PipeWriter) {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let reader = PipeReader::new(reader, None).expect("a reader");
        (reader, PipeWriter::new(writer, None).expect("a writer"))
    }

    fn content(file: &OwnedFd) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 16];
        let read = rustix::io::pread(file, &mut bytes, 0).expect("read");
        bytes.truncate(read);
        bytes
    }

    #[tokio::test]
    async fn bytes_are_spliced_at_the_position_of_the_file() {
        let (mut reader, mut writer) = pipe();
        let file = memfd_create("journal", MemfdFlags::CLOEXEC).expect("a file");
        writer.write_all(b"first").await.expect("write");
        let mut moved = 0;
        while moved < 5 {
            let step = poll_fn(|context| Pin::new(&mut reader).poll_move(context, file.as_fd(), 3));
            moved += step.await.expect("move");
        }
        assert_eq!(content(&file), b"first");
        assert_eq!(rustix::fs::tell(&file).expect("position"), 5);

        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(2)).expect("seek");
        let feed = poll_fn(|context| Pin::new(&mut writer).poll_feed(context, file.as_fd(), 64));
        assert_eq!(feed.await.expect("feed"), 3);
        let second_feed =
            poll_fn(|context| Pin::new(&mut writer).poll_feed(context, file.as_fd(), 64));
        assert_eq!(second_feed.await.expect("feed"), 0);
        assert_eq!(rustix::fs::tell(&file).expect("position"), 5);
        drop(writer);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).await.expect("read");
        assert_eq!(rest, b"rst");
        let end = poll_fn(|context| Pin::new(&mut reader).poll_move(context, file.as_fd(), 64));
        assert_eq!(end.await.expect("the end"), 0);
    }

    #[tokio::test]
    async fn a_write_to_a_full_pipe_waits_for_the_reader() {
        let (mut reader, mut writer) = pipe();
        let sent: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let bytes = sent.clone();
        let writing = tokio::spawn(async move { writer.write_all(&bytes).await });
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.expect("read");
        writing.await.expect("join").expect("write");
        assert_eq!(received, sent);
    }
}
