//! Connects a thread that writes an archive to an asynchronous reader.

use std::io::{self, BufWriter, Write};

use bytes::Bytes;
use futures_util::stream::try_unfold;
use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::io::StreamReader;

const PIECE_BYTES: usize = 256 * 1024;
/// Pieces in the queue, so that neither side waits for the other.
const PIECES: usize = 4;

/// Pieces of the archive; `None` after the last one.
type Piece = Option<Bytes>;

/// Runs `write`, which flushes its output, on a thread of its own and returns a reader of that output. If `write` fails,
/// reading fails too.
pub(super) fn archive_stream<E: Send + 'static>(
    write: impl FnOnce(&mut dyn Write) -> Result<(), E> + Send + 'static,
) -> (
    impl AsyncRead + Send + Unpin + 'static,
    JoinHandle<Result<(), E>>,
) {
    let (sender, receiver) = mpsc::channel::<Piece>(PIECES);
    let writing = tokio::task::spawn_blocking(move || {
        let mut out = BufWriter::with_capacity(PIECE_BYTES, PieceWriter(sender.clone()));
        write(&mut out)?;
        // Fails if the reader was dropped.
        let _ = sender.blocking_send(None);
        Ok(())
    });
    let pieces = try_unfold(receiver, |mut receiver| async move {
        match receiver.recv().await {
            Some(Some(bytes)) => Ok(Some((bytes, receiver))),
            Some(None) => Ok(None),
            None => Err(io::Error::other("the archive is incomplete")),
        }
    });
    (StreamReader::new(Box::pin(pieces)), writing)
}

struct PieceWriter(mpsc::Sender<Piece>);

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Some(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
