//! Programs that init keeps for the next daemon: what is written down of one, and how it is let go of.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use boxwood_init::ToInit;
use serde::{Deserialize, Serialize};

use crate::cgroup::Counters;
use crate::framed;
use crate::link::Link;

/// What of a program is at which place of its list at init.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Places {
    #[serde(default)]
    pub(crate) stdin: Option<usize>,
    #[serde(default)]
    pub(crate) stdout: Option<usize>,
    #[serde(default)]
    pub(crate) stderr: Option<usize>,
    /// Put there by init itself.
    #[serde(default)]
    pub(crate) terminal: Option<usize>,
    /// The first of whatever the caller wants to survive, and how many there are.
    pub(crate) first_file: usize,
    pub(crate) files: usize,
}

/// Our layer of a program's note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) places: Places,
    /// The sub-group of the box's cgroup that its tree is in.
    pub(crate) group: Option<String>,
    pub(crate) oom_before: u64,
    pub(crate) pids_before: u64,
}

impl Note {
    pub(crate) fn new(places: Places, group: Option<String>, before: Counters) -> Self {
        Self {
            places,
            group,
            oom_before: before.oom,
            pids_before: before.pids,
        }
    }

    pub(crate) fn before(&self) -> Counters {
        Counters {
            oom: self.oom_before,
            pids: self.pids_before,
        }
    }

    pub(crate) fn pack(&self, callers: &[u8]) -> io::Result<Vec<u8>> {
        framed::pack(self, callers)
    }
}

/// A kept program as init shows it.
pub(crate) struct Shown {
    pub(crate) id: u64,
    pub(crate) note: Note,
    pub(crate) callers_note: Vec<u8>,
    pub(crate) fds: Vec<Option<OwnedFd>>,
    pub(crate) ended: Option<boxwood_init::Ended>,
}

impl Shown {
    pub(crate) fn new(
        id: u64,
        note: &[u8],
        places: &[usize],
        fds: Vec<OwnedFd>,
        ended: Option<boxwood_init::Ended>,
    ) -> io::Result<Self> {
        const MOST: usize = boxwood_init::MAX_FDS + 1;
        if places.len() != fds.len() || places.iter().any(|&place| place >= MOST) {
            return Err(io::Error::other("its descriptors are not those it names"));
        }
        let (note, callers) = framed::unpack::<Note>(note)?;
        let room = places.iter().max().map_or(0, |last| last + 1);
        let mut by_place: Vec<Option<OwnedFd>> = (0..room).map(|_| None).collect();
        for (&place, fd) in places.iter().zip(fds) {
            by_place[place] = Some(fd);
        }
        Ok(Self {
            id,
            note,
            callers_note: callers.to_vec(),
            fds: by_place,
            ended,
        })
    }

    pub(crate) fn take(&mut self, place: Option<usize>) -> Option<OwnedFd> {
        self.fds.get_mut(place?)?.take()
    }

    /// What the caller wanted to survive, all of it or an error.
    pub(crate) fn take_files(&mut self) -> io::Result<Vec<OwnedFd>> {
        let Places {
            first_file, files, ..
        } = self.note.places;
        let missing = || io::Error::other("a file that was to survive with a program is missing");
        let places = (0..files).map(|number| first_file.checked_add(number));
        places
            .map(|place| self.take(place).ok_or_else(missing))
            .collect()
    }
}

/// Has init forget a kept program when the last part of it is dropped here.
pub(crate) struct Token {
    id: u64,
    link: Arc<Link>,
}

impl Token {
    pub(crate) fn new(id: u64, link: &Arc<Link>) -> Arc<Self> {
        Arc::new(Self {
            id,
            link: Arc::clone(link),
        })
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.link.post(ToInit::Release { id: self.id });
    }
}

/// One of its streams, of which init has another copy. Dropping it has init close that copy too.
pub(crate) struct Part {
    token: Arc<Token>,
    /// `None` where nobody would notice.
    place: Option<usize>,
}

impl Part {
    pub(crate) fn new(token: &Arc<Token>, place: Option<usize>) -> Self {
        Self {
            token: Arc::clone(token),
            place,
        }
    }

    /// The other side is closed: nobody waits for this one to be.
    pub(crate) fn is_over(&mut self) {
        self.place = None;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        // The last one is followed by a release, which lets go of everything.
        if Arc::strong_count(&self.token) > 1 {
            let id = self.token.id;
            self.token.link.post(ToInit::LetGo { id, place });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_init_shows_is_what_was_kept() {
        let places = Places {
            stdout: Some(0),
            stderr: Some(1),
            first_file: 2,
            files: 2,
            ..Places::default()
        };
        let before = Counters { oom: 3, pids: 4 };
        let note = Note::new(places, Some("e7".to_owned()), before);
        let packed = note.pack(b"theirs").expect("pack");
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
        let mut shown = Shown::new(1, &packed, &[1, 2, 3], vec![file(), file(), file()], None)
            .expect("it is whole");
        assert_eq!(shown.callers_note, b"theirs");
        assert_eq!(shown.note, note);
        assert_eq!(shown.note.before(), before);
        assert!(shown.take(places.stdout).is_none() && shown.take(places.stderr).is_some());
        assert_eq!(shown.take_files().expect("both").len(), 2);

        let mut without = Shown::new(1, &packed, &[2], vec![file()], None).expect("it is whole");
        assert!(without.take_files().is_err());
        assert!(Shown::new(1, &packed, &[1], vec![], None).is_err());
        assert!(Shown::new(1, &packed, &[usize::MAX], vec![file()], None).is_err());
        assert!(Shown::new(1, b"?", &[], vec![], None).is_err());
    }
}
