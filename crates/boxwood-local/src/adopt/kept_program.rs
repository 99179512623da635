//! Programs that init keeps for the next daemon, and the guards that release them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use boxwood_init::ToInit;
use serde::{Deserialize, Serialize};

use crate::adopt::framed;
use crate::cgroup::Counters;
use crate::sandbox::link::Link;

/// Indexes of a program's streams and files in init's list of kept descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamIndexes {
    #[serde(default)]
    pub(crate) stdin: Option<usize>,
    #[serde(default)]
    pub(crate) stdout: Option<usize>,
    #[serde(default)]
    pub(crate) stderr: Option<usize>,
    /// Set by init.
    #[serde(default)]
    pub(crate) terminal: Option<usize>,
    /// Index of the first of the caller's files.
    pub(crate) first_file: usize,
    pub(crate) files: usize,
}

/// This crate's part of a program's note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) places: StreamIndexes,
    /// Name of the cgroup of the program's process tree.
    pub(crate) group: Option<String>,
    /// Counters of the box when the program was started.
    #[serde(flatten)]
    pub(crate) before: Counters,
}

/// A kept program as reported by init.
pub(crate) struct KeptProgram {
    pub(crate) id: u64,
    pub(crate) note: Note,
    pub(crate) caller_note: Vec<u8>,
    pub(crate) fds: Vec<Option<OwnedFd>>,
    pub(crate) ended: Option<boxwood_init::Ended>,
}

impl KeptProgram {
    pub(crate) fn new(
        id: u64,
        note: &[u8],
        indexes: &[usize],
        fds: Vec<OwnedFd>,
        ended: Option<boxwood_init::Ended>,
    ) -> io::Result<Self> {
        const MAX: usize = boxwood_init::MAX_FDS + 1;
        if indexes.len() != fds.len() || indexes.iter().any(|&index| index >= MAX) {
            return Err(io::Error::other(
                "the descriptors do not match the indexes of a kept program",
            ));
        }
        let (note, caller_note) = framed::unpack::<Note>(note)?;
        let length = indexes.iter().max().map_or(0, |last| last + 1);
        let mut by_index: Vec<Option<OwnedFd>> = (0..length).map(|_| None).collect();
        for (&index, fd) in indexes.iter().zip(fds) {
            by_index[index] = Some(fd);
        }
        Ok(Self {
            id,
            note,
            caller_note: caller_note.to_vec(),
            fds: by_index,
            ended,
        })
    }

    pub(crate) fn take(&mut self, index: Option<usize>) -> Option<OwnedFd> {
        self.fds.get_mut(index?)?.take()
    }

    /// Takes the caller's files. Fails if one is missing.
    pub(crate) fn take_files(&mut self) -> io::Result<Vec<OwnedFd>> {
        let streams = self.note.places;
        let missing = || io::Error::other("a file of a kept program is missing");
        let indexes = (0..streams.files).map(|number| streams.first_file.checked_add(number));
        indexes
            .map(|index| self.take(index).ok_or_else(missing))
            .collect()
    }
}

/// Makes init release a kept program when the last reference is dropped.
pub(crate) struct KeepGuard {
    id: u64,
    link: Arc<Link>,
}

impl KeepGuard {
    pub(crate) fn new(id: u64, link: &Arc<Link>) -> Arc<Self> {
        Arc::new(Self {
            id,
            link: Arc::clone(link),
        })
    }
}

impl Drop for KeepGuard {
    fn drop(&mut self) {
        self.link.post(ToInit::Release { id: self.id });
    }
}

/// One stream of a kept program. Dropping it makes init close its copy of the stream.
pub(crate) struct StreamGuard {
    keep_guard: Arc<KeepGuard>,
    /// `None` if init does not have to be notified.
    index: Option<usize>,
}

impl StreamGuard {
    pub(crate) fn new(keep_guard: &Arc<KeepGuard>, index: Option<usize>) -> Self {
        Self {
            keep_guard: Arc::clone(keep_guard),
            index,
        }
    }

    /// The other side is closed, so init does not have to close its copy.
    pub(crate) fn disarm(&mut self) {
        self.index = None;
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        // Dropping the last reference releases the whole program.
        if Arc::strong_count(&self.keep_guard) > 1 {
            let id = self.keep_guard.id;
            self.keep_guard
                .link
                .post(ToInit::CloseRetained { id, place: index });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_program_is_restored() {
        let indexes = StreamIndexes {
            stdout: Some(0),
            stderr: Some(1),
            first_file: 2,
            files: 2,
            ..StreamIndexes::default()
        };
        let note = Note {
            places: indexes,
            group: Some("e7".to_owned()),
            before: Counters { oom: 3, pids: 4 },
        };
        let packed = framed::pack(&note, b"theirs").expect("pack");
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
        let mut program =
            KeptProgram::new(1, &packed, &[1, 2, 3], vec![file(), file(), file()], None)
                .expect("it is whole");
        assert_eq!(program.caller_note, b"theirs");
        assert_eq!(program.note, note);
        assert!(program.take(indexes.stdout).is_none() && program.take(indexes.stderr).is_some());
        assert_eq!(program.take_files().expect("both").len(), 2);

        let mut incomplete =
            KeptProgram::new(1, &packed, &[2], vec![file()], None).expect("it is whole");
        assert!(incomplete.take_files().is_err());
        assert!(KeptProgram::new(1, &packed, &[1], vec![], None).is_err());
        assert!(KeptProgram::new(1, &packed, &[usize::MAX], vec![file()], None).is_err());
        assert!(KeptProgram::new(1, b"?", &[], vec![], None).is_err());
    }
}
