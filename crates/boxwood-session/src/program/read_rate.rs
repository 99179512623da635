//! Limits how fast the output of one session is read.
//!
//! A program that writes without pause is always ready. Reading it at full speed would keep one processor
//! of the daemon busy and delay the clients of other sessions. Beyond the rate the program waits on its
//! own pipe. Ordinary output fits into the burst.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::session::activity::lock;

/// Bytes a second, over all streams of a session.
const RATE: u64 = 64 * 1024 * 1024;

/// Bytes that are read without a pause after an idle time.
const BURST: u64 = 16 * 1024 * 1024;

/// Shorter than the silence that ends a drain, so that a pause is not taken for the end of the output.
const MAX_PAUSE: Duration = Duration::from_millis(25);

/// The read rate of one session. Clones share it.
#[derive(Clone)]
pub(crate) struct ReadRate {
    /// When the bytes read so far would have arrived at [`RATE`].
    paid_until: Arc<Mutex<Instant>>,
}

impl Default for ReadRate {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            // A session starts with a full burst.
            paid_until: Arc::new(Mutex::new(now.checked_sub(time_of(BURST)).unwrap_or(now))),
        }
    }
}

impl ReadRate {
    /// A reader that is limited together with all others of the session.
    pub(crate) fn reader(&self) -> LimitedReader {
        LimitedReader {
            rate: self.clone(),
            pause_until: None,
        }
    }

    /// Returns when to continue, if not now.
    fn count(&self, bytes: usize) -> Option<Instant> {
        let now = Instant::now();
        let mut paid_until = lock(&self.paid_until);
        let earliest = now.checked_sub(time_of(BURST)).unwrap_or(now);
        let paid = (*paid_until).max(earliest) + time_of(bytes as u64);
        *paid_until = paid.min(now + MAX_PAUSE);
        (*paid_until > now).then_some(*paid_until)
    }
}

fn time_of(bytes: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / RATE)
}

pub(crate) struct LimitedReader {
    rate: ReadRate,
    pause_until: Option<Instant>,
}

impl LimitedReader {
    /// Resolves when the next read may start. Cancel-safe.
    pub(crate) async fn ready(&mut self) {
        if let Some(until) = self.pause_until {
            tokio::time::sleep_until(until).await;
            self.pause_until = None;
        }
    }

    pub(crate) fn count(&mut self, bytes: usize) {
        self.pause_until = self.rate.count(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: usize = 64 * 1024;

    async fn time_to_read(streams: &mut [LimitedReader], bytes: u64) -> Duration {
        let began = Instant::now();
        let mut remaining = bytes;
        while remaining > 0 {
            for stream in &mut *streams {
                stream.ready().await;
                stream.count(CHUNK);
                remaining = remaining.saturating_sub(CHUNK as u64);
            }
        }
        for stream in streams {
            stream.ready().await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn ordinary_output_is_read_at_once() {
        let rate = ReadRate::default();
        tokio::time::advance(Duration::from_secs(1)).await;
        let took = time_to_read(&mut [rate.reader()], BURST).await;
        assert!(took < Duration::from_millis(2), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn fast_output_is_limited_for_any_number_of_streams() {
        for count in [1, 8] {
            let rate = ReadRate::default();
            tokio::time::advance(Duration::from_secs(1)).await;
            let mut streams: Vec<_> = (0..count).map(|_| rate.reader()).collect();
            let took = time_to_read(&mut streams, BURST + 4 * RATE).await;
            assert!((3.9..4.2).contains(&took.as_secs_f64()), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_do_not_slow_each_other() {
        let (fast, quiet) = (ReadRate::default(), ReadRate::default());
        tokio::time::advance(Duration::from_secs(1)).await;
        fast.reader().count(usize::try_from(RATE).expect("64 bits"));
        let took = time_to_read(&mut [quiet.reader()], 1024).await;
        assert_eq!(took, Duration::ZERO);
        let took = time_to_read(&mut [fast.reader()], 1024).await;
        assert!(took <= MAX_PAUSE + Duration::from_millis(1), "{took:?}");
    }
}
