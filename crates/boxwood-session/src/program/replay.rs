//! How much output is kept after it was handed out.

use std::collections::VecDeque;
use std::time::Duration;

use super::journal::Journal;
use crate::{Result, SessionError};

/// How much output is kept after it was handed out, per stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayLimits {
    pub bytes: u64,
    pub lines: usize,
    /// How long a resumable command runs without a client.
    pub resume_grace: Duration,
}

impl Default for ReplayLimits {
    fn default() -> Self {
        Self {
            bytes: 1024 * 1024,
            lines: 4096,
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
        let Self::Offset(asked) = self else {
            return Ok(now);
        };
        let (oldest, end) = (journal.start(), journal.end());
        if asked < oldest {
            return Err(SessionError::ReplayGone { asked, oldest });
        }
        if asked > end {
            return Err(SessionError::invalid(format!(
                "output from byte {asked} on: there are {end} bytes so far"
            )));
        }
        Ok(asked)
    }
}

/// Lines are counted in groups, which is exact enough for a memory limit.
const GROUP_LINES: usize = 64;

/// The part of the handed out output that is kept.
pub(crate) struct Window {
    limits: ReplayLimits,
    /// Offset of each group of lines, oldest first.
    groups: VecDeque<u64>,
    /// Lines since the last group started.
    lines: usize,
    /// Older lines are not kept.
    oldest_line: u64,
}

impl Window {
    pub(crate) fn new(limits: ReplayLimits) -> Self {
        Self {
            limits,
            groups: VecDeque::new(),
            lines: 0,
            oldest_line: 0,
        }
    }

    /// Counts `bytes`, which were handed out for the first time. `offset` is that of the first.
    pub(crate) fn passed(&mut self, offset: u64, bytes: &[u8]) {
        for end in memchr::memchr_iter(b'\n', bytes) {
            self.passed_line(offset + end as u64 + 1);
        }
    }

    /// Counts a line that was handed out. `next` is the offset of the next line.
    pub(crate) fn passed_line(&mut self, next: u64) {
        self.lines += 1;
        if self.lines < GROUP_LINES {
            return;
        }
        self.lines = 0;
        self.groups.push_back(next);
        while self.groups.len() > (self.limits.lines / GROUP_LINES).max(1) {
            self.oldest_line = self.groups.pop_front().unwrap_or(next);
        }
    }

    /// Returns the first byte to keep if everything before `handed_out` was handed out.
    pub(crate) fn start(&self, handed_out: u64) -> u64 {
        handed_out
            .saturating_sub(self.limits.bytes)
            .max(self.oldest_line)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.limits.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(bytes: u64, lines: usize) -> Window {
        Window::new(ReplayLimits {
            bytes,
            lines,
            ..ReplayLimits::default()
        })
    }

    #[test]
    fn a_window_is_bounded_by_bytes() {
        let window = window(1000, 4096);
        assert_eq!(window.start(500), 0);
        assert_eq!(window.start(1500), 500);
    }

    #[test]
    fn a_window_is_bounded_by_lines() {
        let mut window = window(1_000_000, 128);
        let text = b"ab\n".repeat(1000);
        window.passed(0, &text);
        let kept_lines = (3000 - window.start(3000)) / 3;
        assert!(
            (128..=128 + GROUP_LINES as u64).contains(&kept_lines),
            "{kept_lines}"
        );
        assert_eq!(window.start(3000) % 3, 0, "it begins with a line");
    }

    #[test]
    fn offsets_that_are_not_kept_are_refused() {
        let journal = Journal::new("test").expect("a journal");
        journal.append(&vec![b'x'; 200_000]).expect("taken");
        journal.forget_before(150_000);
        let oldest = journal.start();
        assert!(oldest > 0);
        assert_eq!(Since::Now.within(&journal, 7).expect("now"), 7);
        for good in [oldest, 200_000] {
            let since = Since::Offset(good);
            assert_eq!(since.within(&journal, 0).expect("kept"), good);
        }
        let gone = Since::Offset(oldest - 1).within(&journal, 0);
        assert!(matches!(gone, Err(SessionError::ReplayGone { asked, .. }) if asked == oldest - 1));
        let ahead = Since::Offset(200_001).within(&journal, 0);
        assert!(matches!(ahead, Err(SessionError::Invalid { .. })));
    }
}
