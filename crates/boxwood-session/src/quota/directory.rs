//! One directory of the host that a box can write to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use boxwood_policy::OpenedPath;
use rustix::fs::{StatVfs, fstatvfs};
use tokio::sync::Mutex;

use super::MIB;
use super::estimate::{Accuracy, Estimate, Measurement};
use super::walk::{WalkError, walk};

/// The default of `load.min_free_mb`, or 1 % of the file system if that is less.
const MIN_FREE: u64 = 256 * MIB;

/// On a full host, boxes that wrote more than this recently are killed.
const WRITER_BYTES: u64 = MIB;
const RECENT: Duration = Duration::from_secs(10);
/// Minimum time between two searches for writers on a full host.
const WRITER_CHECK_PAUSE: Duration = Duration::from_secs(1);
/// The same as a multiple of the time that the last search took.
const WRITER_CHECK_PAUSE_FACTOR: u32 = 10;

pub(super) struct Directory {
    handle: Arc<OwnedFd>,
    pub(super) host_path: String,
    /// `None` for directories without a quota.
    pub(super) limit: Option<u64>,
    /// Bytes of the file system that are reserved for the host.
    min_free: u64,
    /// Locked during a measurement, so there is one at a time.
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    estimate: Estimate,
    next_writer_check: Option<Instant>,
}

impl Directory {
    pub(super) fn new(
        source: &OpenedPath,
        limit: Option<u64>,
        min_free: Option<u64>,
    ) -> io::Result<Self> {
        let sizes = fstatvfs(source.fd())?;
        let total = sizes.f_blocks.saturating_mul(sizes.f_frsize);
        Ok(Self {
            handle: Arc::clone(&source.handle),
            host_path: source.real_path.display().to_string(),
            limit,
            min_free: min_free.unwrap_or_else(|| MIN_FREE.min(total / 100)),
            state: Arc::default(),
        })
    }

    /// Returns how much is used if that is more than the limit.
    pub(super) async fn over_limit(&self, accuracy: Accuracy) -> Result<Option<u64>, WalkError> {
        let Some(limit) = self.limit else {
            return Ok(None);
        };
        self.blocking(move |directory, state, cancelled| {
            let began = Instant::now();
            let free = free_bytes(&statvfs(directory)?);
            state.estimate.record_free(free);
            if state.estimate.is_within(limit, accuracy, began) {
                return Ok(None);
            }
            let usage = walk(directory, i64::MAX, cancelled)?;
            let used = usage.bytes();
            let measurement = Measurement {
                used,
                entries: usage.entries,
                at: Instant::now(),
                took: began.elapsed(),
            };
            state.estimate.measured(measurement, free);
            Ok((used > limit).then_some(used))
        })
        .await
    }

    /// Returns true if the file system has less than the reserved space free and files here changed
    /// recently.
    pub(super) async fn fills_the_host(&self) -> Result<bool, WalkError> {
        if self.min_free == 0 {
            return Ok(false);
        }
        let min_free = self.min_free;
        self.blocking(move |directory, state, cancelled| {
            let sizes = statvfs(directory)?;
            let available = sizes.f_bavail.saturating_mul(sizes.f_frsize);
            let began = Instant::now();
            if available >= min_free || state.next_writer_check.is_some_and(|next| began < next) {
                return Ok(false);
            }
            let since = SystemTime::now() - RECENT;
            let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
            let since = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            let walked = walk(directory, since, cancelled);
            let pause = WRITER_CHECK_PAUSE.max(began.elapsed() * WRITER_CHECK_PAUSE_FACTOR);
            state.next_writer_check = Some(Instant::now() + pause);
            Ok(walked?.recent > WRITER_BYTES)
        })
        .await
    }

    /// Runs file system calls in a blocking thread. Dropping the future cancels a walk.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(BorrowedFd<'_>, &mut State, &dyn Fn() -> bool) -> Result<T, WalkError>
        + Send
        + 'static,
    ) -> Result<T, WalkError> {
        let mut state = Arc::clone(&self.state).lock_owned().await;
        // Dropped with the future.
        let caller = Arc::new(());
        let (handle, waiter) = (Arc::clone(&self.handle), Arc::downgrade(&caller));
        let working = tokio::task::spawn_blocking(move || {
            work(handle.as_fd(), &mut state, &|| waiter.strong_count() == 0)
        });
        let outcome = working.await;
        drop(caller);
        outcome.unwrap_or_else(|error| Err(io::Error::other(error).into()))
    }
}

fn statvfs(directory: BorrowedFd<'_>) -> Result<StatVfs, WalkError> {
    Ok(fstatvfs(directory).map_err(io::Error::from)?)
}

fn free_bytes(sizes: &StatVfs) -> u64 {
    sizes.f_bfree.saturating_mul(sizes.f_frsize)
}
