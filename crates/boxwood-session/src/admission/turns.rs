//! Turns for those who wait for them: [`Fair`] behind a lock, with a clock.
//!
//! A turn that is free costs two short locks and a look at the clock. Nobody waits in a task, and a
//! task for the time exists only while somebody waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::fair::{Begun, Bounds, Entry, Fair, Key};
use super::{Busy, LoadLimits};
use crate::SessionError;
use crate::activity::lock;

/// A turn counts for everybody for one to two of these, and then for its session only.
const SPAN: Duration = Duration::from_millis(250);

pub(crate) struct Turns {
    fair: Mutex<Watched>,
    limits: LoadLimits,
    start: Instant,
    refused: AtomicU64,
}

struct Watched {
    fair: Fair<oneshot::Sender<Turn>>,
    /// Whether a task moves the time on for those who wait.
    has_clock: bool,
}

/// The right to work; given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    begun: Begun,
    turns: Arc<Turns>,
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Turns").finish_non_exhaustive()
    }
}

impl Turns {
    pub(crate) fn new(limits: LoadLimits) -> Arc<Self> {
        let bounds = Bounds {
            at_once: limits.at_once.max(1),
            at_once_per_session: limits.at_once_per_session.max(1),
            waiting: limits.waiting,
            waiting_per_session: limits.waiting_per_session,
        };
        Arc::new(Self {
            fair: Mutex::new(Watched {
                fair: Fair::new(bounds),
                has_clock: false,
            }),
            limits,
            start: Instant::now(),
            refused: AtomicU64::new(0),
        })
    }

    /// A turn now, or when the session's comes; an error at once when too many wait already, and
    /// later when that took too long. Dropping the future leaves the line.
    pub(crate) async fn take(self: &Arc<Self>, key: Key) -> Result<Turn, SessionError> {
        let (ticket, receiver) = match self.enter(key) {
            Ok(Entered::Now(turn)) => return Ok(turn),
            Ok(Entered::InLine(ticket, receiver)) => (ticket, receiver),
            Err(busy) => return Err(self.refuse(busy)),
        };
        let _place = InLine {
            turns: self,
            key,
            ticket,
        };
        match timeout(self.limits.longest_wait, receiver).await {
            Ok(Ok(turn)) => Ok(turn),
            // The other end is dropped when somebody else gets the place.
            Ok(Err(_)) => Err(self.refuse(Busy::Daemon {
                waiting: self.limits.waiting,
            })),
            Err(_) => Err(self.refuse(Busy::Waited {
                ms: u64::try_from(self.limits.longest_wait.as_millis()).unwrap_or(u64::MAX),
            })),
        }
    }

    fn enter(self: &Arc<Self>, key: Key) -> Result<Entered, Busy> {
        let span = self.span();
        let mut watched = lock(&self.fair);
        let mut receiver = None;
        let (entry, called) = watched.fair.enter(key, span, || {
            let (sender, ours) = oneshot::channel();
            receiver = Some(ours);
            sender
        });
        let needs_clock = watched.fair.waiting() > 0 && !watched.has_clock;
        watched.has_clock |= needs_clock;
        drop(watched);
        if needs_clock {
            self.keep_time();
        }
        self.tell(called.begin);
        match (entry, receiver) {
            (Entry::Go(begun), _) => Ok(Entered::Now(self.turn(begun))),
            (Entry::Wait(ticket), Some(receiver)) => Ok(Entered::InLine(ticket, receiver)),
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

    /// How many are under way, and how many wait.
    pub(crate) fn count(&self) -> (usize, usize) {
        let watched = lock(&self.fair);
        (watched.fair.under_way(), watched.fair.waiting())
    }

    fn span(&self) -> u64 {
        let passed = self.start.elapsed().as_millis() / SPAN.as_millis();
        u64::try_from(passed).unwrap_or(u64::MAX)
    }

    fn turn(self: &Arc<Self>, begun: Begun) -> Turn {
        Turn {
            begun,
            turns: Arc::clone(self),
        }
    }

    /// Never under the lock: a turn whose taker has left comes back at once.
    fn tell(self: &Arc<Self>, called: Vec<(Begun, oneshot::Sender<Turn>)>) {
        for (begun, waiter) in called {
            drop(waiter.send(self.turn(begun)));
        }
    }

    /// Turns grow old without anybody saying so. Ends when nobody waits.
    fn keep_time(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let turns = Arc::downgrade(self);
        runtime.spawn(async move {
            loop {
                sleep(SPAN).await;
                let Some(turns) = Weak::upgrade(&turns) else {
                    return;
                };
                let span = turns.span();
                let mut watched = lock(&turns.fair);
                let called = watched.fair.move_on(span);
                watched.has_clock = watched.fair.waiting() > 0;
                let goes_on = watched.has_clock;
                drop(watched);
                turns.tell(called);
                if !goes_on {
                    return;
                }
            }
        });
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let span = self.turns.span();
        let called = lock(&self.turns.fair).fair.leave(self.begun, span);
        self.turns.tell(called);
    }
}

enum Entered {
    Now(Turn),
    InLine(u64, oneshot::Receiver<Turn>),
}

/// A place in line; left when dropped, which changes nothing once the turn has come.
struct InLine<'a> {
    turns: &'a Arc<Turns>,
    key: Key,
    ticket: u64,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        lock(&self.turns.fair).fair.give_up(self.key, self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    fn turns(at_once: usize, at_once_per_session: usize, waiting: usize) -> Arc<Turns> {
        Turns::new(LoadLimits {
            at_once,
            at_once_per_session,
            waiting,
            waiting_per_session: waiting,
            longest_wait: Duration::from_secs(10),
            ..LoadLimits::default()
        })
    }

    fn busy<T>(outcome: Result<T, SessionError>) -> Busy {
        match outcome {
            Err(SessionError::Busy(busy)) => busy,
            Err(other) => panic!("another error: {other}"),
            Ok(_) => panic!("there is no room"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_comes_back_goes_to_the_next_in_line() {
        let turns = turns(1, 1, 8);
        let first = turns.take(1).await.expect("free");
        let mut second = Box::pin(turns.take(2));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        let second = second.await.expect("its turn");
        assert_eq!(turns.count(), (1, 0));
        drop(second);
        assert_eq!(turns.count(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_line_the_answer_is_no_at_once() {
        let turns = turns(1, 1, 1);
        let _held = turns.take(1).await.expect("free");
        let mut waits = Box::pin(turns.take(1));
        assert!((&mut waits).now_or_never().is_none());
        let refused = turns.take(1).now_or_never().expect("at once");
        assert_eq!(busy(refused), Busy::Session { waiting: 1 });
        let refused = turns.take(2).now_or_never().expect("at once");
        assert_eq!(busy(refused), Busy::Daemon { waiting: 1 });
        assert_eq!(turns.refused(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let turns = turns(1, 1, 4);
        let _held = turns.take(1).await.expect("free");
        let began = Instant::now();
        assert_eq!(busy(turns.take(1).await), Busy::Waited { ms: 10_000 });
        assert_eq!(began.elapsed().as_secs(), 10);
        assert_eq!(turns.count(), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_command_holds_up_its_own_session_only() {
        let turns = turns(1, 1, 4);
        let _long = turns.take(1).await.expect("free");
        let began = Instant::now();
        let other = turns.take(2).await.expect("when the first has grown old");
        assert!(began.elapsed() <= 3 * SPAN);
        drop(other);
        let mut same = Box::pin(turns.take(1));
        advance(SPAN * 8).await;
        assert!((&mut same).now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_that_leave_leave_nothing() {
        let turns = turns(1, 1, 64);
        let held = turns.take(1).await.expect("free");
        let mut waiting: Vec<_> = (0..32).map(|_| Box::pin(turns.take(2))).collect();
        for waiter in &mut waiting {
            assert!(waiter.now_or_never().is_none());
        }
        assert_eq!(turns.count(), (1, 32));
        drop(waiting.split_off(1));
        assert_eq!(turns.count(), (1, 1));
        drop(held);
        // The turn is on its way to a waiter that leaves without looking.
        drop(waiting);
        assert_eq!(turns.count(), (0, 0));
        turns
            .take(3)
            .now_or_never()
            .expect("at once")
            .expect("free");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_crowd_of_one_session_does_not_keep_another_waiting() {
        let turns = turns(4, 4, 2_000);
        let work = |key| {
            let turns = Arc::clone(&turns);
            async move {
                let _turn = turns.take(key).await.expect("a turn");
                tokio::task::yield_now().await;
            }
        };
        let crowd: Vec<_> = (0..1_000).map(|_| tokio::spawn(work(1))).collect();
        tokio::spawn(work(2)).await.expect("runs");
        for task in crowd {
            task.await.expect("runs");
        }
        assert_eq!(turns.count(), (0, 0));
    }

    /// Not a benchmark: the bound is far above what it takes, and far below what a warm command does.
    #[tokio::test]
    async fn a_free_turn_costs_next_to_nothing() {
        let turns = turns(64, 64, 64);
        let rounds = 10_000_u32;
        let best = (0..5)
            .map(|_| {
                let began = std::time::Instant::now();
                for _ in 0..rounds {
                    drop(turns.take(7).now_or_never());
                }
                began.elapsed() / rounds
            })
            .min()
            .expect("five rounds");
        assert!(best < Duration::from_micros(100), "{best:?}");
    }
}
