//! What init holds of programs for the next daemon: descriptors, a note and the exit status.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use boxwood_init::{Ended, FromInit, Retain};

use crate::serve::daemon_connection::DaemonConnection;
use crate::setup::fd_at;
use crate::step::StepError;

pub(crate) struct Retained {
    note: Vec<u8>,
    /// `None` once closed.
    fds: Vec<Option<OwnedFd>>,
}

impl Retained {
    /// Checks that the message has every descriptor. Called before the program starts.
    pub(crate) fn check(retain: &Retain, fds: &[OwnedFd]) -> Result<(), StepError> {
        retain
            .fds
            .iter()
            .try_for_each(|&index| fd_at(fds, index).map(drop))
    }

    /// Takes the descriptors out of the message; the others are closed. A terminal's master is appended.
    pub(crate) fn take(retain: Retain, fds: Vec<OwnedFd>, master: Option<OwnedFd>) -> Self {
        let mut fds: Vec<Option<OwnedFd>> = fds.into_iter().map(Some).collect();
        let take = |&index: &usize| fds.get_mut(index).and_then(Option::take);
        let mut retained: Vec<Option<OwnedFd>> = retain.fds.iter().map(take).collect();
        retained.extend(master.map(Some));
        Self {
            note: retain.note,
            fds: retained,
        }
    }

    pub(crate) fn close(&mut self, index: usize) {
        if let Some(fd) = self.fds.get_mut(index) {
            *fd = None;
        }
    }

    pub(crate) fn send_to(&self, daemon: &DaemonConnection, id: u64, ended: Option<Ended>) {
        let (indexes, fds): (Vec<usize>, Vec<BorrowedFd<'_>>) = self
            .fds
            .iter()
            .enumerate()
            .filter_map(|(index, fd)| Some((index, fd.as_ref()?.as_fd())))
            .unzip();
        let event = FromInit::Retained {
            id,
            note: self.note.clone(),
            places: indexes,
            ended,
        };
        daemon.send(&event, &fds);
    }
}

/// A program that has ended and was not released yet.
pub(crate) struct EndedProgram {
    pub(crate) id: u64,
    pub(crate) retained: Retained,
    pub(crate) ended: Ended,
}

/// What the next daemon gets for the box itself.
pub(crate) struct BoxRecord {
    pub(crate) record: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}
