//! How sessions came to their ends, at hand without a question to the disk.

use std::collections::VecDeque;

use boxwood_api::SessionId;

use crate::End;

/// Older ends are forgotten, here and on disk.
pub(crate) const MOST_ENDS: usize = 4096;

/// Oldest first.
#[derive(Default)]
pub(crate) struct Book {
    ends: VecDeque<End>,
}

impl Book {
    pub(crate) fn add(&mut self, end: End) {
        self.ends.push_back(end);
        if self.ends.len() > MOST_ENDS {
            self.ends.pop_front();
        }
    }

    pub(crate) fn of(&self, session: &SessionId) -> Option<&End> {
        self.ends.iter().rev().find(|end| end.session == *session)
    }

    pub(crate) fn at(&self, session: &SessionId, incarnation: u64) -> Option<&End> {
        let same = |end: &&End| end.incarnation == incarnation && end.session == *session;
        self.ends.iter().rev().find(same)
    }
}
