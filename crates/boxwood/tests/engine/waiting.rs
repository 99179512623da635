//! Waiting with timeouts. They are long: they detect what hangs, not what is slow.

use std::time::{Duration, Instant};

/// For one response of a daemon.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);
/// For an asynchronous change.
pub(crate) const SETTLED: Duration = Duration::from_mins(1);

/// Waits for a response.
#[track_caller]
pub(crate) fn answered<T>(
    what: &'static str,
    call: impl Future<Output = T>,
) -> impl Future<Output = T> {
    let place = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(ANSWER, call).await {
            Ok(answer) => answer,
            Err(elapsed) => panic!("no answer within {ANSWER:?}: {what} ({place}): {elapsed}"),
        }
    }
}

/// Polls until the condition holds.
#[track_caller]
pub(crate) fn until<F: FnMut() -> bool>(
    what: &'static str,
    mut is_so: F,
) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let begin = Instant::now();
        while !is_so() {
            assert!(
                begin.elapsed() < SETTLED,
                "not so within {SETTLED:?}: {what} ({place})"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
