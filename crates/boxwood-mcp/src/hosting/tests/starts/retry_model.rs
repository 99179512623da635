//! Compares the retry policy with a simple model over random histories.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use crate::hosting::HostingSettings;
use crate::hosting::supervisor::retry::{GiveUpReason, Next, Retry, Retryable};

#[derive(Clone, Copy, Debug)]
enum Event {
    Pass(u64),
    Connect,
    Fail {
        retryable: Retryable,
        main_exited: bool,
    },
    Ask,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let retryable = prop_oneof![
        6 => Just(Retryable::Yes),
        1 => Just(Retryable::Once),
        1 => Just(Retryable::No),
    ];
    let event = prop_oneof![
        3 => (0_u64..120).prop_map(Event::Pass),
        3 => Just(Event::Connect),
        6 => (retryable, any::<bool>()).prop_map(|(retryable, main_exited)| Event::Fail { retryable, main_exited }),
        1 => Just(Event::Ask),
    ];
    prop::collection::vec(event, 1..60)
}

/// Keeps the whole history.
#[derive(Default)]
struct Model {
    second: u64,
    connected_at: Option<u64>,
    failures: u32,
    last_was_once: bool,
    exits: Vec<u64>,
}

impl Model {
    fn fail(&mut self, retryable: Retryable, main_exited: bool) -> Next {
        let was_healthy = self
            .connected_at
            .take()
            .is_some_and(|at| self.second - at >= 60);
        if was_healthy {
            (self.failures, self.last_was_once) = (0, false);
        }
        self.failures += 1;
        let is_repeated_once = self.last_was_once && retryable == Retryable::Once;
        self.last_was_once = retryable == Retryable::Once;
        if main_exited {
            self.exits.push(self.second);
        }
        let lately = |at: &&u64| self.second - **at < 300;
        let exits = self.exits.iter().filter(lately).count();
        if retryable == Retryable::No || is_repeated_once {
            return Next::GiveUp(GiveUpReason::NotRetryable);
        }
        if exits > 5 {
            return Next::GiveUp(GiveUpReason::CrashLoop { exits });
        }
        match self.failures {
            1..=3 => Next::Retry {
                after: Duration::from_secs(1 << self.failures),
            },
            attempts => Next::GiveUp(GiveUpReason::Exhausted { attempts }),
        }
    }
}

/// The number of exits is only reported up to one more than the limit.
fn bounded(next: Next) -> Next {
    match next {
        Next::GiveUp(GiveUpReason::CrashLoop { .. }) => {
            Next::GiveUp(GiveUpReason::CrashLoop { exits: 6 })
        }
        other => other,
    }
}

proptest! {
    #[test]
    fn retry_agrees_with_the_model(events in events()) {
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
                    retry.reset();
                    model = Model { second: model.second, ..Model::default() };
                }
                Event::Fail { retryable, main_exited } => {
                    let decided = bounded(retry.failed(now, retryable, main_exited));
                    prop_assert_eq!(decided, bounded(model.fail(retryable, main_exited)));
                    prop_assert_eq!(retry.count(), model.failures);
                }
            }
        }
    }

    #[test]
    fn retries_without_health_are_bounded(lives in prop::collection::vec(0_u64..60, 20)) {
        let mut retry = Retry::new(&HostingSettings::new("unused"));
        let mut now = Instant::now();
        let mut attempts = 0;
        for life in lives {
            attempts += 1;
            retry.connected(now);
            now += Duration::from_secs(life);
            match retry.failed(now, Retryable::Yes, true) {
                Next::Retry { after } => now += after,
                Next::GiveUp(_) => break,
            }
        }
        prop_assert_eq!(attempts, 4);
    }
}

#[test]
fn settling_early_or_late_is_equivalent() {
    let settings = HostingSettings::new("unused");
    let mut retry = Retry::new(&settings);
    let start = Instant::now();
    retry.failed(start, Retryable::Yes, true);
    retry.connected(start);
    let healthy = retry.healthy_at().expect("there is something to forget");
    assert_eq!(healthy, start + settings.healthy_after);
    retry.settle(healthy - Duration::from_millis(1));
    assert_eq!(retry.count(), 1);
    retry.settle(healthy);
    assert_eq!((retry.count(), retry.healthy_at()), (0, None));
}
