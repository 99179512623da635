//! What processes beside the main one wrote to stderr, kept for a while after they are gone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use boxwood_api::ProcessId;

use super::hosted::end_of_line;
use super::tail::tail_of_lines;

/// Of one process.
const SHOWN_BYTES: usize = 64 * 1024;
/// Of all that are gone.
const KEPT_BYTES: usize = 64 * 1024;

#[derive(Default)]
pub(crate) struct LastWords(Mutex<String>);

impl LastWords {
    pub(crate) fn keep(&self, process: &ProcessId, text: &str) {
        let mut kept = self.lock();
        kept.push_str(&shown(process, text));
        let surplus = kept.len() - tail_of_lines(&kept, KEPT_BYTES).len();
        kept.drain(..surplus);
    }

    pub(crate) fn text(&self) -> String {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Behind a line that names the process; nothing where it said nothing.
pub(crate) fn shown(process: &ProcessId, text: &str) -> String {
    let text = tail_of_lines(text, SHOWN_BYTES);
    if text.is_empty() {
        return String::new();
    }
    format!("--- {process} ---\n{text}{}", end_of_line(text))
}
