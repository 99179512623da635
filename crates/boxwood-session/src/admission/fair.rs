//! Whose turn it is: a queue per session, and sessions one after the other.
//!
//! Comes in: that somebody wants to begin, has ended, or left while waiting; and the time, as a
//! number. Goes out: who may begin, and who is refused. Never here: clocks, locks, tasks.
//!
//! A turn counts for its session until it ends. For the daemon as a whole it counts only while it is
//! young: what is meant to be kept apart are crowds, and a crowd that has begun is a matter for the
//! scheduler of the kernel. So a thousand commands that run for an hour hold up nobody who begins.

use std::collections::{HashMap, VecDeque};

/// A living session. Incarnations never repeat, so neither do keys.
pub(crate) type Key = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Young turns, over all sessions.
    pub(crate) at_once: usize,
    /// Turns of one session, however old.
    pub(crate) at_once_per_session: usize,
    pub(crate) waiting: usize,
    pub(crate) waiting_per_session: usize,
}

/// `W` is how a waiter is told: its end of a channel, or a number in tests.
pub(crate) struct Fair<W> {
    bounds: Bounds,
    lines: HashMap<Key, Line<W>>,
    /// Sessions with somebody waiting and room for one more, each once, in the order of their turns.
    round: VecDeque<Key>,
    waiting: usize,
    young: Young,
    tickets: u64,
}

struct Line<W> {
    under_way: usize,
    waiting: VecDeque<(u64, W)>,
    in_round: bool,
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Self {
            under_way: 0,
            waiting: VecDeque::new(),
            in_round: false,
        }
    }
}

/// Turns by the span of time they began in. A turn is young in its own span and in the next one.
#[derive(Default)]
struct Young {
    span: u64,
    this_span: usize,
    last_span: usize,
}

impl Young {
    fn move_on(&mut self, span: u64) {
        if span <= self.span {
            return;
        }
        self.last_span = if span == self.span + 1 {
            self.this_span
        } else {
            0
        };
        self.this_span = 0;
        self.span = span;
    }

    fn count(&self) -> usize {
        self.this_span + self.last_span
    }

    fn end(&mut self, began: u64) {
        if began == self.span {
            self.this_span -= 1;
        } else if began + 1 == self.span {
            self.last_span -= 1;
        }
    }
}

/// What has to be given back when a turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) key: Key,
    began: u64,
}

/// What asking for a turn came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Go(Begun),
    /// In line, under this number.
    Wait(u64),
    /// The session has as many waiting as it may have.
    SessionFull,
    /// The daemon has, and no session has many more of them than this one.
    DaemonFull,
}

/// Waiters whose waiting is over.
#[derive(Debug)]
pub(crate) struct Called<W> {
    pub(crate) begin: Vec<(Begun, W)>,
    /// Made room for a session with fewer waiters: refused.
    pub(crate) sent_away: Option<W>,
}

impl<W> Default for Called<W> {
    fn default() -> Self {
        Self {
            begin: Vec::new(),
            sent_away: None,
        }
    }
}

impl<W> Fair<W> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            lines: HashMap::new(),
            round: VecDeque::new(),
            waiting: 0,
            young: Young::default(),
            tickets: 0,
        }
    }

    /// Asks for a turn. `waiter` is made only when there is something to wait for.
    pub(crate) fn enter(
        &mut self,
        key: Key,
        span: u64,
        waiter: impl FnOnce() -> W,
    ) -> (Entry, Called<W>) {
        self.young.move_on(span);
        let mut called = Called::default();
        let line = self.lines.get(&key);
        let under_way = line.map_or(0, |line| line.under_way);
        let in_line = line.map_or(0, |line| line.waiting.len());
        let has_room = under_way < self.bounds.at_once_per_session;
        // Who came earlier goes first: then this one waits, if only for the call at the end.
        if has_room && self.round.is_empty() && self.young.count() < self.bounds.at_once {
            return (Entry::Go(self.begin(key)), called);
        }
        if in_line >= self.bounds.waiting_per_session {
            return (Entry::SessionFull, called);
        }
        if self.waiting >= self.bounds.waiting {
            called.sent_away = self.send_away_from_longest(in_line);
            if called.sent_away.is_none() {
                return (Entry::DaemonFull, called);
            }
        }
        self.tickets += 1;
        let ticket = self.tickets;
        self.waiting += 1;
        let line = self.lines.entry(key).or_default();
        line.waiting.push_back((ticket, waiter()));
        if has_room && !line.in_round {
            line.in_round = true;
            self.round.push_back(key);
        }
        called.begin = self.call();
        (Entry::Wait(ticket), called)
    }

    /// A turn has ended.
    pub(crate) fn leave(&mut self, begun: Begun, span: u64) -> Vec<(Begun, W)> {
        self.young.end(begun.began);
        self.young.move_on(span);
        if let Some(line) = self.lines.get_mut(&begun.key) {
            line.under_way -= 1;
            if line.waiting.is_empty() {
                if line.under_way == 0 {
                    self.lines.remove(&begun.key);
                }
            } else if !line.in_round {
                line.in_round = true;
                self.round.push_back(begun.key);
            }
        }
        self.call()
    }

    /// A waiter went away. One that was called or sent away meanwhile is not there any more.
    pub(crate) fn give_up(&mut self, key: Key, ticket: u64) {
        let Some(line) = self.lines.get_mut(&key) else {
            return;
        };
        // Tickets grow, so a line is sorted.
        let Ok(at) = line
            .waiting
            .binary_search_by_key(&ticket, |(ticket, _)| *ticket)
        else {
            return;
        };
        line.waiting.remove(at);
        self.waiting -= 1;
        if line.waiting.is_empty() {
            if line.in_round {
                line.in_round = false;
                self.round.retain(|other| *other != key);
            }
            if line.under_way == 0 {
                self.lines.remove(&key);
            }
        }
    }

    /// Time has passed, and turns have grown old.
    pub(crate) fn move_on(&mut self, span: u64) -> Vec<(Begun, W)> {
        self.young.move_on(span);
        self.call()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn under_way(&self) -> usize {
        self.lines.values().map(|line| line.under_way).sum()
    }

    fn begin(&mut self, key: Key) -> Begun {
        self.lines.entry(key).or_default().under_way += 1;
        self.young.this_span += 1;
        Begun {
            key,
            began: self.young.span,
        }
    }

    /// One waiter of each session in turn, for as long as there is room.
    fn call(&mut self) -> Vec<(Begun, W)> {
        let mut called = Vec::new();
        while self.young.count() < self.bounds.at_once
            && let Some(key) = self.round.pop_front()
        {
            let Some(line) = self.lines.get_mut(&key) else {
                continue;
            };
            line.in_round = false;
            let Some((_, waiter)) = line.waiting.pop_front() else {
                continue;
            };
            let stays =
                !line.waiting.is_empty() && line.under_way + 1 < self.bounds.at_once_per_session;
            if stays {
                line.in_round = true;
                self.round.push_back(key);
            }
            self.waiting -= 1;
            called.push((self.begin(key), waiter));
        }
        called
    }

    /// The newest waiter of the longest line, if that is longer than a line of `in_line` will be with
    /// one more. A crowd from one session so never takes the last place from another.
    fn send_away_from_longest(&mut self, in_line: usize) -> Option<W> {
        let longest = self
            .lines
            .values_mut()
            .max_by_key(|line| line.waiting.len())?;
        if longest.waiting.len() <= in_line + 1 {
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

    fn enter(fair: &mut Fair<u32>, key: Key, name: u32) -> Entry {
        fair.enter(key, 0, || name).0
    }

    fn go(fair: &mut Fair<u32>, key: Key) -> Begun {
        match enter(fair, key, 0) {
            Entry::Go(begun) => begun,
            other => panic!("there is room, and yet {other:?}"),
        }
    }

    #[test]
    fn sessions_take_turns_however_many_of_one_wait() {
        let mut fair = Fair::new(BOUNDS);
        let mut running: VecDeque<_> = (0..2).map(|_| go(&mut fair, 1)).collect();
        for name in 10..15 {
            assert!(matches!(enter(&mut fair, 1, name), Entry::Wait(_)));
        }
        assert!(matches!(enter(&mut fair, 2, 20), Entry::Wait(_)));
        assert!(matches!(enter(&mut fair, 3, 30), Entry::Wait(_)));
        let mut order = Vec::new();
        while let Some(begun) = running.pop_front() {
            for (begun, name) in fair.leave(begun, 0) {
                order.push(name);
                running.push_back(begun);
            }
        }
        assert_eq!(order[..3], [20, 30, 10], "{order:?}");
        assert_eq!(order.len(), 7);
        assert!(fair.lines.is_empty());
    }

    #[test]
    fn a_full_line_refuses_its_session_and_nobody_else() {
        let mut fair = Fair::new(BOUNDS);
        let _running = [go(&mut fair, 1), go(&mut fair, 1)];
        for name in 0..5 {
            assert!(matches!(enter(&mut fair, 1, name), Entry::Wait(_)));
        }
        assert_eq!(enter(&mut fair, 1, 9), Entry::SessionFull);
        assert!(matches!(enter(&mut fair, 2, 9), Entry::Wait(_)));
    }

    #[test]
    fn the_last_place_is_taken_back_from_the_longest_line() {
        let mut fair = Fair::new(BOUNDS);
        let _running = [go(&mut fair, 1), go(&mut fair, 1)];
        for name in 0..5 {
            enter(&mut fair, 1, name);
        }
        for name in 10..13 {
            enter(&mut fair, 2, name);
        }
        let (entry, called) = fair.enter(3, 0, || 20);
        assert!(matches!(entry, Entry::Wait(_)));
        assert_eq!(called.sent_away, Some(4), "the newest of the longest line");
        let (entry, called) = fair.enter(1, 0, || 21);
        assert_eq!(entry, Entry::DaemonFull);
        assert_eq!(called.sent_away, None);
        assert_eq!(fair.waiting(), BOUNDS.waiting);
    }

    #[test]
    fn an_old_turn_counts_for_its_session_only() {
        let mut fair = Fair::new(BOUNDS);
        let old = [go(&mut fair, 1), go(&mut fair, 1)];
        assert!(matches!(enter(&mut fair, 1, 10), Entry::Wait(_)));
        assert!(matches!(enter(&mut fair, 2, 20), Entry::Wait(_)));
        assert!(fair.move_on(1).is_empty(), "still young");
        let called = fair.move_on(2);
        assert_eq!(called.len(), 1);
        assert_eq!(called[0].1, 20);
        let called = fair.leave(old[0], 2);
        assert_eq!(called[0].1, 10);
        assert_eq!(fair.waiting(), 0);
    }

    #[test]
    fn a_waiter_that_left_leaves_nothing() {
        let mut fair = Fair::new(BOUNDS);
        let running = [go(&mut fair, 1), go(&mut fair, 1)];
        let Entry::Wait(ticket) = enter(&mut fair, 2, 20) else {
            panic!("there is no room");
        };
        fair.give_up(2, ticket);
        fair.give_up(2, ticket);
        assert!(!fair.lines.contains_key(&2));
        assert!(fair.round.is_empty());
        for begun in running {
            assert!(fair.leave(begun, 0).is_empty());
        }
        assert!(fair.lines.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Enter(Key),
        Leave(usize),
        GiveUp(usize),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u64..4).prop_map(Step::Enter),
            3 => any::<usize>().prop_map(Step::Leave),
            1 => any::<usize>().prop_map(Step::GiveUp),
            1 => (0_u64..3).prop_map(Step::Pass),
        ]
    }

    /// Everything that is known from outside: who runs, who waits, and who was overtaken.
    struct Watched {
        fair: Fair<u32>,
        span: u64,
        running: Vec<Begun>,
        /// By ticket: the session, and the turns that each other session got since this waiter was
        /// the first of its line and there was room in its session.
        waiting: BTreeMap<u64, (Key, u32)>,
        names: u32,
        tickets: BTreeMap<u32, u64>,
        overtaken: BTreeMap<Key, BTreeMap<Key, usize>>,
    }

    impl Watched {
        fn new(bounds: Bounds) -> Self {
            Self {
                fair: Fair::new(bounds),
                span: 0,
                running: Vec::new(),
                waiting: BTreeMap::new(),
                names: 0,
                tickets: BTreeMap::new(),
                overtaken: BTreeMap::new(),
            }
        }

        fn begun(&mut self, called: Vec<(Begun, u32)>) {
            for (begun, name) in called {
                let ticket = self.tickets.remove(&name).expect("it waited");
                let (key, _) = self.waiting.remove(&ticket).expect("it waited");
                assert_eq!(key, begun.key);
                let first = self
                    .waiting
                    .range(..ticket)
                    .all(|(_, (other, _))| *other != key);
                assert!(first, "a line is served in order");
                self.running.push(begun);
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
                    let (entry, called) = self.fair.enter(key, self.span, || name);
                    if let Some(away) = called.sent_away {
                        let ticket = self.tickets.remove(&away).expect("it waited");
                        self.waiting.remove(&ticket);
                    }
                    match entry {
                        Entry::Go(begun) => self.running.push(begun),
                        Entry::Wait(ticket) => {
                            self.tickets.insert(name, ticket);
                            self.waiting.insert(ticket, (key, name));
                        }
                        Entry::SessionFull | Entry::DaemonFull => {}
                    }
                    self.begun(called.begin);
                }
                Step::Leave(which) if !self.running.is_empty() => {
                    let begun = self.running.swap_remove(which % self.running.len());
                    let called = self.fair.leave(begun, self.span);
                    self.begun(called);
                }
                Step::GiveUp(which) if !self.waiting.is_empty() => {
                    let at = which % self.waiting.len();
                    let (&ticket, &(key, name)) = self.waiting.iter().nth(at).expect("in range");
                    self.waiting.remove(&ticket);
                    self.tickets.remove(&name);
                    self.fair.give_up(key, ticket);
                }
                Step::Pass(spans) => {
                    self.span += spans;
                    let called = self.fair.move_on(self.span);
                    self.begun(called);
                }
                Step::Leave(_) | Step::GiveUp(_) => {}
            }
            self.check();
        }

        fn check(&mut self) {
            let bounds = self.fair.bounds;
            let young = self
                .running
                .iter()
                .filter(|it| it.began + 1 >= self.span)
                .count();
            assert_eq!(young, self.fair.young.count());
            assert!(young <= bounds.at_once);
            assert_eq!(self.fair.waiting(), self.waiting.len());
            assert_eq!(self.fair.under_way(), self.running.len());
            assert!(self.waiting.len() <= bounds.waiting);
            let mut eligible = Vec::new();
            for key in 0..4 {
                let under_way = self.running.iter().filter(|it| it.key == key).count();
                let waiting = self.waiting.values().filter(|it| it.0 == key).count();
                assert!(under_way <= bounds.at_once_per_session);
                assert!(waiting <= bounds.waiting_per_session);
                assert_eq!(self.fair.lines.contains_key(&key), under_way + waiting > 0);
                if waiting > 0 && under_way < bounds.at_once_per_session {
                    eligible.push(key);
                }
            }
            assert!(
                eligible.is_empty() || young == bounds.at_once,
                "room, and somebody waits"
            );
            let mut round: Vec<_> = self.fair.round.iter().copied().collect();
            round.sort_unstable();
            assert_eq!(round, eligible);
            self.overtaken.retain(|key, _| eligible.contains(key));
            for key in eligible {
                self.overtaken.entry(key).or_default();
            }
        }
    }

    proptest! {
        #[test]
        fn bounds_hold_nobody_is_overtaken_twice_and_nothing_is_left(
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
            prop_assert!(watched.waiting.is_empty(), "everybody had a turn");
            prop_assert!(watched.fair.lines.is_empty());
            prop_assert!(watched.fair.round.is_empty());
            prop_assert_eq!(watched.fair.young.count(), 0);
        }
    }
}
