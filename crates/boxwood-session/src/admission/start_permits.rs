//! Permits to start work: a [`FairQueue`] with a lock and a clock.
//!
//! A free permit costs two short locks and reading the clock. A task for the clock exists only while
//! requests are queued.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::fair_queue::{Bounds, Entry, FairQueue, Granted, Key};
use super::{Busy, LoadLimits};
use crate::session::activity::lock;
use crate::{Result, SessionError};

/// A permit counts for the daemon for one to two of these, and then for its session only.
const INTERVAL: Duration = Duration::from_millis(250);

pub(crate) struct StartPermits {
    queue: Mutex<Clocked>,
    limits: LoadLimits,
    start: Instant,
    refused: AtomicU64,
}

struct Clocked {
    queue: FairQueue<oneshot::Sender<StartPermit>>,
    /// Whether the clock task is running.
    has_clock: bool,
}

/// A permit; released when dropped.
pub(crate) struct StartPermit {
    granted: Granted,
    permits: Arc<StartPermits>,
}

impl StartPermits {
    pub(crate) fn new(limits: LoadLimits) -> Arc<Self> {
        let bounds = Bounds {
            at_once: limits.at_once.max(1),
            at_once_per_session: limits.at_once_per_session.max(1),
            waiting: limits.waiting,
            waiting_per_session: limits.waiting_per_session,
        };
        Arc::new(Self {
            queue: Mutex::new(Clocked {
                queue: FairQueue::new(bounds),
                has_clock: false,
            }),
            limits,
            start: Instant::now(),
            refused: AtomicU64::new(0),
        })
    }

    /// Returns a permit, waiting in the queue of the session if necessary. Fails at once if the queue
    /// is full, and after the maximum wait. Dropping the future leaves the queue.
    pub(crate) async fn take(self: &Arc<Self>, key: Key) -> Result<StartPermit> {
        let (ticket, receiver) = match self.enter(key) {
            Ok(Entered::Now(permit)) => return Ok(permit),
            Ok(Entered::QueuePlace(ticket, receiver)) => (ticket, receiver),
            Err(busy) => return Err(self.refuse(busy)),
        };
        let _place = QueuePlace {
            permits: self,
            key,
            ticket,
        };
        match timeout(self.limits.longest_wait, receiver).await {
            Ok(Ok(permit)) => Ok(permit),
            // The sender is dropped when the waiter is refused in favour of another session.
            Ok(Err(_)) => Err(self.refuse(Busy::Daemon {
                waiting: self.limits.waiting,
            })),
            Err(_) => Err(self.refuse(Busy::Waited {
                ms: u64::try_from(self.limits.longest_wait.as_millis()).unwrap_or(u64::MAX),
            })),
        }
    }

    fn enter(self: &Arc<Self>, key: Key) -> Result<Entered, Busy> {
        let interval = self.interval();
        let mut clocked = lock(&self.queue);
        let mut receiver = None;
        let (entry, served) = clocked.queue.enter(key, interval, || {
            let (sender, new_receiver) = oneshot::channel();
            receiver = Some(new_receiver);
            sender
        });
        let needs_clock = clocked.queue.waiting() > 0 && !clocked.has_clock;
        clocked.has_clock |= needs_clock;
        drop(clocked);
        if needs_clock {
            self.keep_time();
        }
        self.grant(served.begin);
        match (entry, receiver) {
            (Entry::Go(granted), _) => Ok(Entered::Now(self.permit(granted))),
            (Entry::Wait(ticket), Some(receiver)) => Ok(Entered::QueuePlace(ticket, receiver)),
            (Entry::SessionFull, _) => Err(Busy::Session {
                waiting: self.limits.waiting_per_session,
            }),
            (Entry::DaemonFull | Entry::Wait(_), _) => Err(Busy::Daemon {
                waiting: self.limits.waiting,
            }),
        }
    }

    pub(crate) fn refuse(&self, busy: Busy) -> SessionError {
        self.refused.fetch_add(1, Ordering::Relaxed);
        SessionError::Busy(busy)
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Numbers of permits in use and of queued requests.
    pub(crate) fn count(&self) -> (usize, usize) {
        let clocked = lock(&self.queue);
        (clocked.queue.under_way(), clocked.queue.waiting())
    }

    fn interval(&self) -> u64 {
        let intervals = self.start.elapsed().as_millis() / INTERVAL.as_millis();
        u64::try_from(intervals).unwrap_or(u64::MAX)
    }

    fn permit(self: &Arc<Self>, granted: Granted) -> StartPermit {
        StartPermit {
            granted,
            permits: Arc::clone(self),
        }
    }

    /// Not under the lock: the permit of a cancelled waiter is released here.
    fn grant(self: &Arc<Self>, served: Vec<(Granted, oneshot::Sender<StartPermit>)>) {
        for (granted, waiter) in served {
            drop(waiter.send(self.permit(granted)));
        }
    }

    /// Advances the time until the queues are empty.
    fn keep_time(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let permits = Arc::downgrade(self);
        runtime.spawn(async move {
            loop {
                sleep(INTERVAL).await;
                let Some(permits) = Weak::upgrade(&permits) else {
                    return;
                };
                let interval = permits.interval();
                let mut clocked = lock(&permits.queue);
                let served = clocked.queue.advance(interval);
                clocked.has_clock = clocked.queue.waiting() > 0;
                let has_waiters = clocked.has_clock;
                drop(clocked);
                permits.grant(served);
                if !has_waiters {
                    return;
                }
            }
        });
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        let interval = self.permits.interval();
        let served = lock(&self.permits.queue)
            .queue
            .leave(self.granted, interval);
        self.permits.grant(served);
    }
}

enum Entered {
    Now(StartPermit),
    QueuePlace(u64, oneshot::Receiver<StartPermit>),
}

/// A place in the queue. Dropping it leaves the queue; it has no effect after the permit was granted.
struct QueuePlace<'a> {
    permits: &'a Arc<StartPermits>,
    key: Key,
    ticket: u64,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        lock(&self.permits.queue)
            .queue
            .cancel(self.key, self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    fn permits(at_once: usize, at_once_per_session: usize, waiting: usize) -> Arc<StartPermits> {
        StartPermits::new(LoadLimits {
            at_once,
            at_once_per_session,
            waiting,
            waiting_per_session: waiting,
            longest_wait: Duration::from_secs(10),
            ..LoadLimits::default()
        })
    }

    fn busy<T>(outcome: Result<T>) -> Busy {
        match outcome {
            Err(SessionError::Busy(busy)) => busy,
            Err(other) => panic!("another error: {other}"),
            Ok(_) => panic!("there is no room"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_permit_goes_to_the_next_waiter() {
        let permits = permits(1, 1, 8);
        let first = permits.take(1).await.expect("free");
        let mut second = Box::pin(permits.take(2));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        let second = second.await.expect("its permit");
        assert_eq!(permits.count(), (1, 0));
        drop(second);
        assert_eq!(permits.count(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_refuses_at_once() {
        let permits = permits(1, 1, 1);
        let _held = permits.take(1).await.expect("free");
        let mut waits = Box::pin(permits.take(1));
        assert!((&mut waits).now_or_never().is_none());
        let refused = permits.take(1).now_or_never().expect("at once");
        assert_eq!(busy(refused), Busy::Session { waiting: 1 });
        let refused = permits.take(2).now_or_never().expect("at once");
        assert_eq!(busy(refused), Busy::Daemon { waiting: 1 });
        assert_eq!(permits.refused(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_is_limited() {
        let permits = permits(1, 1, 4);
        let _held = permits.take(1).await.expect("free");
        let began = Instant::now();
        assert_eq!(busy(permits.take(1).await), Busy::Waited { ms: 10_000 });
        assert_eq!(began.elapsed().as_secs(), 10);
        assert_eq!(permits.count(), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_command_delays_its_own_session_only() {
        let permits = permits(1, 1, 4);
        let _long = permits.take(1).await.expect("free");
        let began = Instant::now();
        let other = permits.take(2).await.expect("when the first has grown old");
        assert!(began.elapsed() <= 3 * INTERVAL);
        drop(other);
        let mut same = Box::pin(permits.take(1));
        advance(INTERVAL * 8).await;
        assert!((&mut same).now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_waiters_leave_nothing() {
        let permits = permits(1, 1, 64);
        let held = permits.take(1).await.expect("free");
        let mut waiting: Vec<_> = (0..32).map(|_| Box::pin(permits.take(2))).collect();
        for waiter in &mut waiting {
            assert!(waiter.now_or_never().is_none());
        }
        assert_eq!(permits.count(), (1, 32));
        drop(waiting.split_off(1));
        assert_eq!(permits.count(), (1, 1));
        drop(held);
        // The permit is granted to a waiter that is cancelled before it receives it.
        drop(waiting);
        assert_eq!(permits.count(), (0, 0));
        permits
            .take(3)
            .now_or_never()
            .expect("at once")
            .expect("free");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_requests_of_one_session_do_not_delay_another() {
        let permits = permits(4, 4, 2_000);
        let work = |key| {
            let permits = Arc::clone(&permits);
            async move {
                let _permit = permits.take(key).await.expect("a permit");
                tokio::task::yield_now().await;
            }
        };
        let crowd: Vec<_> = (0..1_000).map(|_| tokio::spawn(work(1))).collect();
        tokio::spawn(work(2)).await.expect("runs");
        for task in crowd {
            task.await.expect("runs");
        }
        assert_eq!(permits.count(), (0, 0));
    }

    /// Not a benchmark: the limit is far above the actual cost and far below that of a warm command.
    #[tokio::test]
    async fn a_free_permit_is_cheap() {
        let permits = permits(64, 64, 64);
        let rounds = 10_000_u32;
        let best = (0..5)
            .map(|_| {
                let began = std::time::Instant::now();
                for _ in 0..rounds {
                    drop(permits.take(7).now_or_never());
                }
                began.elapsed() / rounds
            })
            .min()
            .expect("five rounds");
        assert!(best < Duration::from_micros(100), "{best:?}");
    }
}
