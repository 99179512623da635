//! Allocates ranges of ids.

use std::collections::BTreeSet;
use std::io;

use boxwood_sys::procfs;

pub(super) const FIRST_ID: u32 = 524_288;
pub(super) const RANGE: u32 = 65_536;
/// Number of ranges in the id space.
const SLOTS: u32 = (u32::MAX - FIRST_ID) / RANGE;

#[derive(Default)]
pub struct Slots {
    pub(super) used: BTreeSet<u32>,
    /// Ranges of boxes of an earlier daemon, until they are adopted or removed.
    pub(super) reserved: BTreeSet<u32>,
    /// Ranges assigned in `/etc/subuid` and `/etc/subgid`.
    pub(super) assigned: Vec<(u32, u32)>,
}

impl Slots {
    pub(super) fn take(&mut self) -> io::Result<u32> {
        let free = (0..SLOTS).find(|slot| {
            let first = FIRST_ID + slot * RANGE;
            let clash = |&(start, count): &(u32, u32)| {
                start < first.saturating_add(RANGE) && first < start.saturating_add(count)
            };
            !self.used.contains(slot)
                && !self.reserved.contains(slot)
                && !self.assigned.iter().any(clash)
        });
        let slot = free.ok_or_else(|| io::Error::other("all uid ranges are in use"))?;
        self.used.insert(slot);
        Ok(slot)
    }

    /// Takes the slot of a box that is being adopted.
    pub(super) fn claim(&mut self, slot: u32) -> io::Result<()> {
        if slot >= SLOTS || !self.used.insert(slot) {
            return Err(io::Error::other("another box uses these uids"));
        }
        self.reserved.remove(&slot);
        Ok(())
    }

    /// Reserves the slots of running processes until they are released.
    pub(super) fn reserve_live(&mut self) {
        let slot = |uid: u32| Some(uid.checked_sub(FIRST_ID)? / RANGE);
        self.reserved = uids_of_processes().into_iter().filter_map(slot).collect();
    }
}

/// The real uids of all processes on this host.
fn uids_of_processes() -> BTreeSet<u32> {
    let uid = |pid| procfs::status_field(pid, "Uid:").ok();
    let first = |line: String| line.split_whitespace().next()?.parse().ok();
    procfs::pids().filter_map(uid).filter_map(first).collect()
}
