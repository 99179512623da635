//! The journals of a captured exec, which survive a killed daemon.
//!
//! Only the beginning and the end of each stream are part of the result. The rest is freed while the
//! command runs, so that fast output costs no more memory than the result.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use boxwood_api::StreamCapture;
use boxwood_backend::Input;

use super::capture::{halves, text_of};
use crate::program::{Feeder, Journal, feed, invalid_data};

/// One output stream.
pub(crate) struct CapturedStream {
    journal: Arc<Journal>,
    limit: usize,
}

impl CapturedStream {
    fn new(journal: Journal, limit: usize) -> Self {
        Self {
            journal: Arc::new(journal),
            limit,
        }
    }

    /// Adds a message of the daemon.
    pub(crate) fn append(&self, text: &str) {
        if let Err(error) = self.journal.append(text.as_bytes()) {
            tracing::warn!(%error, "failed to add an error message to the output of a command");
        }
    }

    /// Frees what cannot be part of the result, and returns the number of bytes that are kept.
    fn trim(&self) -> usize {
        let (head, tail) = halves(self.limit);
        let until = self.journal.end().saturating_sub(tail as u64);
        self.journal.forget_between(head as u64, until);
        usize::try_from(self.journal.end()).map_or(self.limit, |end| end.min(self.limit))
    }

    pub(crate) fn finish(&self) -> (String, StreamCapture) {
        let (head, tail) = halves(self.limit);
        let end = self.journal.end();
        let from = end.saturating_sub(tail as u64).max(head as u64);
        let [head, tail] = [(0, head), (from, tail)].map(|(offset, max_bytes)| {
            let bytes = self.journal.read(offset, max_bytes);
            bytes.unwrap_or_else(|error| {
                tracing::error!(%error, "failed to read the output of a command");
                Vec::new()
            })
        });
        text_of(head, &tail, end)
    }
}

/// Both streams of a command, and its input where it has one.
pub(crate) struct CapturedStreams {
    pub(crate) stdin: Option<Journal>,
    pub(crate) stdout: CapturedStream,
    pub(crate) stderr: CapturedStream,
    /// A background child has the output open, so that init keeps these files.
    pub(crate) lingers: bool,
}

impl CapturedStreams {
    pub(crate) fn new(stdin: Option<&str>, limit: usize) -> io::Result<Self> {
        Ok(Self {
            stdin: stdin.map(complete_input).transpose()?,
            stdout: CapturedStream::new(Journal::once("stdout")?, limit),
            stderr: CapturedStream::new(Journal::once("stderr")?, limit),
            lingers: false,
        })
    }

    pub(crate) fn journals(&self) -> [&Arc<Journal>; 2] {
        [&self.stdout.journal, &self.stderr.journal]
    }

    /// Frees what cannot be part of the result, and returns the number of bytes that are kept.
    pub(crate) fn trim(&self) -> usize {
        [&self.stdout, &self.stderr]
            .map(CapturedStream::trim)
            .iter()
            .sum()
    }

    /// In the order of [`CapturedStreams::from_files`].
    pub(crate) fn files(&self) -> Vec<Arc<OwnedFd>> {
        let outputs = [&self.stdout, &self.stderr].map(|stream| stream.journal.file());
        let stdin = self.stdin.iter().flat_map(Journal::files);
        outputs.into_iter().chain(stdin).collect()
    }

    /// Takes what feeds the command's input.
    pub(crate) fn feeder(&mut self, pipe: Option<Box<dyn Input>>) -> Option<Feeder> {
        let journal = self.stdin.take()?;
        Some(feed(pipe, journal))
    }

    pub(crate) fn from_files(files: Vec<OwnedFd>, limit: usize) -> io::Result<Self> {
        let mut files = files.into_iter();
        let (Some(stdout), Some(stderr)) = (files.next(), files.next()) else {
            return Err(invalid_data(
                "a captured exec has no journals for its output",
            ));
        };
        let stdin = match (files.next(), files.next(), files.next()) {
            (None, ..) => None,
            (Some(writer), Some(reader), None) => Some(Journal::from_files(writer, reader)?),
            _ => {
                return Err(invalid_data(
                    "a captured exec has an unexpected number of journals",
                ));
            }
        };
        Ok(Self {
            stdin,
            stdout: CapturedStream::new(Journal::from_file(stdout)?, limit),
            stderr: CapturedStream::new(Journal::from_file(stderr)?, limit),
            lingers: false,
        })
    }

    /// The caller has the result. Frees the journals and marks them, so that the next daemon ignores them.
    pub(crate) fn answered(&self) {
        for stream in [&self.stdout, &self.stderr] {
            if let Err(error) = stream.journal.discard() {
                tracing::warn!(%error, "failed to free the output of a command");
            }
        }
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.stdout.journal.is_discarded()
    }
}

/// The complete input, accepted before the command starts.
fn complete_input(text: &str) -> io::Result<Journal> {
    let journal = Journal::new("stdin")?;
    journal.append(text.as_bytes())?;
    journal.seal()?;
    Ok(journal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::exec::capture::tests::captured;

    fn next_daemon(streams: &CapturedStreams, limit: usize) -> CapturedStreams {
        let files = streams.files().into_iter();
        let files = files.map(|file| file.try_clone().expect("a duplicate"));
        CapturedStreams::from_files(files.collect(), limit).expect("the same streams")
    }

    #[test]
    fn long_output_costs_no_more_than_its_result() {
        let limit = 1024 * 1024;
        let streams = CapturedStreams::new(None, limit).expect("streams");
        let mut all = Vec::new();
        for number in 0..400_u32 {
            let chunk = number.to_le_bytes().repeat(4096);
            streams.stdout.journal.append(&chunk).expect("appended");
            streams.trim();
            all.extend_from_slice(&chunk);
        }
        let stat = rustix::fs::fstat(&*streams.stdout.journal.file()).expect("a file");
        let allocated = u64::try_from(stat.st_blocks).expect("a count") * 512;
        assert!(allocated < 1_400_000, "{allocated}");
        assert_eq!(streams.stdout.finish(), captured(limit, &all));
    }

    #[test]
    fn an_answered_exec_is_freed_and_marked() {
        let streams = CapturedStreams::new(None, 1024 * 1024).expect("streams");
        let chunk = vec![b'x'; 300_000];
        streams.stdout.journal.append(&chunk).expect("appended");
        assert!(!next_daemon(&streams, 10).is_answered());
        streams.answered();
        assert!(next_daemon(&streams, 10).is_answered());
        let stat = rustix::fs::fstat(&*streams.stdout.journal.file()).expect("a file");
        assert_eq!(stat.st_blocks, 0);
    }

    #[test]
    fn the_next_daemon_gets_the_rest_of_the_input() {
        let streams = CapturedStreams::new(Some("all of it"), 10).expect("streams");
        let next = next_daemon(&streams, 10);
        let stdin = next.stdin.expect("an input");
        assert!(stdin.is_sealed());
        assert_eq!(stdin.read(0, 100).expect("kept"), b"all of it");
        assert!(CapturedStreams::from_files(Vec::new(), 10).is_err());
    }

    proptest! {
        #[test]
        fn trimmed_journals_have_the_result_of_the_whole_stream(
            limit in 0_usize..300_000,
            chunks in prop::collection::vec((any::<u8>(), 0_usize..90_000, any::<bool>()), 0..10),
        ) {
            let mut streams = CapturedStreams::new(None, limit).expect("streams");
            let mut all = Vec::new();
            for (byte, length, crash) in chunks {
                let chunk = vec![byte; length];
                streams.stderr.journal.append(&chunk).expect("appended");
                streams.trim();
                all.extend_from_slice(&chunk);
                if crash {
                    streams = next_daemon(&streams, limit);
                }
            }
            prop_assert_eq!(streams.stderr.finish(), captured(limit, &all));
        }
    }
}
