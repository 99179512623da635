//! Recent output of a process, in the order it was read.

use std::collections::VecDeque;

use jiff::Timestamp;

/// Kept per stream, so that protocol output on stdout does not displace error messages on stderr.
const KEPT_BYTES: usize = 128 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    Stdout,
    Stderr,
}

/// Bytes of one read; not necessarily complete lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    pub at: Timestamp,
    pub stream: LogStream,
    pub bytes: Vec<u8>,
}

/// Recent output, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessLogs {
    pub chunks: Vec<LogChunk>,
    /// Older bytes that are no longer kept.
    pub dropped_bytes: u64,
}

impl ProcessLogs {
    /// One stream as text.
    pub fn text(&self, stream: LogStream) -> String {
        let bytes: Vec<u8> = self
            .chunks
            .iter()
            .filter(|chunk| chunk.stream == stream)
            .flat_map(|chunk| chunk.bytes.iter().copied())
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[derive(Default)]
pub(super) struct Logs {
    stdout: Kept,
    stderr: Kept,
    /// Number of chunks, for ordering those of both streams.
    number: u64,
    last: Option<LogStream>,
    dropped: u64,
}

/// Kept chunks of one stream, oldest first.
#[derive(Default)]
struct Kept {
    chunks: VecDeque<(u64, LogChunk)>,
    bytes: usize,
}

/// Consecutive small reads of one stream become one chunk of up to this size.
const JOINED_BYTES: usize = 4 * 1024;

impl Logs {
    pub(super) fn push(&mut self, stream: LogStream, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(KEPT_BYTES)..];
        self.dropped += (bytes.len() - kept.len()) as u64;
        let goes_on = self.last.replace(stream) == Some(stream);
        let own = match stream {
            LogStream::Stdout => &mut self.stdout,
            LogStream::Stderr => &mut self.stderr,
        };
        own.bytes += kept.len();
        match own.chunks.back_mut() {
            Some((_, last)) if goes_on && last.bytes.len() + kept.len() <= JOINED_BYTES => {
                last.bytes.extend_from_slice(kept);
            }
            _ => {
                self.number += 1;
                let chunk = LogChunk {
                    at: Timestamp::now(),
                    stream,
                    bytes: kept.to_vec(),
                };
                own.chunks.push_back((self.number, chunk));
            }
        }
        while own.bytes > KEPT_BYTES {
            let Some((_, oldest)) = own.chunks.pop_front() else {
                break;
            };
            own.bytes -= oldest.bytes.len();
            self.dropped += oldest.bytes.len() as u64;
        }
    }

    /// Counts bytes that an earlier daemon read and that are not available.
    pub(super) fn missed(&mut self, bytes: u64) {
        self.dropped += bytes;
    }

    pub(super) fn snapshot(&self) -> ProcessLogs {
        let both = self.stdout.chunks.iter().chain(&self.stderr.chunks);
        let mut numbered: Vec<_> = both.collect();
        numbered.sort_by_key(|(number, _)| *number);
        ProcessLogs {
            chunks: numbered
                .into_iter()
                .map(|(_, chunk)| chunk.clone())
                .collect(),
            dropped_bytes: self.dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_output_is_kept_in_order_and_older_output_counted() {
        let mut logs = Logs::default();
        logs.push(LogStream::Stdout, b"out");
        logs.push(LogStream::Stderr, b"err");
        logs.push(LogStream::Stderr, b"or");
        let snapshot = logs.snapshot();
        assert_eq!(snapshot.chunks.len(), 2);
        assert_eq!(snapshot.text(LogStream::Stdout), "out");
        assert_eq!(snapshot.text(LogStream::Stderr), "error");
        assert_eq!(snapshot.dropped_bytes, 0);

        logs.push(LogStream::Stdout, &vec![b'x'; KEPT_BYTES + 10]);
        let snapshot = logs.snapshot();
        assert_eq!(snapshot.text(LogStream::Stdout).len(), KEPT_BYTES);
        assert_eq!(
            snapshot.text(LogStream::Stderr),
            "error",
            "it has room of its own"
        );
        assert_eq!(snapshot.dropped_bytes, 3 + 10);
        let order: Vec<_> = snapshot.chunks.iter().map(|chunk| chunk.stream).collect();
        assert_eq!(order, [LogStream::Stderr, LogStream::Stdout]);
    }
}
