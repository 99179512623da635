//! One failed probe means that the connection is lost.

use std::time::Duration;

use boxwood_agent::{Availability, Connector};

use crate::fake::{Clock, Fake, Mode, is_available, reason, settle, until};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_runtime_that_responds_is_probed_every_20_seconds() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    assert_eq!(connector.settled().await, Availability::Available);
    assert!(!connector.shares_filesystem());
    assert_eq!(fake.probes(), 1);
    clock.advance(19 * SECOND).await;
    assert_eq!(fake.probes(), 1, "too early for another probe");
    clock.advance(2 * SECOND).await;
    until("the second probe", || fake.probes() == 2).await;
    clock.advance(60 * SECOND).await;
    assert!((4..=6).contains(&fake.probes()), "{}", fake.probes());
    assert!(is_available(&connector));
    assert_eq!(connector.generation(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_runtime_is_unavailable_after_five_seconds() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.set(Mode::Stopped);
    clock.advance(21 * SECOND).await;
    until("the probe", || fake.probes() == 2).await;
    assert!(is_available(&connector), "it may still answer");
    clock.advance(5 * SECOND).await;
    until("the loss", || !is_available(&connector)).await;
    assert_eq!(reason(&connector), "Disconnected from Box runtime");
    let Availability::Unavailable(outage) = connector.availability() else {
        panic!("it is unavailable");
    };
    assert!(outage.fix.contains("boxwood serve"), "{}", outage.fix);

    fake.set(Mode::Answers);
    clock.advance(4 * SECOND).await;
    until("the next connection", || is_available(&connector)).await;
    assert_eq!(connector.generation(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_closed_connection_during_a_probe_is_a_loss() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.set(Mode::Closes);
    clock.advance(21 * SECOND).await;
    until("the loss", || !is_available(&connector)).await;
    assert_eq!(reason(&connector), "Disconnected from Box runtime");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_at_capacity_is_available() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.set(Mode::Busy);
    clock.advance(45 * SECOND).await;
    until("three probes", || fake.probes() >= 3).await;
    settle().await;
    assert!(is_available(&connector), "{}", reason(&connector));
}

#[tokio::test(start_paused = true)]
async fn a_missing_token_is_reported_with_the_fix() {
    let _clock = Clock::hold();
    let fake = Fake::start().await;
    fake.set(Mode::Strict);
    let connector = Connector::remote(fake.endpoint(), None);
    let Availability::Unavailable(outage) = connector.settled().await else {
        panic!("it was let in");
    };
    assert_eq!(outage.reason, "box runtime connection failed: no");
    assert!(outage.fix.contains("BOXWOOD_TOKEN"), "{}", outage.fix);
}
