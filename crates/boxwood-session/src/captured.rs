//! The output of a captured command while it runs, where a killed daemon leaves it.
//!
//! Comes in: bytes, moved in from the command's pipe. Goes out: the beginning and the end of them, and
//! how many are missing between. What can no longer be part of the answer is given back meanwhile, so
//! that a flood costs no more than the answer.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use boxwood_api::StreamCapture;

use crate::capture::Capture;
use crate::journal::{Journal, wrong};

/// One stream of a command.
pub(crate) struct Captured {
    journal: Arc<Journal>,
    limit: usize,
}

impl Captured {
    fn new(journal: Journal, limit: usize) -> Self {
        Self {
            journal: Arc::new(journal),
            limit,
        }
    }

    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Something of ours, said in the command's place.
    pub(crate) fn say(&self, text: &str) {
        if let Err(error) = self.journal.append(text.as_bytes()) {
            tracing::warn!(%error, "what went wrong is not part of the answer");
        }
    }

    /// Gives back what is certain to be left out, and says how much is kept.
    fn trim(&self) -> usize {
        let (head, tail) = Capture::halves(self.limit);
        let until = self.journal.end().saturating_sub(tail as u64);
        self.journal.forget_between(head as u64, until);
        usize::try_from(self.journal.end()).map_or(self.limit, |end| end.min(self.limit))
    }

    pub(crate) fn finish(&self) -> (String, StreamCapture) {
        let (head, tail) = Capture::halves(self.limit);
        let end = self.journal.end();
        let mut capture = Capture::new(self.limit);
        let from = end.saturating_sub(tail as u64).max(head as u64);
        let kept = self.journal.read(0, head).and_then(|head_bytes| {
            capture.push(&head_bytes);
            capture.skip(from.min(end).saturating_sub(head_bytes.len() as u64));
            self.journal.read(from, tail)
        });
        match kept {
            Ok(tail) => capture.push(&tail),
            Err(error) => tracing::error!(%error, "the output of a command cannot be read back"),
        }
        capture.finish()
    }
}

/// Both streams of a command, and its input where it has one.
pub(crate) struct Streams {
    pub(crate) stdin: Option<Journal>,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    /// Somebody in the background still has the command's output open, so that the box goes on
    /// keeping these files.
    pub(crate) lingers: bool,
}

impl Streams {
    pub(crate) fn new(stdin: Option<&str>, limit: usize) -> io::Result<Self> {
        Ok(Self {
            stdin: stdin.map(given).transpose()?,
            stdout: Captured::new(Journal::once("stdout")?, limit),
            stderr: Captured::new(Journal::once("stderr")?, limit),
            lingers: false,
        })
    }

    /// Gives back what is certain to be left out, and says how much is kept.
    pub(crate) fn trim(&self) -> usize {
        [&self.stdout, &self.stderr]
            .map(Captured::trim)
            .iter()
            .sum()
    }

    /// In the order in which [`Streams::kept`] takes them.
    pub(crate) fn files(&self) -> Vec<Arc<OwnedFd>> {
        let outputs = [&self.stdout, &self.stderr].map(|stream| stream.journal.file());
        let stdin = self.stdin.iter().flat_map(Journal::files);
        outputs.into_iter().chain(stdin).collect()
    }

    pub(crate) fn kept(files: Vec<OwnedFd>, limit: usize) -> io::Result<Self> {
        let mut files = files.into_iter();
        let (Some(stdout), Some(stderr)) = (files.next(), files.next()) else {
            return Err(wrong("a command has no files for its output"));
        };
        let stdin = match (files.next(), files.next(), files.next()) {
            (None, ..) => None,
            (Some(writer), Some(reader), None) => Some(Journal::from_files(writer, reader)?),
            _ => return Err(wrong("a command has another number of files")),
        };
        Ok(Self {
            stdin,
            stdout: Captured::new(Journal::from_file(stdout)?, limit),
            stderr: Captured::new(Journal::from_file(stderr)?, limit),
            lingers: false,
        })
    }

    /// The caller has the result: what it was made of is given back, and no daemon tells it again.
    pub(crate) fn answered(&self) {
        for stream in [&self.stdout, &self.stderr] {
            if let Err(error) = stream.journal.give_up() {
                tracing::warn!(%error, "the output of a command is kept for longer than it is needed");
            }
        }
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.stdout.journal.is_given_up()
    }
}

/// A command's whole input: all of it is accepted before the command begins.
fn given(text: &str) -> io::Result<Journal> {
    let journal = Journal::new("stdin")?;
    journal.append(text.as_bytes())?;
    journal.seal()?;
    Ok(journal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn next_daemon(streams: &Streams, limit: usize) -> Streams {
        let files = streams.files().into_iter();
        let files = files.map(|file| file.try_clone().expect("a duplicate"));
        Streams::kept(files.collect(), limit).expect("the same streams")
    }

    #[test]
    fn a_flood_costs_no_more_than_its_answer() {
        let limit = 1024 * 1024;
        let streams = Streams::new(None, limit).expect("streams");
        let mut model = Capture::new(limit);
        for number in 0..400_u32 {
            let piece = number.to_le_bytes().repeat(4096);
            streams.stdout.journal().append(&piece).expect("taken in");
            streams.trim();
            model.push(&piece);
        }
        let stat = rustix::fs::fstat(&*streams.stdout.journal().file()).expect("a file");
        let kept = u64::try_from(stat.st_blocks).expect("a count") * 512;
        assert!(kept < 1_400_000, "{kept}");
        assert_eq!(streams.stdout.finish(), model.finish());
    }

    #[test]
    fn what_was_answered_costs_nothing_and_is_not_told_again() {
        let streams = Streams::new(None, 1024 * 1024).expect("streams");
        let piece = vec![b'x'; 300_000];
        streams.stdout.journal().append(&piece).expect("taken in");
        assert!(!next_daemon(&streams, 10).is_answered());
        streams.answered();
        assert!(next_daemon(&streams, 10).is_answered());
        let stat = rustix::fs::fstat(&*streams.stdout.journal().file()).expect("a file");
        assert_eq!(stat.st_blocks, 0);
    }

    #[test]
    fn the_input_goes_on_with_its_command() {
        let streams = Streams::new(Some("all of it"), 10).expect("streams");
        let next = next_daemon(&streams, 10);
        let stdin = next.stdin.expect("an input");
        assert!(stdin.is_sealed());
        assert_eq!(stdin.read(0, 100).expect("kept"), b"all of it");
        assert!(Streams::kept(Vec::new(), 10).is_err());
    }

    proptest! {
        #[test]
        fn what_is_read_back_is_what_would_have_been_kept(
            limit in 0_usize..300_000,
            pieces in prop::collection::vec((any::<u8>(), 0_usize..90_000, any::<bool>()), 0..10),
        ) {
            let mut streams = Streams::new(None, limit).expect("streams");
            let mut model = Capture::new(limit);
            for (byte, length, crash) in pieces {
                let piece = vec![byte; length];
                streams.stderr.journal().append(&piece).expect("taken in");
                streams.trim();
                model.push(&piece);
                if crash {
                    streams = next_daemon(&streams, limit);
                }
            }
            prop_assert_eq!(streams.stderr.finish(), model.finish());
        }
    }
}
