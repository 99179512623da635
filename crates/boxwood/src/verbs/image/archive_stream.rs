//! From a thread that writes to a reader that is awaited.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::flags::size_text;
use crate::status_line::StatusLine;

const PIECE_BYTES: usize = 256 * 1024;
/// How many pieces may wait: enough that neither side idles.
const PIECES: usize = 4;

/// Runs `write` on a thread of its own. What it writes comes out of the reader; its failure comes
/// out as one, and never as an early end.
pub(super) fn archive_stream<E: Send + 'static>(
    write: impl FnOnce(&mut ArchiveWriter) -> Result<(), E> + Send + 'static,
) -> (ArchiveReader, JoinHandle<Result<(), E>>) {
    let (send, receive) = mpsc::channel(PIECES);
    let writing = tokio::task::spawn_blocking(move || {
        let mut writer = ArchiveWriter {
            send,
            piece: BytesMut::with_capacity(PIECE_BYTES),
        };
        let outcome = write(&mut writer);
        let last = match &outcome {
            Ok(()) => writer.send_piece().and_then(|()| writer.send(Piece::End)),
            Err(_) => writer.send(Piece::Broken),
        };
        // The reader left before the end: it knows what it has heard.
        drop(last);
        outcome
    });
    let reader = ArchiveReader {
        receive,
        current: Bytes::new(),
        ended: false,
    };
    (reader, writing)
}

enum Piece {
    Bytes(Bytes),
    Broken,
    End,
}

pub(super) struct ArchiveWriter {
    send: mpsc::Sender<Piece>,
    piece: BytesMut,
}

impl ArchiveWriter {
    fn send(&self, piece: Piece) -> io::Result<()> {
        let sent = self.send.blocking_send(piece);
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn send_piece(&mut self) -> io::Result<()> {
        let full = std::mem::replace(&mut self.piece, BytesMut::with_capacity(PIECE_BYTES));
        if full.is_empty() {
            return Ok(());
        }
        self.send(Piece::Bytes(full.freeze()))
    }
}

impl Write for ArchiveWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.send_piece()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_piece()
    }
}

pub(super) struct ArchiveReader {
    receive: mpsc::Receiver<Piece>,
    current: Bytes,
    ended: bool,
}

impl AsyncRead for ArchiveReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.current.is_empty() && !self.ended {
            match ready!(self.receive.poll_recv(context)) {
                Some(Piece::Bytes(bytes)) => self.current = bytes,
                Some(Piece::End) => self.ended = true,
                Some(Piece::Broken) | None => {
                    return Poll::Ready(Err(io::Error::other("the archive could not be made")));
                }
            }
        }
        let count = self.current.len().min(buffer.remaining());
        buffer.put_slice(&self.current[..count]);
        self.current.advance(count);
        Poll::Ready(Ok(()))
    }
}

/// Says how much went through.
pub(super) struct Counted<R> {
    inner: R,
    bytes: u64,
    line: StatusLine,
}

impl<R> Counted<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            bytes: 0,
            line: StatusLine::new(),
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Counted<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        self.bytes += (buffer.filled().len() - before) as u64;
        let bytes = self.bytes;
        self.line.draw(|| format!("sent {}", size_text(bytes)));
        Poll::Ready(Ok(()))
    }
}
