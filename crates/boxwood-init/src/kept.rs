//! What init holds of programs for the next daemon: descriptors, a note, and how they ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use boxwood_init::{Ended, FromInit, Keep};

use crate::birth::fd_at;
use crate::door::Daemon;
use crate::step::{Step, StepError};

/// Of one program.
pub(crate) struct Kept {
    note: Vec<u8>,
    /// By place. `None` where it was let go of.
    fds: Vec<Option<OwnedFd>>,
}

impl Kept {
    pub(crate) fn take(keep: Keep, fds: &[OwnedFd]) -> Result<Self, StepError> {
        let held = keep.fds.iter().map(|&place| {
            let fd = fd_at(fds, place)?;
            Ok(Some(fd.try_clone_to_owned().step("keep its streams")?))
        });
        Ok(Self {
            note: keep.note,
            fds: held.collect::<Result<_, StepError>>()?,
        })
    }

    /// One more, behind those that came with the program.
    pub(crate) fn add(&mut self, fd: OwnedFd) {
        self.fds.push(Some(fd));
    }

    pub(crate) fn let_go(&mut self, place: usize) {
        if let Some(fd) = self.fds.get_mut(place) {
            *fd = None;
        }
    }

    pub(crate) fn show(&self, daemon: &Daemon, id: u64, ended: Option<Ended>) {
        let (places, fds): (Vec<usize>, Vec<BorrowedFd<'_>>) = self
            .fds
            .iter()
            .enumerate()
            .filter_map(|(place, fd)| Some((place, fd.as_ref()?.as_fd())))
            .unzip();
        let event = FromInit::Kept {
            id,
            note: self.note.clone(),
            places,
            ended,
        };
        daemon.tell(&event, &fds);
    }
}

/// A program that has ended and that nobody has released yet.
pub(crate) struct Over {
    pub(crate) id: u64,
    pub(crate) kept: Kept,
    pub(crate) ended: Ended,
}

/// What the next daemon is told of the box itself.
pub(crate) struct Memory {
    pub(crate) record: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}
