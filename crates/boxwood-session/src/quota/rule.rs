//! How much a directory can hold by now, from little: what it held when it was last looked through, and
//! how much room the file system has lost since.
//!
//! Comes in: measures, and how much is free. Goes out: when to look next, and whether only a look through
//! everything can tell. Never here: I/O. Same inputs, same answer.
//!
//! What a file system loses may be anybody's. So the rule only ever says how much it can be *at most*;
//! nobody is stopped for that, it is a reason to measure. Room that is given back does not count: it may
//! be a neighbour's, and would hide as much as somebody else writes. What was hidden between two looks is
//! found where looking through everything costs next to nothing, and elsewhere when its time has come.

use std::time::{Duration, Instant};

const MIB: u64 = 1024 * 1024;

/// How far over its quota a box may be when it stands still. Never less, however small the quota is.
const LEAST_SLACK: u64 = 64 * MIB;

/// What a box can write at most. Files go to memory first: two processors reach 5.5 GB/s there.
const BYTES_PER_MS: u64 = 8 * 1024 * MIB / 1000;

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Files can also seem larger without taking room. That hurts nobody, and is looked for once in a while.
const SLOW: Duration = Duration::from_secs(30);
/// Of the time that a measure takes: those without any hurry take a thousandth of a processor at most.
const SLOW_PER_MEASURE: u32 = 1000;

/// So few files are looked through before a command would have started.
const FEW: u64 = 256;
/// So many within a millisecond.
const SOON_WALKED: u64 = 1000;

/// By how much a quota may be exceeded.
pub(super) fn slack(limit: u64) -> u64 {
    LEAST_SLACK.max(limit / 10)
}

/// Before what is left could be written.
pub(super) fn pause(left: u64) -> Duration {
    Duration::from_millis(left / BYTES_PER_MS).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

/// What can be written by one who had a processor for so long.
pub(super) fn at_most_within(busy: Duration) -> u64 {
    let microseconds = u64::try_from(busy.as_micros()).unwrap_or(u64::MAX);
    microseconds.saturating_mul(BYTES_PER_MS / 1000)
}

/// What one directory is known to hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    last: Option<Measure>,
    /// Room on the file system, when somebody last looked.
    seen: Option<u64>,
    /// Since the last measure began.
    moved: Moved,
    /// Of that, before the measure that is under way began.
    moved_before: Option<Moved>,
    /// What it held when those who are over were last stopped, and nothing less since.
    judged: u64,
}

/// What became of the room on a file system.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    lost: u64,
    given_back: u64,
}

impl Moved {
    fn is_nothing(self) -> bool {
        self.lost == 0 && self.given_back == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measure {
    pub(super) used: u64,
    pub(super) entries: u64,
    pub(super) at: Instant,
    pub(super) took: Duration,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// All is well until then, whatever anybody does.
    Again(Duration),
    /// It may be too much: the box waits while it is measured.
    Close,
    /// Time to measure, without any hurry.
    Due,
}

/// What there is to say for it that it is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    Usual,
    /// A command failed, and nobody knows why.
    Reason,
}

impl Account {
    /// Somebody looked how much is free.
    pub(super) fn saw(&mut self, free: u64) {
        let seen = self.seen.replace(free).unwrap_or(free);
        let Moved { lost, given_back } = &mut self.moved;
        *lost = lost.saturating_add(seen.saturating_sub(free));
        *given_back = given_back.saturating_add(free.saturating_sub(seen));
    }

    pub(super) fn begin_measure(&mut self) {
        self.moved_before = Some(self.moved);
    }

    /// What is lost while it goes on may be in it or not, so it is kept.
    pub(super) fn end_measure(&mut self, measure: Measure) {
        let before = self.moved_before.take().unwrap_or_default();
        let Moved { lost, given_back } = &mut self.moved;
        *lost = lost.saturating_sub(before.lost);
        *given_back = given_back.saturating_sub(before.given_back);
        self.judged = self.judged.min(measure.used);
        self.last = Some(measure);
    }

    /// Whoever is over was stopped: there is nothing more to do until it grows again.
    pub(super) fn judge(&mut self) {
        self.judged = self.last.map_or(0, |last| last.used);
    }

    /// It came to nothing, so everything that is lost since the one before still counts.
    pub(super) fn abandon_measure(&mut self) {
        self.moved_before = None;
    }

    pub(super) fn measured(&self) -> Option<u64> {
        self.last.map(|last| last.used)
    }

    /// Whether everything can be looked through at once, by what is known.
    pub(super) fn is_soon_walked(&self) -> bool {
        self.last.is_some_and(|last| last.entries <= SOON_WALKED)
    }

    /// `None` before the first measure.
    pub(super) fn at_most(&self) -> Option<u64> {
        let lost = self.moved.lost;
        self.last.map(|last| last.used.saturating_add(lost))
    }

    /// Whether nothing but a measure can tell if it is too much. An old one does not do: what only seems
    /// large takes no room. Nor does one that is close, once anything was lost, or one that costs nothing to
    /// repeat, once anything changed: a neighbour who gave room back between two looks has hidden as much.
    pub(super) fn is_unsure(&self, limit: u64, doubt: Doubt, now: Instant) -> bool {
        let Some(last) = self.last else {
            return true;
        };
        if self.moved.is_nothing() {
            return last.used > limit;
        }
        let lost = self.moved.lost;
        let margin = match doubt {
            _ if lost == 0 => 0,
            // One that wrote little did not fail for that.
            Doubt::Reason if lost > limit / 8 => limit / 2,
            Doubt::Usual | Doubt::Reason => (slack(limit) / 8).min(limit / 8),
        };
        let at_most = last.used.saturating_add(lost);
        last.entries <= FEW || at_most.saturating_add(margin) > limit || self.is_due(now)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| {
            let period = SLOW.max(last.took.saturating_mul(SLOW_PER_MEASURE));
            !self.moved.is_nothing() && now.saturating_duration_since(last.at) >= period
        })
    }

    pub(super) fn look(&self, limit: u64, now: Instant) -> Look {
        let Some(at_most) = self.at_most() else {
            return Look::Due;
        };
        let slack = slack(limit);
        // A little over is not worth a look: who stays there is told when a command begins or ends.
        let limit = limit.max(self.judged);
        if at_most > limit.saturating_add(slack / 4) {
            return Look::Close;
        }
        if self.is_due(now) {
            return Look::Due;
        }
        let left = limit.saturating_add(slack / 2).saturating_sub(at_most);
        Look::Again(pause(left))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn measured(used: u64, free: u64) -> Account {
        let mut account = Account::default();
        account.begin_measure();
        account.saw(free);
        account.end_measure(measure(used));
        account
    }

    /// Of a large tree.
    fn measure(used: u64) -> Measure {
        let (at, took) = (Instant::now(), Duration::ZERO);
        let entries = FEW + 1;
        Measure {
            used,
            entries,
            at,
            took,
        }
    }

    #[test]
    fn nothing_is_known_before_the_first_measure() {
        let account = Account::default();
        assert_eq!(account.look(MIB, Instant::now()), Look::Due);
        assert!(account.is_unsure(MIB, Doubt::Usual, Instant::now()));
    }

    #[test]
    fn what_a_neighbour_gives_back_hides_nothing() {
        let mut account = measured(0, 100 * MIB);
        account.saw(5_000 * MIB);
        account.saw(4_800 * MIB);
        assert_eq!(account.at_most(), Some(200 * MIB));
    }

    #[test]
    fn a_full_directory_is_looked_at_more_often_than_an_empty_one() {
        let now = Instant::now();
        let wait = |used| match measured(used, MIB).look(10_240 * MIB, now) {
            Look::Again(wait) => wait,
            other => panic!("{other:?}"),
        };
        assert_eq!(wait(0), LONGEST_PAUSE);
        assert!(wait(10_240 * MIB) < LONGEST_PAUSE);
        assert!(wait(10_240 * MIB) >= SHORTEST_PAUSE);
    }

    #[test]
    fn a_quiet_file_system_is_never_walked() {
        let mut account = measured(MIB, 100 * MIB);
        let later = Instant::now() + Duration::from_hours(10);
        assert!(matches!(account.look(2 * MIB, later), Look::Again(_)));
        account.saw(99 * MIB + 1);
        assert_eq!(account.look(200 * MIB, later), Look::Due);
    }

    #[test]
    fn a_failed_command_is_a_reason_to_measure() {
        let mut account = measured(0, 1000 * MIB);
        let unsure = |account: &Account, doubt| account.is_unsure(100 * MIB, doubt, Instant::now());
        assert!(!unsure(&account, Doubt::Reason), "nobody wrote anything");
        account.saw(940 * MIB);
        assert!(unsure(&account, Doubt::Reason));
        assert!(!unsure(&account, Doubt::Usual));
        account.saw(905 * MIB);
        assert!(unsure(&account, Doubt::Usual), "too close");
    }

    #[test]
    fn what_a_neighbour_hid_in_a_small_tree_is_found_by_looking_again() {
        let unsure = |account: &Account| account.is_unsure(100 * MIB, Doubt::Usual, Instant::now());
        let mut large = measured(0, 1000 * MIB);
        let mut small = large.clone();
        small.begin_measure();
        small.end_measure(Measure {
            entries: FEW,
            ..measure(0)
        });
        assert!(!unsure(&small), "nobody did anything");
        // Somebody wrote 200 MiB, and a neighbour removed 300.
        small.saw(1100 * MIB);
        large.saw(1100 * MIB);
        assert!(unsure(&small) && !unsure(&large));
        let later = Instant::now() + SLOW;
        assert!(large.is_unsure(100 * MIB, Doubt::Usual, later));
        assert_eq!(large.look(100 * MIB, later), Look::Due);
    }

    #[test]
    fn what_was_judged_is_judged_again_only_when_it_grows() {
        let mut account = measured(120 * MIB, 1000 * MIB);
        let look = |account: &Account| account.look(100 * MIB, Instant::now());
        assert_eq!(look(&account), Look::Close);
        account.judge();
        assert!(matches!(look(&account), Look::Again(_)));
        account.saw(980 * MIB);
        assert_eq!(look(&account), Look::Close, "it grows");
        // Who measures meanwhile, to refuse a command, changes nothing in that.
        account.begin_measure();
        account.end_measure(measure(140 * MIB));
        assert_eq!(look(&account), Look::Close);
        account.judge();
        // Made smaller, it has no more than anybody else.
        account.begin_measure();
        account.end_measure(measure(50 * MIB));
        account.saw(900 * MIB);
        assert_eq!(look(&account), Look::Close);
    }

    #[test]
    fn what_is_written_during_a_measure_is_not_forgotten() {
        let mut account = measured(0, 100 * MIB);
        account.saw(90 * MIB);
        account.begin_measure();
        account.saw(70 * MIB);
        account.end_measure(measure(10 * MIB));
        assert_eq!(account.at_most(), Some(30 * MIB));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Writes(u64),
        Removes(u64),
        NeighbourWrites(u64),
        NeighbourRemoves(u64),
        Measure,
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let bytes = 0..80 * MIB;
        let event = prop_oneof![
            4 => bytes.clone().prop_map(Event::Writes),
            2 => bytes.clone().prop_map(Event::Removes),
            2 => bytes.clone().prop_map(Event::NeighbourWrites),
            2 => bytes.prop_map(Event::NeighbourRemoves),
            1 => Just(Event::Measure),
        ];
        prop::collection::vec(event, 0..60)
    }

    proptest! {
        /// Whoever does what, no box holds more than its account says it can at most, and one that
        /// is too far over is always about to be measured.
        #[test]
        fn an_account_never_promises_too_little(events in events(), limit in 0..400 * MIB) {
            let (mut free, mut used) = (1_u64 << 40, 0_u64);
            let mut account = measured(used, free);
            for event in events {
                match event {
                    Event::Writes(bytes) => { used += bytes; free -= bytes; }
                    Event::Removes(bytes) => {
                        let bytes = bytes.min(used);
                        used -= bytes;
                        free += bytes;
                    }
                    Event::NeighbourWrites(bytes) => free -= bytes,
                    Event::NeighbourRemoves(bytes) => free += bytes,
                    Event::Measure => {
                        account.begin_measure();
                        account.end_measure(measure(used));
                    }
                }
                account.saw(free);
                prop_assert!(account.at_most() >= Some(used));
                if used > limit + slack(limit) / 4 {
                    prop_assert_eq!(account.look(limit, Instant::now()), Look::Close);
                }
                if used > limit {
                    prop_assert!(account.is_unsure(limit, Doubt::Usual, Instant::now()));
                }
            }
        }
    }
}
