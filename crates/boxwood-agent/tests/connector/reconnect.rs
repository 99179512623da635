//! When a lost runtime is looked for.

use std::time::Duration;

use boxwood_agent::{Availability, Connector};
use tokio::time::Instant;

use crate::fake::{Clock, Fake, Mood, is_available, reason, until};

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
    fake.feel(Mood::HangsUp);
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
async fn a_runtime_that_is_not_there_at_first_is_found_when_it_comes() {
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
async fn a_lost_runtime_is_found_again_and_what_it_says_is_read_anew() {
    let clock = Clock::hold();
    let mut fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    for round in 1..=2 {
        assert_eq!(connector.generation(), round);
        let renewed = tokio::spawn({
            let connector = connector.clone();
            async move { connector.renewed(round).await }
        });
        fake.vanish().await;
        let lost = || !is_available(&connector);
        clock.advance_until("the loss", 21 * SECOND, lost).await;
        assert_eq!(reason(&connector), "Disconnected from Box runtime");
        let looks = fake.looks();
        fake.open().await;
        clock.advance(7 * SECOND).await;
        until("the next connection", || is_available(&connector)).await;
        assert_eq!(fake.looks(), looks + 1);
        assert_eq!(renewed.await.expect("told"), round + 1);
        // Long enough for the next loss to be a new one.
        clock.advance(21 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_takes_connections_and_never_answers_is_given_thirty_seconds() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    fake.feel(Mood::StandsStill);
    let connector = Connector::remote(fake.endpoint(), None);
    let begin = Instant::now();
    until("the first request", || fake.looks() == 1).await;
    clock.advance(29 * SECOND).await;
    assert_eq!(connector.availability(), Availability::Connecting);
    clock.advance(2 * SECOND).await;
    connector.settled().await;
    assert!(begin.elapsed() <= 32 * SECOND);
    let expected = format!("box runtime connection timed out ({})", fake.endpoint());
    assert_eq!(reason(&connector), expected);
}

#[tokio::test(start_paused = true)]
async fn a_connector_that_was_given_up_tries_no_more() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    fake.feel(Mood::HangsUp);
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    connector.dispose().await;
    assert_eq!(connector.availability(), Availability::Disposed);
    let looks = fake.looks();
    clock.advance(200 * SECOND).await;
    assert_eq!(fake.looks(), looks);

    let dropped = Connector::remote(fake.endpoint(), None);
    dropped.settled().await;
    drop(dropped);
    let looks = fake.looks();
    clock.advance(200 * SECOND).await;
    assert_eq!(fake.looks(), looks, "the last handle is gone");
}
