//! Which ranges of ids are whose.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use boxwood_sys::procfs;

pub(super) const FIRST_ID: u32 = 524_288;
pub(super) const RANGE: u32 = 65_536;
/// As many boxes as have room below the top of the id space.
const SLOTS: u32 = (u32::MAX - FIRST_ID) / RANGE;

#[derive(Default)]
pub struct Slots {
    pub(super) used: BTreeSet<u32>,
    /// Those of boxes that an earlier daemon made, until they are adopted or gone.
    pub(super) left: BTreeSet<u32>,
    /// Ranges that `/etc/subuid` and `/etc/subgid` give to somebody.
    pub(super) taken: Vec<(u32, u32)>,
}

impl Slots {
    pub(super) fn take(&mut self) -> io::Result<u32> {
        let free = (0..SLOTS).find(|slot| {
            let first = FIRST_ID + slot * RANGE;
            let clash = |&(start, count): &(u32, u32)| {
                start < first.saturating_add(RANGE) && first < start.saturating_add(count)
            };
            !self.used.contains(slot) && !self.left.contains(slot) && !self.taken.iter().any(clash)
        });
        let slot =
            free.ok_or_else(|| io::Error::other("no range of uids is left for another box"))?;
        self.used.insert(slot);
        Ok(slot)
    }

    /// Takes the very slot of a box that was found again.
    pub(super) fn claim(&mut self, slot: u32) -> io::Result<()> {
        if slot >= SLOTS || !self.used.insert(slot) {
            return Err(io::Error::other("another box has its uids"));
        }
        self.left.remove(&slot);
        Ok(())
    }

    /// Keeps clear of the ids that living processes have, until [`Slots::forget_the_left`].
    pub(super) fn spare_the_living(&mut self) {
        let slot = |uid: u32| Some(uid.checked_sub(FIRST_ID)? / RANGE);
        self.left = living_uids().into_iter().filter_map(slot).collect();
    }

    pub(super) fn forget_the_left(&mut self) {
        self.left.clear();
    }
}

/// The real uid of every process of this host, each once.
fn living_uids() -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let uid = |entry: fs::DirEntry| {
        let name = entry.file_name();
        name.to_str()?.parse::<u32>().ok()?;
        let status = procfs::text(entry.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    entries.filter_map(uid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_keep_clear_of_other_peoples() {
        let mut slots = Slots {
            taken: vec![(FIRST_ID + 10, RANGE)],
            left: BTreeSet::from([4]),
            ..Slots::default()
        };
        assert_eq!(slots.take().expect("a slot"), 2);
        assert_eq!(slots.take().expect("a slot"), 3);
        slots.used.remove(&2);
        assert_eq!(slots.take().expect("a slot"), 2);
        // One of a box that may yet be adopted is passed over, and can be claimed once.
        assert_eq!(slots.take().expect("a slot"), 5);
        assert!(slots.claim(4).is_ok() && slots.claim(4).is_err());
    }
}
