//! A blocking reader for an asynchronous stream.

use std::io::{self, BufReader, Read};

use boxwood_backend::ImageArchive;
use tokio::io::AsyncReadExt as _;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

const BUFFER_BYTES: usize = 128 * 1024;

/// Reads fail once the returned sender is dropped. Needs a Tokio runtime.
pub(super) fn blocking_reader(archive: ImageArchive) -> (oneshot::Sender<()>, impl Read + Send) {
    let (cancel, cancelled) = oneshot::channel();
    let reader = BlockingReader {
        archive,
        cancelled,
        runtime: Handle::current(),
    };
    (cancel, BufReader::with_capacity(BUFFER_BYTES, reader))
}

/// Blocks, so it belongs on a blocking thread.
struct BlockingReader {
    archive: ImageArchive,
    cancelled: oneshot::Receiver<()>,
    runtime: Handle,
}

impl Read for BlockingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = &mut self.cancelled => Err(io::Error::other("the upload was cancelled")),
                read = self.archive.read(buffer) => read,
            }
        })
    }
}
