//! From a stream that arrives to a reader that waits.

use std::io::{self, Read};

use boxwood_backend::ImageArchive;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

const PIECE_BYTES: usize = 128 * 1024;
/// How many pieces may wait: enough that neither side idles.
const PIECES: usize = 4;

/// An end that was sent. A channel that closes without one means that the sender went away.
enum Piece {
    Bytes(Vec<u8>),
    Broken(io::Error),
    End,
}

/// The future moves the archive's bytes and ends with it, or when the reader is dropped.
pub(super) fn bridge(mut archive: ImageArchive) -> (impl Future<Output = ()> + Send, Pieces) {
    let (send, receive) = mpsc::channel(PIECES);
    let feed = async move {
        loop {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let next = match archive.read_buf(&mut piece).await {
                Ok(0) => Piece::End,
                Ok(_) => Piece::Bytes(piece),
                Err(error) => Piece::Broken(error),
            };
            let last = !matches!(next, Piece::Bytes(_));
            if send.send(next).await.is_err() || last {
                return;
            }
        }
    };
    let pieces = Pieces {
        receive,
        current: Vec::new(),
        read: 0,
        ended: false,
    };
    (feed, pieces)
}

/// Blocks: not for a thread that has other things to do.
pub(super) struct Pieces {
    receive: mpsc::Receiver<Piece>,
    current: Vec<u8>,
    read: usize,
    ended: bool,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.current.len() {
            if self.ended {
                return Ok(0);
            }
            match self.receive.blocking_recv() {
                Some(Piece::Bytes(bytes)) => {
                    self.current = bytes;
                    self.read = 0;
                }
                Some(Piece::End) => self.ended = true,
                Some(Piece::Broken(error)) => return Err(error),
                None => return Err(io::Error::other("whoever sent it went away")),
            }
        }
        let left = &self.current[self.read..];
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.read += count;
        Ok(count)
    }
}
