//! What a box would see of a directory if it were mounted.
//!
//! Comes in: the judged directory, and facts about something in it. Goes out: whether a mount would show
//! it. A daemon that is root can read everything, and its mounts cannot: there the directory's owner is the
//! box's user, and everybody else is nobody. What is mounted further below was never judged.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Mode, Statx, StatxFlags};

#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    mount: Mount,
    /// Who the box's user is in a mount, by user and group. `None` where the kernel asks the daemon for
    /// the same rights.
    owner: Option<(u32, u32)>,
}

/// By its number. Kernels before 5.8 tell the device alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mount {
    Number(u64),
    Device(u32, u32),
}

impl View {
    pub(super) fn of(directory: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let facts = facts(directory)?;
        let is_root = rustix::process::geteuid().is_root();
        Ok(Self {
            mount: mount(&facts),
            owner: is_root.then_some((facts.stx_uid, facts.stx_gid)),
        })
    }

    /// For a box's user who is another than the one who copies.
    #[cfg(test)]
    pub(super) fn for_owner(self, uid: u32, gid: u32) -> Self {
        let owner = Some((uid, gid));
        Self { owner, ..self }
    }

    /// Whether it is part of the directory, and not mounted there.
    pub(super) fn reaches(&self, facts: &Statx) -> bool {
        mount(facts) == self.mount
    }

    /// Whether the box could read it as well.
    pub(super) fn shows(&self, facts: &Statx) -> bool {
        self.reaches(facts) && self.is_readable(facts)
    }

    fn is_readable(&self, facts: &Statx) -> bool {
        let Some((uid, gid)) = self.owner else {
            return true;
        };
        let mode = Mode::from_raw_mode(facts.stx_mode.into());
        let is_directory = kind(facts) == FileType::Directory;
        // The kernel asks one of the three, the first that fits.
        let (needed, search) = if facts.stx_uid == uid {
            // Its own, and then it could give itself the right.
            return true;
        } else if facts.stx_gid == gid {
            (Mode::RGRP, Mode::XGRP)
        } else {
            (Mode::ROTH, Mode::XOTH)
        };
        mode.contains(needed) && (!is_directory || mode.contains(search))
    }
}

pub(super) fn facts(open: impl AsFd) -> rustix::io::Result<Statx> {
    rustix::fs::statx(open, c"", AtFlags::EMPTY_PATH, wanted())
}

pub(super) fn facts_at(directory: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(directory, name, flags, wanted())
}

pub(super) fn kind(facts: &Statx) -> FileType {
    FileType::from_raw_mode(facts.stx_mode.into())
}

fn wanted() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::MNT_ID
}

fn mount(facts: &Statx) -> Mount {
    if facts.stx_mask & StatxFlags::MNT_ID.bits() != 0 {
        Mount::Number(facts.stx_mnt_id)
    } else {
        Mount::Device(facts.stx_dev_major, facts.stx_dev_minor)
    }
}
