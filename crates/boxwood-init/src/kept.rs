//! What init holds of programs for the next daemon: descriptors, a note, and how they ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use boxwood_init::{Ended, FromInit, Keep};

use crate::birth::fd_at;
use crate::door::Daemon;
use crate::step::StepError;

/// Of one program.
pub(crate) struct Kept {
    note: Vec<u8>,
    /// By place. `None` where it was let go of.
    fds: Vec<Option<OwnedFd>>,
}

impl Kept {
    /// Whether every descriptor came along. Asked before there is a program.
    pub(crate) fn check(keep: &Keep, fds: &[OwnedFd]) -> Result<(), StepError> {
        keep.fds
            .iter()
            .try_for_each(|&place| fd_at(fds, place).map(drop))
    }

    /// Takes them out of the message; the others are closed. A terminal's master stands behind those
    /// that came with the program.
    pub(crate) fn take(keep: Keep, fds: Vec<OwnedFd>, master: Option<OwnedFd>) -> Self {
        let mut fds: Vec<Option<OwnedFd>> = fds.into_iter().map(Some).collect();
        let held = |&place: &usize| fds.get_mut(place).and_then(Option::take);
        let mut held: Vec<Option<OwnedFd>> = keep.fds.iter().map(held).collect();
        held.extend(master.map(Some));
        Self {
            note: keep.note,
            fds: held,
        }
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
