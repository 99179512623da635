//! The streams of a program.
//!
//! Besides reads and writes, bytes can be moved between a stream and a file that outlives the daemon. For a
//! pipe the kernel does that in one step, so that a killed daemon loses no bytes.

use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// An output stream of a program.
pub trait Output: AsyncRead + Send + Unpin {
    /// Moves at most `max_bytes` available bytes to `file` at its shared position and advances it. `Ok(0)` is
    /// the end of the stream.
    fn poll_move(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        file: BorrowedFd<'_>,
        max_bytes: usize,
    ) -> Poll<io::Result<usize>>;
}

/// The input stream of a program.
pub trait Input: AsyncWrite + Send + Unpin {
    /// Writes at most `max_bytes` bytes of `file` from its shared position and advances it. `Ok(0)` if the file
    /// has no more bytes.
    fn poll_feed(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        file: BorrowedFd<'_>,
        max_bytes: usize,
    ) -> Poll<io::Result<usize>>;
}

/// Implements [`Output`] and [`Input`] by copying, for streams that are not pipes.
///
/// A flush must not wait: the bytes before it are consumed, so the next poll would write the bytes after them.
pub struct Copied<S>(pub S);

const COPY_BYTES: usize = 16 * 1024;

impl<S: AsyncRead + Unpin> AsyncRead for Copied<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Copied<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Send + Unpin> Output for Copied<S> {
    fn poll_move(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        file: BorrowedFd<'_>,
        max_bytes: usize,
    ) -> Poll<io::Result<usize>> {
        let mut space = [0_u8; COPY_BYTES];
        let mut buffer = ReadBuf::new(&mut space[..max_bytes.min(COPY_BYTES)]);
        ready!(self.poll_read(context, &mut buffer))?;
        let mut rest = buffer.filled();
        let moved = rest.len();
        while !rest.is_empty() {
            let written = rustix::io::write(file, rest)?;
            rest = &rest[written..];
        }
        Poll::Ready(Ok(moved))
    }
}

impl<S: AsyncWrite + Send + Unpin> Input for Copied<S> {
    fn poll_feed(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        file: BorrowedFd<'_>,
        max_bytes: usize,
    ) -> Poll<io::Result<usize>> {
        let position = rustix::fs::tell(file)?;
        let mut space = [0_u8; COPY_BYTES];
        let read = rustix::io::pread(file, &mut space[..max_bytes.min(COPY_BYTES)], position)?;
        if read == 0 {
            return Poll::Ready(Ok(0));
        }
        let written = ready!(self.as_mut().poll_write(context, &space[..read]))?;
        rustix::fs::seek(file, rustix::fs::SeekFrom::Start(position + written as u64))?;
        // An in-memory duplex stream delivers nothing before it is flushed.
        ready!(self.poll_flush(context))?;
        Poll::Ready(Ok(written))
    }
}
