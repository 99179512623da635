//! Ended sessions, cached in memory.

use std::collections::VecDeque;

use boxwood_api::SessionId;

use crate::End;

/// Older ones are dropped, here and on disk.
pub(crate) const MAX_ENDED: usize = 4096;

/// Oldest first.
#[derive(Default)]
pub(crate) struct EndedSessions {
    ends: VecDeque<End>,
}

impl EndedSessions {
    pub(crate) fn add(&mut self, end: End) {
        self.ends.push_back(end);
        if self.ends.len() > MAX_ENDED {
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
