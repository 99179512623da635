//! When the connector reconnects.

use std::time::Duration;

use boxwood_agent::{Availability, Connector};
use tokio::time::Instant;

use crate::fake::{Clock, Fake, Mode, is_available, reason, until};

const SECOND: Duration = Duration::from_secs(1);

/// Of a runtime that closes all connections: when it was asked, as seconds between two times.
fn waits(fake: &Fake) -> Vec<f64> {
    let seen = fake.seen();
    let pairs = seen.iter().zip(seen.iter().skip(1));
    pairs
        .map(|((one, _), (next, _))| (*next - *one).as_secs_f64())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn tries_are_made_after_3_6_12_24_48_and_then_every_60_seconds() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    fake.set(Mode::Closes);
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    clock.advance(280 * SECOND).await;
    let waits = waits(&fake);
    let expected = [3.0, 6.0, 12.0, 24.0, 48.0, 60.0, 60.0];
    assert!(waits.len() >= expected.len(), "{waits:?}");
    for (wait, most) in waits.iter().zip(expected) {
        // A step of the clock is a quarter of a second.
        assert!(
            (most * 0.8 - 0.01..=most + 0.51).contains(wait),
            "{wait} s instead of {most} s in {waits:?}"
        );
    }
    let differ = waits
        .iter()
        .zip(expected)
        .any(|(wait, most)| most - wait > 0.3);
    assert!(differ, "not a single wait was shortened: {waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_starts_later_is_found() {
    let clock = Clock::hold();
    let mut fake = Fake::absent().await;
    let connector = Connector::remote(fake.endpoint(), None);
    assert_eq!(connector.availability(), Availability::Connecting);
    connector.settled().await;
    let why = reason(&connector);
    assert!(
        why.starts_with("box runtime connection failed: no daemon answers at"),
        "{why}"
    );
    assert!(why.contains("refused"), "{why}");
    clock.advance(5 * SECOND).await;
    assert!(!is_available(&connector));
    fake.open().await;
    clock.advance(10 * SECOND).await;
    until("the connection", || is_available(&connector)).await;
    assert_eq!(connector.generation(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_runtime_is_connected_again() {
    let clock = Clock::hold();
    let mut fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    for round in 1..=2 {
        assert_eq!(connector.generation(), round);
        fake.vanish().await;
        let lost = || !is_available(&connector);
        clock.advance_until("the loss", 21 * SECOND, lost).await;
        assert_eq!(reason(&connector), "Disconnected from Box runtime");
        let probes = fake.probes();
        fake.open().await;
        clock.advance(7 * SECOND).await;
        until("the next connection", || is_available(&connector)).await;
        assert_eq!(fake.probes(), probes + 1);
        // Long enough for the next loss to be a new one.
        clock.advance(21 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_never_answers_times_out_after_30_seconds() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    fake.set(Mode::Stopped);
    let connector = Connector::remote(fake.endpoint(), None);
    let begin = Instant::now();
    until("the first request", || fake.probes() == 1).await;
    clock.advance(29 * SECOND).await;
    assert_eq!(connector.availability(), Availability::Connecting);
    clock.advance(2 * SECOND).await;
    connector.settled().await;
    assert!(begin.elapsed() <= 32 * SECOND);
    let expected = format!("box runtime connection timed out ({})", fake.endpoint());
    assert_eq!(reason(&connector), expected);
}

#[tokio::test(start_paused = true)]
async fn a_disposed_connector_does_not_reconnect() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    fake.set(Mode::Closes);
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    connector.dispose().await;
    assert_eq!(connector.availability(), Availability::Disposed);
    let probes = fake.probes();
    clock.advance(200 * SECOND).await;
    assert_eq!(fake.probes(), probes);

    let dropped = Connector::remote(fake.endpoint(), None);
    dropped.settled().await;
    drop(dropped);
    let probes = fake.probes();
    clock.advance(200 * SECOND).await;
    assert_eq!(fake.probes(), probes, "the last handle is gone");
}
