//! A queue per session, served round robin. Pure: no clock, no locks, no tasks.
//!
//! A permit counts for its session until it is released. For the daemon it counts only while it is
//! recent: the limit spreads bursts of starts, and running commands are scheduled by the kernel. So
//! long commands do not keep others from starting.

use std::collections::{HashMap, VecDeque};

/// The incarnation of a session, which is never reused.
pub(crate) type Key = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Recent permits in all sessions.
    pub(crate) at_once: usize,
    /// Permits of one session, recent or not.
    pub(crate) at_once_per_session: usize,
    pub(crate) waiting: usize,
    pub(crate) waiting_per_session: usize,
}

/// `W` wakes a waiter: the sender of a channel, or a number in tests.
pub(crate) struct FairQueue<W> {
    bounds: Bounds,
    queues: HashMap<Key, Queue<W>>,
    /// Sessions with a waiter and a free permit of their own, each once, in the order of service.
    ready: VecDeque<Key>,
    waiting: usize,
    recent: Recent,
    tickets: u64,
}

struct Queue<W> {
    under_way: usize,
    waiting: VecDeque<(u64, W)>,
    is_ready: bool,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self {
            under_way: 0,
            waiting: VecDeque::new(),
            is_ready: false,
        }
    }
}

/// Permits by the interval in which they were granted. A permit is recent in that interval and in the
/// next.
#[derive(Default)]
struct Recent {
    interval: u64,
    this_interval: usize,
    last_interval: usize,
}

impl Recent {
    fn advance(&mut self, interval: u64) {
        if interval <= self.interval {
            return;
        }
        self.last_interval = if interval == self.interval + 1 {
            self.this_interval
        } else {
            0
        };
        self.this_interval = 0;
        self.interval = interval;
    }

    fn count(&self) -> usize {
        self.this_interval + self.last_interval
    }

    fn end(&mut self, began: u64) {
        if began == self.interval {
            self.this_interval -= 1;
        } else if began + 1 == self.interval {
            self.last_interval -= 1;
        }
    }
}

/// A granted permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) key: Key,
    began: u64,
}

/// The result of a request for a permit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Go(Granted),
    /// Queued with this ticket.
    Wait(u64),
    /// The queue of the session is full.
    SessionFull,
    /// All queues together are full, and none is much longer than that of the session.
    DaemonFull,
}

/// Waiters that have been served.
#[derive(Debug)]
pub(crate) struct Served<W> {
    pub(crate) begin: Vec<(Granted, W)>,
    /// A waiter that was refused in favour of a session with a shorter queue.
    pub(crate) refused_waiter: Option<W>,
}

impl<W> Default for Served<W> {
    fn default() -> Self {
        Self {
            begin: Vec::new(),
            refused_waiter: None,
        }
    }
}

impl<W> FairQueue<W> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            queues: HashMap::new(),
            ready: VecDeque::new(),
            waiting: 0,
            recent: Recent::default(),
            tickets: 0,
        }
    }

    /// Requests a permit. `waiter` is served only if the request is queued.
    pub(crate) fn enter(
        &mut self,
        key: Key,
        interval: u64,
        waiter: impl FnOnce() -> W,
    ) -> (Entry, Served<W>) {
        self.recent.advance(interval);
        let mut served = Served::default();
        let queue = self.queues.get(&key);
        let under_way = queue.map_or(0, |queue| queue.under_way);
        let queued = queue.map_or(0, |queue| queue.waiting.len());
        let has_room = under_way < self.bounds.at_once_per_session;
        // Waiters go first: this request is queued, even if `serve` grants it a permit below.
        if has_room && self.ready.is_empty() && self.recent.count() < self.bounds.at_once {
            return (Entry::Go(self.begin(key)), served);
        }
        if queued >= self.bounds.waiting_per_session {
            return (Entry::SessionFull, served);
        }
        if self.waiting >= self.bounds.waiting {
            served.refused_waiter = self.refuse_from_longest(queued);
            if served.refused_waiter.is_none() {
                return (Entry::DaemonFull, served);
            }
        }
        self.tickets += 1;
        let ticket = self.tickets;
        self.waiting += 1;
        let queue = self.queues.entry(key).or_default();
        queue.waiting.push_back((ticket, waiter()));
        if has_room && !queue.is_ready {
            queue.is_ready = true;
            self.ready.push_back(key);
        }
        served.begin = self.serve();
        (Entry::Wait(ticket), served)
    }

    /// Releases a permit.
    pub(crate) fn leave(&mut self, granted: Granted, interval: u64) -> Vec<(Granted, W)> {
        self.recent.end(granted.began);
        self.recent.advance(interval);
        if let Some(queue) = self.queues.get_mut(&granted.key) {
            queue.under_way -= 1;
            if queue.waiting.is_empty() {
                if queue.under_way == 0 {
                    self.queues.remove(&granted.key);
                }
            } else if !queue.is_ready {
                queue.is_ready = true;
                self.ready.push_back(granted.key);
            }
        }
        self.serve()
    }

    /// Removes a waiter. Does nothing if it was served or refused meanwhile.
    pub(crate) fn cancel(&mut self, key: Key, ticket: u64) {
        let Some(queue) = self.queues.get_mut(&key) else {
            return;
        };
        // Tickets increase, so a queue is sorted.
        let Ok(index) = queue
            .waiting
            .binary_search_by_key(&ticket, |(ticket, _)| *ticket)
        else {
            return;
        };
        queue.waiting.remove(index);
        self.waiting -= 1;
        if queue.waiting.is_empty() {
            if queue.is_ready {
                queue.is_ready = false;
                self.ready.retain(|other| *other != key);
            }
            if queue.under_way == 0 {
                self.queues.remove(&key);
            }
        }
    }

    /// Time has passed, so some permits are no longer recent.
    pub(crate) fn advance(&mut self, interval: u64) -> Vec<(Granted, W)> {
        self.recent.advance(interval);
        self.serve()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn under_way(&self) -> usize {
        self.queues.values().map(|queue| queue.under_way).sum()
    }

    fn begin(&mut self, key: Key) -> Granted {
        self.queues.entry(key).or_default().under_way += 1;
        self.recent.this_interval += 1;
        Granted {
            key,
            began: self.recent.interval,
        }
    }

    /// Serves one waiter of each session in turn while permits are free.
    fn serve(&mut self) -> Vec<(Granted, W)> {
        let mut served = Vec::new();
        while self.recent.count() < self.bounds.at_once
            && let Some(key) = self.ready.pop_front()
        {
            let Some(queue) = self.queues.get_mut(&key) else {
                continue;
            };
            queue.is_ready = false;
            let Some((_, waiter)) = queue.waiting.pop_front() else {
                continue;
            };
            let is_ready =
                !queue.waiting.is_empty() && queue.under_way + 1 < self.bounds.at_once_per_session;
            if is_ready {
                queue.is_ready = true;
                self.ready.push_back(key);
            }
            self.waiting -= 1;
            served.push((self.begin(key), waiter));
        }
        served
    }

    /// Removes the newest waiter of the longest queue if that is longer than a queue of `queued` plus
    /// one. So many requests of one session never take the last place from another.
    fn refuse_from_longest(&mut self, queued: usize) -> Option<W> {
        let longest = self
            .queues
            .values_mut()
            .max_by_key(|queue| queue.waiting.len())?;
        if longest.waiting.len() <= queued + 1 {
            return None;
        }
        let (_, waiter) = longest.waiting.pop_back()?;
        self.waiting -= 1;
        Some(waiter)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        at_once: 2,
        at_once_per_session: 2,
        waiting: 8,
        waiting_per_session: 5,
    };

    fn enter(fair: &mut FairQueue<u32>, key: Key, name: u32) -> Entry {
        fair.enter(key, 0, || name).0
    }

    fn go(fair: &mut FairQueue<u32>, key: Key) -> Granted {
        match enter(fair, key, 0) {
            Entry::Go(granted) => granted,
            other => panic!("there is room, and yet {other:?}"),
        }
    }

    #[test]
    fn sessions_are_served_round_robin() {
        let mut fair = FairQueue::new(BOUNDS);
        let mut running: VecDeque<_> = (0..2).map(|_| go(&mut fair, 1)).collect();
        for name in 10..15 {
            assert!(matches!(enter(&mut fair, 1, name), Entry::Wait(_)));
        }
        assert!(matches!(enter(&mut fair, 2, 20), Entry::Wait(_)));
        assert!(matches!(enter(&mut fair, 3, 30), Entry::Wait(_)));
        let mut order = Vec::new();
        while let Some(granted) = running.pop_front() {
            for (granted, name) in fair.leave(granted, 0) {
                order.push(name);
                running.push_back(granted);
            }
        }
        assert_eq!(order[..3], [20, 30, 10], "{order:?}");
        assert_eq!(order.len(), 7);
        assert!(fair.queues.is_empty());
    }

    #[test]
    fn a_full_queue_refuses_its_session_only() {
        let mut fair = FairQueue::new(BOUNDS);
        let _running = [go(&mut fair, 1), go(&mut fair, 1)];
        for name in 0..5 {
            assert!(matches!(enter(&mut fair, 1, name), Entry::Wait(_)));
        }
        assert_eq!(enter(&mut fair, 1, 9), Entry::SessionFull);
        assert!(matches!(enter(&mut fair, 2, 9), Entry::Wait(_)));
    }

    #[test]
    fn the_newest_waiter_of_the_longest_queue_is_refused() {
        let mut fair = FairQueue::new(BOUNDS);
        let _running = [go(&mut fair, 1), go(&mut fair, 1)];
        for name in 0..5 {
            enter(&mut fair, 1, name);
        }
        for name in 10..13 {
            enter(&mut fair, 2, name);
        }
        let (entry, served) = fair.enter(3, 0, || 20);
        assert!(matches!(entry, Entry::Wait(_)));
        assert_eq!(
            served.refused_waiter,
            Some(4),
            "the newest of the longest queue"
        );
        let (entry, served) = fair.enter(1, 0, || 21);
        assert_eq!(entry, Entry::DaemonFull);
        assert_eq!(served.refused_waiter, None);
        assert_eq!(fair.waiting(), BOUNDS.waiting);
    }

    #[test]
    fn an_old_permit_counts_for_its_session_only() {
        let mut fair = FairQueue::new(BOUNDS);
        let old = [go(&mut fair, 1), go(&mut fair, 1)];
        assert!(matches!(enter(&mut fair, 1, 10), Entry::Wait(_)));
        assert!(matches!(enter(&mut fair, 2, 20), Entry::Wait(_)));
        assert!(fair.advance(1).is_empty(), "still recent");
        let served = fair.advance(2);
        assert_eq!(served.len(), 1);
        assert_eq!(served[0].1, 20);
        let served = fair.leave(old[0], 2);
        assert_eq!(served[0].1, 10);
        assert_eq!(fair.waiting(), 0);
    }

    #[test]
    fn a_cancelled_waiter_leaves_nothing() {
        let mut fair = FairQueue::new(BOUNDS);
        let running = [go(&mut fair, 1), go(&mut fair, 1)];
        let Entry::Wait(ticket) = enter(&mut fair, 2, 20) else {
            panic!("there is no room");
        };
        fair.cancel(2, ticket);
        fair.cancel(2, ticket);
        assert!(!fair.queues.contains_key(&2));
        assert!(fair.ready.is_empty());
        for granted in running {
            assert!(fair.leave(granted, 0).is_empty());
        }
        assert!(fair.queues.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Enter(Key),
        Leave(usize),
        Cancel(usize),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u64..4).prop_map(Step::Enter),
            3 => any::<usize>().prop_map(Step::Leave),
            1 => any::<usize>().prop_map(Step::Cancel),
            1 => (0_u64..3).prop_map(Step::Pass),
        ]
    }

    /// The expected state, derived from the results.
    struct Watched {
        fair: FairQueue<u32>,
        interval: u64,
        running: Vec<Granted>,
        /// By ticket: the session and the name of the waiter.
        waiting: BTreeMap<u64, (Key, u32)>,
        names: u32,
        tickets: BTreeMap<u32, u64>,
        overtaken: BTreeMap<Key, BTreeMap<Key, usize>>,
    }

    impl Watched {
        fn new(bounds: Bounds) -> Self {
            Self {
                fair: FairQueue::new(bounds),
                interval: 0,
                running: Vec::new(),
                waiting: BTreeMap::new(),
                names: 0,
                tickets: BTreeMap::new(),
                overtaken: BTreeMap::new(),
            }
        }

        fn granted(&mut self, served: Vec<(Granted, u32)>) {
            for (granted, name) in served {
                let ticket = self.tickets.remove(&name).expect("it waited");
                let (key, _) = self.waiting.remove(&ticket).expect("it waited");
                assert_eq!(key, granted.key);
                let first = self
                    .waiting
                    .range(..ticket)
                    .all(|(_, (other, _))| *other != key);
                assert!(first, "a queue is served in order");
                self.running.push(granted);
                self.overtaken.remove(&key);
                for (waiter, by) in &mut self.overtaken {
                    let count = by.entry(key).or_default();
                    *count += 1;
                    assert!(*count <= 1, "{waiter} was overtaken twice by {key}");
                }
            }
        }

        fn step(&mut self, step: &Step) {
            match *step {
                Step::Enter(key) => {
                    self.names += 1;
                    let name = self.names;
                    let (entry, served) = self.fair.enter(key, self.interval, || name);
                    if let Some(refused) = served.refused_waiter {
                        let ticket = self.tickets.remove(&refused).expect("it waited");
                        self.waiting.remove(&ticket);
                    }
                    match entry {
                        Entry::Go(granted) => self.running.push(granted),
                        Entry::Wait(ticket) => {
                            self.tickets.insert(name, ticket);
                            self.waiting.insert(ticket, (key, name));
                        }
                        Entry::SessionFull | Entry::DaemonFull => {}
                    }
                    self.granted(served.begin);
                }
                Step::Leave(which) if !self.running.is_empty() => {
                    let granted = self.running.swap_remove(which % self.running.len());
                    let served = self.fair.leave(granted, self.interval);
                    self.granted(served);
                }
                Step::Cancel(which) if !self.waiting.is_empty() => {
                    let at = which % self.waiting.len();
                    let (&ticket, &(key, name)) = self.waiting.iter().nth(at).expect("in range");
                    self.waiting.remove(&ticket);
                    self.tickets.remove(&name);
                    self.fair.cancel(key, ticket);
                }
                Step::Pass(spans) => {
                    self.interval += spans;
                    let served = self.fair.advance(self.interval);
                    self.granted(served);
                }
                Step::Leave(_) | Step::Cancel(_) => {}
            }
            self.check();
        }

        fn check(&mut self) {
            let bounds = self.fair.bounds;
            let recent = self
                .running
                .iter()
                .filter(|permit| permit.began + 1 >= self.interval)
                .count();
            assert_eq!(recent, self.fair.recent.count());
            assert!(recent <= bounds.at_once);
            assert_eq!(self.fair.waiting(), self.waiting.len());
            assert_eq!(self.fair.under_way(), self.running.len());
            assert!(self.waiting.len() <= bounds.waiting);
            let mut eligible = Vec::new();
            for key in 0..4 {
                let under_way = self
                    .running
                    .iter()
                    .filter(|permit| permit.key == key)
                    .count();
                let waiting = self
                    .waiting
                    .values()
                    .filter(|waiter| waiter.0 == key)
                    .count();
                assert!(under_way <= bounds.at_once_per_session);
                assert!(waiting <= bounds.waiting_per_session);
                assert_eq!(self.fair.queues.contains_key(&key), under_way + waiting > 0);
                if waiting > 0 && under_way < bounds.at_once_per_session {
                    eligible.push(key);
                }
            }
            assert!(
                eligible.is_empty() || recent == bounds.at_once,
                "a permit is free and a session waits"
            );
            let mut ready: Vec<_> = self.fair.ready.iter().copied().collect();
            ready.sort_unstable();
            assert_eq!(ready, eligible);
            self.overtaken.retain(|key, _| eligible.contains(key));
            for key in eligible {
                self.overtaken.entry(key).or_default();
            }
        }
    }

    proptest! {
        #[test]
        fn limits_hold_service_is_fair_and_nothing_is_left(
            at_once in 1_usize..5,
            at_once_per_session in 1_usize..4,
            waiting in 0_usize..8,
            waiting_per_session in 0_usize..5,
            steps in prop::collection::vec(step(), 0..120),
        ) {
            let mut watched = Watched::new(Bounds {
                at_once,
                at_once_per_session,
                waiting,
                waiting_per_session,
            });
            for step in &steps {
                watched.step(step);
            }
            while !watched.running.is_empty() {
                watched.step(&Step::Leave(0));
            }
            prop_assert!(watched.waiting.is_empty(), "all waiters were served");
            prop_assert!(watched.fair.queues.is_empty());
            prop_assert!(watched.fair.ready.is_empty());
            prop_assert_eq!(watched.fair.recent.count(), 0);
        }
    }
}
