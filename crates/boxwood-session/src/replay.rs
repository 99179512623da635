//! How far back output that was handed out can be had again.

use std::collections::VecDeque;
use std::time::Duration;

use crate::SessionError;
use crate::journal::Journal;

/// How much of what was handed out is kept for a client that lost it, per stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayLimits {
    pub bytes: u64,
    pub lines: usize,
    /// How long a command that was started as resumable runs without a client.
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

/// From where on a client wants a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The first byte that nobody has taken yet.
    Now,
    /// This byte of all that the program ever wrote.
    Offset(u64),
}

impl Since {
    /// Where that is, if it can be had.
    pub(crate) fn within(self, journal: &Journal, now: u64) -> Result<u64, SessionError> {
        let Self::Offset(asked) = self else {
            return Ok(now);
        };
        let (oldest, end) = (journal.start(), journal.end());
        if asked < oldest {
            return Err(SessionError::ReplayGone { asked, oldest });
        }
        if asked > end {
            return Err(SessionError::Invalid {
                what: format!("output from byte {asked} on: there are {end} bytes so far"),
            });
        }
        Ok(asked)
    }
}

/// Lines are counted in groups: the bound is for memory, and a group more or less does not matter.
const GROUP_LINES: usize = 64;

/// The kept part of what was handed out.
pub(crate) struct Window {
    limits: ReplayLimits,
    /// Where each group of lines began, oldest first.
    groups: VecDeque<u64>,
    /// Lines since the last group began.
    lines: usize,
    /// Older lines are too many.
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

    /// `bytes` were handed out for the first time; the first of them is at `offset`.
    pub(crate) fn passed(&mut self, offset: u64, bytes: &[u8]) {
        for end in memchr::memchr_iter(b'\n', bytes) {
            self.passed_line(offset + end as u64 + 1);
        }
    }

    /// A line was handed out; the next one begins here.
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

    /// The first byte to keep, when everything before `handed_out` has been.
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
    fn what_cannot_be_had_again_is_said() {
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
