//! Boxes that were told to stand still for a measure, and write on.
//!
//! Comes in: what is open for writing, look by look. Goes out: whether that grew by more than a box may
//! write after it was told. Never here: how much is too much for its workspace; with a large tree that is
//! known too late. Nothing but its end interrupts a call that writes a hundred megabytes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use boxwood_backend::BeingWritten;

use super::rule;
use crate::session::Session;

/// What one box has written since it was told.
pub(super) struct Restless {
    pub(super) session: Arc<Session>,
    /// Threads that were at work since.
    watched: HashSet<i32>,
    growth: Growth,
}

impl Restless {
    /// At the moment in which it is told.
    pub(super) fn new(session: &Arc<Session>, limit: u64, free: u64) -> Self {
        Self {
            session: Arc::clone(session),
            watched: HashSet::new(),
            growth: Growth::new(rule::slack(limit) / 4, free),
        }
    }

    /// Whether it has written too much by now. `free` is what its file system has left.
    pub(super) fn writes_on(&mut self, device: u64, free: u64) -> bool {
        let sandbox = &self.session.sandbox;
        let written = sandbox.being_written(device, &mut self.watched);
        self.growth.is_too_much(&written, free)
    }
}

struct Growth {
    allowed: u64,
    /// What each file took when it was first seen.
    first: HashMap<u64, u64>,
    /// How long each thread whose files are not seen had had a processor by then.
    first_times: HashMap<i32, Duration>,
    /// What the file system had left at the last look.
    free: u64,
    /// And what it lost from look to look. What somebody gives back hides nothing.
    lost: u64,
}

impl Growth {
    fn new(allowed: u64, free: u64) -> Self {
        Self {
            allowed,
            first: HashMap::new(),
            first_times: HashMap::new(),
            free,
            lost: 0,
        }
    }

    fn is_too_much(&mut self, written: &BeingWritten, free: u64) -> bool {
        self.lost += self.free.saturating_sub(free);
        self.free = free;
        let grown: u64 = written
            .bytes
            .iter()
            .map(|(inode, bytes)| {
                let first = self.first.entry(*inode).or_insert(*bytes);
                bytes.saturating_sub(*first)
            })
            .sum();
        let busy: Duration = written
            .hidden
            .iter()
            .map(|(thread, time)| {
                let first = self.first_times.entry(*thread).or_insert(*time);
                time.saturating_sub(*first)
            })
            .sum();
        // Whoever was told and works on is in the kernel. It may be what is lost that it works at.
        let hidden = self.lost.min(rule::at_most_within(busy));
        grown.saturating_add(hidden) > self.allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written<const N: usize>(bytes: [(u64, u64); N]) -> BeingWritten {
        BeingWritten {
            bytes: bytes.into(),
            ..BeingWritten::default()
        }
    }

    fn hidden(milliseconds: u64) -> BeingWritten {
        BeingWritten {
            hidden: [(1, Duration::from_millis(milliseconds))].into(),
            ..BeingWritten::default()
        }
    }

    #[test]
    fn what_was_there_when_it_was_told_does_not_count() {
        let mut growth = Growth::new(100, 0);
        assert!(!growth.is_too_much(&written([(1, 5000), (2, 0)]), 0));
        assert!(!growth.is_too_much(&written([(1, 5060), (2, 40)]), 0));
        // Of one who had not been told before.
        let later = written([(1, 5060), (2, 40), (3, 7000)]);
        assert!(!growth.is_too_much(&later, 0));
        let later = written([(1, 5060), (2, 41), (3, 7000)]);
        assert!(growth.is_too_much(&later, 0));
    }

    #[test]
    fn a_file_that_becomes_smaller_hides_nothing() {
        let mut growth = Growth::new(100, 0);
        assert!(!growth.is_too_much(&written([(1, 500), (2, 0)]), 0));
        assert!(growth.is_too_much(&written([(1, 0), (2, 101)]), 0));
    }

    #[test]
    fn a_box_does_not_answer_for_its_neighbours() {
        let mut growth = Growth::new(100, 10_000);
        assert!(!growth.is_too_much(&written([(1, 0)]), 5_000));
        assert!(!growth.is_too_much(&written([(1, 0)]), 0));
    }

    #[test]
    fn who_hides_and_works_on_answers_for_what_is_lost() {
        let mut growth = Growth::new(100, 10_000);
        assert!(!growth.is_too_much(&hidden(500), 10_000));
        assert!(!growth.is_too_much(&hidden(500), 5_000), "it stands");
        assert!(growth.is_too_much(&hidden(501), 5_000));
        let mut growth = Growth::new(100, 10_000);
        assert!(!growth.is_too_much(&hidden(500), 10_000));
        assert!(!growth.is_too_much(&hidden(900), 9_950));
        assert!(!growth.is_too_much(&hidden(900), 20_000), "room came back");
        assert!(!growth.is_too_much(&hidden(900), 19_950));
        assert!(growth.is_too_much(&hidden(900), 19_949));
    }
}
