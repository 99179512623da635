//! Several sides that take turns.
//!
//! The order is shuffled for each turn, so that other load, and work that one side still does after its turn, affects
//! all sides equally.

use std::time::Duration;

use anyhow::Result;

use super::sample::Samples;
use super::table::Measured;

/// What a side does when it is its turn.
pub(in super::super) type Work<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

pub(in super::super) struct Turns<'a, Side> {
    parties: Vec<Party<'a, Side>>,
    shuffle: Shuffle,
}

struct Party<'a, Side> {
    side: Side,
    /// A side that failed once is not measured further: its times would not be comparable.
    work: Result<Work<'a>, String>,
    samples: Samples,
}

impl<'a, Side: Copy + PartialEq> Turns<'a, Side> {
    pub(in super::super) fn new() -> Self {
        Self {
            parties: Vec::new(),
            shuffle: Shuffle(1),
        }
    }

    pub(in super::super) fn join(&mut self, side: Side, work: Result<Work<'a>>) {
        self.parties.push(Party {
            side,
            work: work.map_err(|error| format!("{error:#}")),
            samples: Samples::default(),
        });
    }

    /// One turn for each side that is `wanted`, with a `pause` before each.
    pub(in super::super) fn take(&mut self, wanted: impl Fn(Side) -> bool, pause: Duration) {
        let mut order: Vec<_> = (0..self.parties.len()).collect();
        self.shuffle.apply(&mut order);
        for index in order {
            let party = &mut self.parties[index];
            if !wanted(party.side) {
                continue;
            }
            if let Ok(work) = &mut party.work {
                std::thread::sleep(pause);
                if let Err(error) = party.samples.time(work) {
                    party.work = Err(format!("{error:#}"));
                }
            }
        }
    }

    /// Drops the resources of the sides.
    pub(in super::super) fn finish(self) -> Times<Side> {
        let results = self
            .parties
            .into_iter()
            .map(|party| (party.side, party.work.map(|_| party.samples)));
        Times(results.collect())
    }
}

/// The samples of each side, or why it has none.
pub(in super::super) struct Times<Side>(Vec<(Side, Result<Samples, String>)>);

impl<Side: Copy + PartialEq> Times<Side> {
    pub(in super::super) fn compare(&self, ours: Side, theirs: Side) -> Measured {
        match (self.of(ours), self.of(theirs)) {
            (Ok(ours), Ok(theirs)) => Measured::times(ours, theirs),
            (Err(why), _) | (_, Err(why)) => Measured::Unknown {
                why: why.to_owned(),
            },
        }
    }

    fn of(&self, side: Side) -> Result<&Samples, &str> {
        let found = self.0.iter().find(|(name, _)| *name == side);
        match found {
            Some((_, Ok(samples))) if samples.count() > 0 => Ok(samples),
            Some((_, Err(why))) => Err(why),
            _ => Err("it had no turn"),
        }
    }
}

/// The same orders in every run. (Marsaglia's xorshift; no secret depends on it.)
struct Shuffle(u32);

impl Shuffle {
    fn apply(&mut self, order: &mut [usize]) {
        for last in (1..order.len()).rev() {
            let chosen = self.next() as usize % (last + 1);
            order.swap(last, chosen);
        }
    }

    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use anyhow::bail;

    use super::*;

    #[test]
    fn each_side_has_one_turn_in_an_order_that_changes() {
        let seen = RefCell::new(String::new());
        let mut turns = Turns::new();
        for side in ['a', 'b', 'c', 'd'] {
            let seen = &seen;
            turns.join(
                side,
                Ok(Box::new(move || {
                    seen.borrow_mut().push(side);
                    Ok(())
                })),
            );
        }
        let mut orders = BTreeSet::new();
        for _ in 0..20 {
            turns.take(|side| side != 'd', Duration::ZERO);
            orders.insert(seen.take());
        }
        assert_eq!(orders.len(), 6, "{orders:?}");
        let times = turns.finish();
        assert_eq!(times.of('a').map(Samples::count), Ok(20));
        assert_eq!(times.of('d').map(Samples::count), Err("it had no turn"));
    }

    #[test]
    fn a_side_that_fails_has_no_ratio_and_says_why() {
        let mut tries = 0;
        let mut turns = Turns::new();
        turns.join('a', Ok(Box::new(|| Ok(()))));
        turns.join('b', Err(anyhow::anyhow!("no engine")));
        turns.join(
            'c',
            Ok(Box::new(|| {
                tries += 1;
                if tries == 2 {
                    bail!("the engine went away")
                }
                Ok(())
            })),
        );
        for _ in 0..3 {
            turns.take(|_| true, Duration::ZERO);
        }
        let times = turns.finish();
        assert_eq!(tries, 2);
        for (ours, theirs, expected) in [
            ('b', 'a', "no engine"),
            ('a', 'c', "the engine went away"),
            ('a', 'x', "it had no turn"),
        ] {
            let Measured::Unknown { why } = times.compare(ours, theirs) else {
                panic!("{ours} and {theirs} were compared");
            };
            assert_eq!(why, expected);
        }
    }
}
