//! One file system of the host, and the boxes that write to it.
//!
//! Comes in: sessions. Goes out: how much is free, and who has to do with which directory. Never here: a
//! list that grows: sessions that are gone are forgotten at the next look.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::fs::{fstatfs, fstatvfs};

use super::place::Place;
use crate::activity::lock;
use crate::session::Session;

const MIB: u64 = 1024 * 1024;
/// What is left to the host where the operator says nothing: this, or a hundredth of a small disk.
const MIN_FREE: u64 = 256 * MIB;

/// File systems that answer from memory. Others may keep whoever asks waiting.
const AT_HAND: [u64; 8] = [
    0xef53,      // ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x794c_7630, // overlay
    0xf2f5_2010, // F2FS
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
];

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// All of it: what the file system counts.
    pub(super) free: u64,
    /// For everybody but root.
    pub(super) available: u64,
}

#[derive(Clone)]
pub(super) struct Member {
    pub(super) session: Arc<Session>,
    pub(super) place: Arc<Place>,
    /// `None`: only the host's own need bounds it.
    pub(super) limit: Option<u64>,
}

struct Entry {
    session: Weak<Session>,
    place: Arc<Place>,
    limit: Option<u64>,
}

pub(super) struct System {
    handle: Arc<OwnedFd>,
    /// Whoever asks does not wait.
    pub(super) at_hand: bool,
    /// Below this nobody goes on writing.
    pub(super) floor: u64,
    entries: Mutex<Entries>,
    news: Condvar,
    protected: AtomicBool,
}

#[derive(Default)]
struct Entries {
    all: Vec<Entry>,
    /// A thread looks after them.
    watched: bool,
}

impl Entries {
    fn living(&mut self) -> Vec<Member> {
        let mut members = Vec::with_capacity(self.all.len());
        self.all.retain(|entry| {
            let session = entry.session.upgrade();
            let Some(session) = session.filter(|it| !it.is_let_go() && !it.is_over()) else {
                return false;
            };
            members.push(Member {
                session,
                place: Arc::clone(&entry.place),
                limit: entry.limit,
            });
            true
        });
        members
    }
}

impl System {
    pub(super) fn new(handle: &Arc<OwnedFd>, min_free: Option<u64>) -> io::Result<Self> {
        let facts = fstatfs(handle)?;
        let sizes = fstatvfs(handle)?;
        let total = sizes.f_blocks.saturating_mul(sizes.f_frsize);
        #[allow(
            clippy::unnecessary_cast,
            clippy::cast_sign_loss,
            reason = "signed on some machines; a magic number is 32 bits on all"
        )]
        let kind = facts.f_type as u64 & 0xffff_ffff;
        Ok(Self {
            handle: Arc::clone(handle),
            at_hand: AT_HAND.contains(&kind),
            floor: min_free.unwrap_or_else(|| MIN_FREE.min(total / 100)),
            entries: Mutex::default(),
            news: Condvar::new(),
            protected: AtomicBool::new(false),
        })
    }

    /// May take its time on file systems that are not at hand.
    pub(super) fn room_now(&self) -> io::Result<Room> {
        let sizes = fstatvfs(&*self.handle)?;
        Ok(Room {
            free: sizes.f_bfree.saturating_mul(sizes.f_frsize),
            available: sizes.f_bavail.saturating_mul(sizes.f_frsize),
        })
    }

    /// What is free, where that can be told at once.
    pub(super) fn free_at_hand(&self) -> Option<u64> {
        let room = self.at_hand.then(|| self.room_now())?;
        room.ok().map(|room| room.free)
    }

    pub(super) async fn room(self: &Arc<Self>) -> io::Result<Room> {
        if self.at_hand {
            return self.room_now();
        }
        let system = Arc::clone(self);
        let asking = tokio::task::spawn_blocking(move || system.room_now());
        asking.await.map_err(io::Error::other)?
    }

    /// The same directory is one place, whoever writes to it. True when somebody has to start watching.
    pub(super) fn join(
        &self,
        session: &Arc<Session>,
        place: Place,
        limit: Option<u64>,
    ) -> (Arc<Place>, bool) {
        let mut entries = lock(&self.entries);
        let known = entries
            .all
            .iter()
            .map(|entry| &entry.place)
            .find(|known| (known.device, known.inode) == (place.device, place.inode));
        let place = known.map_or_else(|| Arc::new(place), Arc::clone);
        entries.all.push(Entry {
            session: Arc::downgrade(session),
            place: Arc::clone(&place),
            limit,
        });
        self.news.notify_all();
        let unwatched = !std::mem::replace(&mut entries.watched, true);
        (place, unwatched)
    }

    pub(super) fn members(&self) -> Vec<Member> {
        lock(&self.entries).living()
    }

    /// For the one who watches: with nobody there is nothing to watch, and the next to join begins anew.
    pub(super) fn members_or_done(&self) -> Option<Vec<Member>> {
        let mut entries = lock(&self.entries);
        let members = entries.living();
        entries.watched = !members.is_empty();
        entries.watched.then_some(members)
    }

    pub(super) fn members_at(&self, place: &Arc<Place>) -> Vec<Member> {
        let mut members = self.members();
        members.retain(|member| Arc::ptr_eq(&member.place, place));
        members
    }

    /// True for the one who is to protect the host; until [`System::end_protection`] nobody else is.
    pub(super) fn begin_protection(&self) -> bool {
        !self.protected.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_protection(&self) {
        self.protected.store(false, Ordering::Release);
    }

    /// Until then, or until somebody joins.
    pub(super) fn wait(&self, pause: Duration) {
        let entries = lock(&self.entries);
        drop(
            self.news
                .wait_timeout(entries, pause)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}
