//! Reads stdin on a plain thread.
//!
//! A read of stdin cannot be cancelled. On a thread of the runtime it would keep the process from exiting until the next
//! key press.

use std::io::Read as _;

use bytes::Bytes;
use tokio::sync::mpsc;

/// Full when the command does not read its input; then stdin is not read either.
const CHUNKS_AHEAD: usize = 4;

pub(crate) struct StdinReader {
    chunks: mpsc::Receiver<Bytes>,
}

impl StdinReader {
    pub(crate) fn start() -> Self {
        let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
        std::thread::spawn(move || {
            let mut stdin = std::io::stdin().lock();
            let mut buffer = vec![0; 32 * 1024];
            // An error ends the input just as the end does: there is nothing left to read.
            while let Ok(count @ 1..) = stdin.read(&mut buffer) {
                if sender
                    .blocking_send(Bytes::copy_from_slice(&buffer[..count]))
                    .is_err()
                {
                    break;
                }
            }
        });
        Self { chunks }
    }

    /// `None` at the end of the input.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        self.chunks.recv().await
    }
}
