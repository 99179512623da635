//! Retrying against a model that says the same in the plainest words, over every history.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use crate::hosting::HostingSettings;
use crate::hosting::retry::{GivenUp, Mends, Next, Retry};

#[derive(Clone, Copy, Debug)]
enum Event {
    Pass(u64),
    Connect,
    Fail { mends: Mends, main_ended: bool },
    Ask,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let mends = prop_oneof![
        6 => Just(Mends::Perhaps),
        1 => Just(Mends::HardlyTwice),
        1 => Just(Mends::Never),
    ];
    let event = prop_oneof![
        3 => (0_u64..120).prop_map(Event::Pass),
        3 => Just(Event::Connect),
        6 => (mends, any::<bool>()).prop_map(|(mends, main_ended)| Event::Fail { mends, main_ended }),
        1 => Just(Event::Ask),
    ];
    prop::collection::vec(event, 1..60)
}

/// Keeps the whole history and looks it through each time.
#[derive(Default)]
struct Model {
    second: u64,
    connected_at: Option<u64>,
    failures: u32,
    was_doubtful: bool,
    ends: Vec<u64>,
}

impl Model {
    fn fail(&mut self, mends: Mends, main_ended: bool) -> Next {
        let was_healthy = self
            .connected_at
            .take()
            .is_some_and(|at| self.second - at >= 60);
        if was_healthy {
            (self.failures, self.was_doubtful) = (0, false);
        }
        self.failures += 1;
        let is_second_doubt = self.was_doubtful && mends == Mends::HardlyTwice;
        self.was_doubtful = mends == Mends::HardlyTwice;
        if main_ended {
            self.ends.push(self.second);
        }
        let lately = |at: &&u64| self.second - **at < 300;
        let ends = self.ends.iter().filter(lately).count();
        if mends == Mends::Never || is_second_doubt {
            return Next::GiveUp(GivenUp::CannotMend);
        }
        if ends > 5 {
            return Next::GiveUp(GivenUp::CrashLoop { ends });
        }
        match self.failures {
            1..=3 => Next::Again {
                after: Duration::from_secs(1 << self.failures),
            },
            attempts => Next::GiveUp(GivenUp::Exhausted { attempts }),
        }
    }
}

/// How often it ended is only told up to one more than the limit.
fn bounded(next: Next) -> Next {
    match next {
        Next::GiveUp(GivenUp::CrashLoop { .. }) => Next::GiveUp(GivenUp::CrashLoop { ends: 6 }),
        other => other,
    }
}

proptest! {
    #[test]
    fn it_decides_as_the_model_does(events in events()) {
        let mut retry = Retry::new(&HostingSettings::new("unused"));
        let mut model = Model::default();
        let start = Instant::now();
        for event in events {
            let now = start + Duration::from_secs(model.second);
            match event {
                Event::Pass(seconds) => model.second += seconds,
                Event::Connect => {
                    retry.connected(now);
                    model.connected_at = Some(model.second);
                }
                Event::Ask => {
                    retry.asked();
                    model = Model { second: model.second, ..Model::default() };
                }
                Event::Fail { mends, main_ended } => {
                    let decided = bounded(retry.failed(now, mends, main_ended));
                    prop_assert_eq!(decided, bounded(model.fail(mends, main_ended)));
                    prop_assert_eq!(retry.count(), model.failures);
                }
            }
        }
    }

    #[test]
    fn it_never_goes_on_for_ever_without_health(lives in prop::collection::vec(0_u64..60, 20)) {
        let mut retry = Retry::new(&HostingSettings::new("unused"));
        let mut now = Instant::now();
        let mut attempts = 0;
        for life in lives {
            attempts += 1;
            retry.connected(now);
            now += Duration::from_secs(life);
            match retry.failed(now, Mends::Perhaps, true) {
                Next::Again { after } => now += after,
                Next::GiveUp(_) => break,
            }
        }
        prop_assert_eq!(attempts, 4);
    }
}

#[test]
fn settling_is_the_same_early_or_late() {
    let settings = HostingSettings::new("unused");
    let mut retry = Retry::new(&settings);
    let start = Instant::now();
    retry.failed(start, Mends::Perhaps, true);
    retry.connected(start);
    let healthy = retry.healthy_at().expect("there is something to forget");
    assert_eq!(healthy, start + settings.healthy_after);
    retry.settle(healthy - Duration::from_millis(1));
    assert_eq!(retry.count(), 1);
    retry.settle(healthy);
    assert_eq!((retry.count(), retry.healthy_at()), (0, None));
}
