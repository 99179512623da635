//! The most recent errors of tool calls, in memory.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use boxwood_api::AgentErrorRecord;

/// Number of errors that are kept.
pub const RECENT_ERRORS: usize = 50;

/// Longer messages are cut.
const MAX_MESSAGE_CHARS: usize = 4_000;

/// A ring buffer. The oldest errors are removed first.
#[derive(Debug, Default)]
pub struct ErrorRing {
    records: Mutex<VecDeque<AgentErrorRecord>>,
}

impl ErrorRing {
    pub fn push(&self, record: AgentErrorRecord) {
        insert(&mut self.records(), shortened(record));
    }

    /// Returns false, and adds nothing, if the list has an error with this message.
    pub fn push_new(&self, record: AgentErrorRecord) -> bool {
        let record = shortened(record);
        let mut records = self.records();
        let is_new = records
            .iter()
            .all(|existing| existing.message != record.message);
        if is_new {
            insert(&mut records, record);
        }
        is_new
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

    fn records(&self) -> MutexGuard<'_, VecDeque<AgentErrorRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shortened(mut record: AgentErrorRecord) -> AgentErrorRecord {
    record.message = crate::output::truncate(&record.message, MAX_MESSAGE_CHARS).text;
    record
}

fn insert(records: &mut VecDeque<AgentErrorRecord>, record: AgentErrorRecord) {
    if records.len() == RECENT_ERRORS {
        records.pop_front();
    }
    records.push_back(record);
}
