//! The most recent errors of tool calls, in memory.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use boxwood_api::AgentErrorRecord;

/// How many failures are remembered.
pub const RECENT_ERRORS: usize = 50;

/// A message longer than this is cut: it is a note, not a log.
const LONGEST_MESSAGE: usize = 4_000;

/// A bounded memory of failures. The oldest go first.
#[derive(Debug)]
pub struct ErrorRing {
    records: Mutex<VecDeque<AgentErrorRecord>>,
    capacity: usize,
}

impl Default for ErrorRing {
    fn default() -> Self {
        Self::new(RECENT_ERRORS)
    }
}

impl ErrorRing {
    pub fn new(capacity: usize) -> Self {
        Self {
            records: Mutex::new(VecDeque::with_capacity(capacity)),
            capacity,
        }
    }

    pub fn push(&self, mut record: AgentErrorRecord) {
        if record.message.len() > LONGEST_MESSAGE {
            record.message = crate::truncate(&record.message, LONGEST_MESSAGE).text;
        }
        let mut records = self.records();
        records.push_back(record);
        while records.len() > self.capacity {
            records.pop_front();
        }
    }

    /// Oldest first.
    pub fn list(&self) -> Vec<AgentErrorRecord> {
        self.records().iter().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.records().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A thread that panicked while it held the lock left whole records behind: a push is one step.
    fn records(&self) -> MutexGuard<'_, VecDeque<AgentErrorRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
