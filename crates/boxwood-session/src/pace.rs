//! How fast the output of one session is read.
//!
//! Comes in: that bytes were read. Goes out: when to read on. A program that writes for the sake of it
//! is always ready; reading it as fast as it writes would keep a processor of the daemon's busy, and
//! the callers of other sessions waiting. Held up for a moment it waits on its own pipe, and the rest of
//! the machine is free. What an honest program says fits into what may come at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::activity::lock;

/// Bytes a second, over all streams of a session.
const RATE: u64 = 64 * 1024 * 1024;

/// As many as may come at once after a pause.
const BURST: u64 = 16 * 1024 * 1024;

/// Below what silence of a program means, so that nobody takes a pause for its end.
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

/// The pace of one session. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Pace {
    /// When what was read so far would have come at [`RATE`].
    paid_until: Arc<Mutex<Instant>>,
}

impl Default for Pace {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            // A session begins with what a pause would have earned it.
            paid_until: Arc::new(Mutex::new(now.checked_sub(time_of(BURST)).unwrap_or(now))),
        }
    }
}

impl Pace {
    /// One stream that keeps to it.
    pub(crate) fn stream(&self) -> Paced {
        Paced {
            pace: self.clone(),
            pause_until: None,
        }
    }

    /// When to go on, if not now.
    fn read(&self, bytes: usize) -> Option<Instant> {
        let now = Instant::now();
        let mut paid_until = lock(&self.paid_until);
        let earliest = now.checked_sub(time_of(BURST)).unwrap_or(now);
        let paid = (*paid_until).max(earliest) + time_of(bytes as u64);
        *paid_until = paid.min(now + LONGEST_PAUSE);
        (*paid_until > now).then_some(*paid_until)
    }
}

fn time_of(bytes: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / RATE)
}

pub(crate) struct Paced {
    pace: Pace,
    pause_until: Option<Instant>,
}

impl Paced {
    /// Resolves when it is time to read on. Cancel-safe.
    pub(crate) async fn turn(&mut self) {
        if let Some(moment) = self.pause_until {
            tokio::time::sleep_until(moment).await;
            self.pause_until = None;
        }
    }

    pub(crate) fn read(&mut self, bytes: usize) {
        self.pause_until = self.pace.read(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 64 * 1024;

    async fn time_to_read(streams: &mut [Paced], bytes: u64) -> Duration {
        let began = Instant::now();
        let mut left = bytes;
        while left > 0 {
            for stream in &mut *streams {
                stream.turn().await;
                stream.read(PIECE);
                left = left.saturating_sub(PIECE as u64);
            }
        }
        for stream in streams {
            stream.turn().await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_honest_program_says_is_read_at_once() {
        let pace = Pace::default();
        tokio::time::advance(Duration::from_secs(1)).await;
        let took = time_to_read(&mut [pace.stream()], BURST).await;
        assert!(took < Duration::from_millis(2), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_keeps_to_the_rate_however_many_streams_it_has() {
        for count in [1, 8] {
            let pace = Pace::default();
            tokio::time::advance(Duration::from_secs(1)).await;
            let mut streams: Vec<_> = (0..count).map(|_| pace.stream()).collect();
            let took = time_to_read(&mut streams, BURST + 4 * RATE).await;
            assert!((3.9..4.2).contains(&took.as_secs_f64()), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_session_does_not_slow_another() {
        let (flood, quiet) = (Pace::default(), Pace::default());
        tokio::time::advance(Duration::from_secs(1)).await;
        flood.stream().read(usize::try_from(RATE).expect("64 bits"));
        let took = time_to_read(&mut [quiet.stream()], 1024).await;
        assert_eq!(took, Duration::ZERO);
        let took = time_to_read(&mut [flood.stream()], 1024).await;
        assert!(took <= LONGEST_PAUSE + Duration::from_millis(1), "{took:?}");
    }
}
