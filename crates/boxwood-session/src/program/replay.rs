//! Output that is kept after it was handed out, so that a client can read it again.

use std::time::Duration;

use super::journal::Journal;
use crate::{Result, SessionError};

/// How much is kept for clients that reconnect, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayLimits {
    /// Output that is kept after it was handed out, per stream.
    pub bytes: u64,
    /// How long a resumable command runs without a client.
    pub resume_grace: Duration,
}

impl Default for ReplayLimits {
    fn default() -> Self {
        Self {
            bytes: 1024 * 1024,
            resume_grace: Duration::from_mins(1),
        }
    }
}

/// The first byte of a stream that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The first unread byte.
    Now,
    /// This offset in all output of the program.
    Offset(u64),
}

impl Since {
    /// Returns the offset if that byte is kept. `now` is the offset of the first unread byte.
    pub(crate) fn within(self, journal: &Journal, now: u64) -> Result<u64> {
        let Self::Offset(requested) = self else {
            return Ok(now);
        };
        let (oldest, end) = (journal.start(), journal.end());
        if requested < oldest {
            return Err(SessionError::ReplayGone { requested, oldest });
        }
        if requested > end {
            return Err(SessionError::invalid(format!(
                "output cannot start at byte {requested}: there are only {end} bytes so far"
            )));
        }
        Ok(requested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_that_are_not_kept_are_refused() {
        let journal = Journal::new("test").expect("a journal");
        journal.append(&vec![b'x'; 200_000]).expect("appended");
        journal.forget_before(150_000);
        let oldest = journal.start();
        assert!(oldest > 0);
        assert_eq!(Since::Now.within(&journal, 7).expect("now"), 7);
        for good in [oldest, 200_000] {
            let since = Since::Offset(good);
            assert_eq!(since.within(&journal, 0).expect("kept"), good);
        }
        let freed = Since::Offset(oldest - 1).within(&journal, 0);
        assert!(
            matches!(freed, Err(SessionError::ReplayGone { requested, .. }) if requested == oldest - 1)
        );
        let ahead = Since::Offset(200_001).within(&journal, 0);
        assert!(matches!(ahead, Err(SessionError::Invalid { .. })));
    }
}
