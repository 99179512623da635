//! One look that fails is a loss.

use std::time::Duration;

use boxwood_agent::{Availability, Connector};

use crate::fake::{Clock, Fake, Mood, is_available, reason, settle, until};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_runtime_that_answers_is_available_with_what_it_says_of_itself() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    let Availability::Available(Some(status)) = connector.settled().await else {
        panic!("{}", reason(&connector));
    };
    assert_eq!(status.active_sessions, 2);
    assert!(!connector.shares_filesystem());
    assert_eq!(fake.looks(), 1);
    clock.advance(19 * SECOND).await;
    assert_eq!(fake.looks(), 1, "too early for another look");
    clock.advance(2 * SECOND).await;
    until("the second look", || fake.looks() == 2).await;
    clock.advance(60 * SECOND).await;
    assert!((4..=6).contains(&fake.looks()), "{}", fake.looks());
    assert!(is_available(&connector));
    assert_eq!(connector.generation(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_stands_still_is_unavailable_after_five_seconds() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.feel(Mood::StandsStill);
    clock.advance(21 * SECOND).await;
    until("the look", || fake.looks() == 2).await;
    assert!(is_available(&connector), "it may still answer");
    clock.advance(5 * SECOND).await;
    until("the loss", || !is_available(&connector)).await;
    assert_eq!(reason(&connector), "Disconnected from Box runtime");
    let Availability::Unavailable(outage) = connector.availability() else {
        panic!("it is unavailable");
    };
    assert!(outage.fix.contains("boxwood serve"), "{}", outage.fix);

    fake.feel(Mood::Answers);
    clock.advance(4 * SECOND).await;
    until("the next connection", || is_available(&connector)).await;
    assert_eq!(connector.generation(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_look_that_is_cut_off_is_a_loss() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.feel(Mood::HangsUp);
    clock.advance(21 * SECOND).await;
    until("the loss", || !is_available(&connector)).await;
    assert_eq!(reason(&connector), "Disconnected from Box runtime");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_with_too_much_to_do_is_there() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.feel(Mood::Busy);
    clock.advance(45 * SECOND).await;
    until("three looks", || fake.looks() >= 3).await;
    settle().await;
    assert!(is_available(&connector), "{}", reason(&connector));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_wants_a_token_says_so() {
    let _clock = Clock::hold();
    let fake = Fake::start().await;
    fake.feel(Mood::Strict);
    let connector = Connector::remote(fake.endpoint(), None);
    let Availability::Unavailable(outage) = connector.settled().await else {
        panic!("it was let in");
    };
    assert_eq!(outage.reason, "box runtime connection failed: no");
    assert!(outage.fix.contains("BOXWOOD_TOKEN"), "{}", outage.fix);
}
