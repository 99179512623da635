//! A blocking reader for an asynchronous stream.

use std::io::{self, Read};

use boxwood_backend::ImageArchive;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

const CHUNK_BYTES: usize = 128 * 1024;
/// Chunks that may be queued.
const CHUNKS: usize = 4;

/// A channel that closes without `End` means that the sender was dropped.
enum Chunk {
    Bytes(Vec<u8>),
    Broken(io::Error),
    End,
}

/// The future forwards the archive and ends with it, or when the reader is dropped.
pub(super) fn blocking_reader(
    mut archive: ImageArchive,
) -> (impl Future<Output = ()> + Send, ChunkReader) {
    let (send, receive) = mpsc::channel(CHUNKS);
    let feed = async move {
        loop {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            let next = match archive.read_buf(&mut chunk).await {
                Ok(0) => Chunk::End,
                Ok(_) => Chunk::Bytes(chunk),
                Err(error) => Chunk::Broken(error),
            };
            let last = !matches!(next, Chunk::Bytes(_));
            if send.send(next).await.is_err() || last {
                return;
            }
        }
    };
    let reader = ChunkReader {
        receive,
        current: Vec::new(),
        read: 0,
        ended: false,
    };
    (feed, reader)
}

/// Blocks, so it belongs on a blocking thread.
pub(super) struct ChunkReader {
    receive: mpsc::Receiver<Chunk>,
    current: Vec<u8>,
    read: usize,
    ended: bool,
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.current.len() {
            if self.ended {
                return Ok(0);
            }
            match self.receive.blocking_recv() {
                Some(Chunk::Bytes(bytes)) => {
                    self.current = bytes;
                    self.read = 0;
                }
                Some(Chunk::End) => self.ended = true,
                Some(Chunk::Broken(error)) => return Err(error),
                None => return Err(io::Error::other("the upload was cancelled")),
            }
        }
        let left = &self.current[self.read..];
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.read += count;
        Ok(count)
    }
}
