//! Calls to a runtime that is not there, or goes while they are under way.

use std::time::Duration;

use boxwood_agent::{Boxes as _, Connector, Deadlines};
use boxwood_api::{EditTextRequest, ErrorCode, SessionId};
use tokio::time::Instant;

use crate::fake::{Clock, Fake, Mode, is_available, settle, until};

const SECOND: Duration = Duration::from_secs(1);

fn edit() -> EditTextRequest {
    EditTextRequest {
        path: "/workspace/a".to_owned(),
        old_string: "a".to_owned(),
        new_string: "b".to_owned(),
        replace_all: false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_runtime_that_is_not_there_is_refused_at_once() {
    let _clock = Clock::hold();
    let fake = Fake::absent().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    let begin = Instant::now();
    let error = connector.boxes().sessions().await.expect_err("refused");
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert_eq!(error.code, ErrorCode::BackendUnavailable);
    assert!(!error.reached);
    assert!(error.message.starts_with("box runtime connection failed: "));
    assert!(error.hint.expect("a fix").contains("boxwood serve"));
}

#[tokio::test(start_paused = true)]
async fn the_first_try_is_waited_for() {
    let _clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    assert_eq!(connector.boxes().sessions().await, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_question_whose_answer_was_lost_is_asked_again() {
    let clock = Clock::hold();
    let mut fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.set(Mode::Stopped);
    let boxes = connector.boxes();
    let call = tokio::spawn(async move { boxes.sessions().await });
    until("the request", || asked(&fake, "/v1/sessions") == 1).await;
    fake.vanish().await;
    until("the loss", || !is_available(&connector)).await;
    fake.set(Mode::Answers);
    fake.open().await;
    clock.advance(5 * SECOND).await;
    until("the answer", || call.is_finished()).await;
    assert_eq!(call.await.expect("no panic"), Ok(Vec::new()));
    assert_eq!(asked(&fake, "/v1/sessions"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_next_connection_no_longer_than_its_deadline() {
    let clock = Clock::hold();
    let mut fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.set(Mode::Stopped);
    let boxes = connector.boxes();
    let begin = Instant::now();
    let call = tokio::spawn(async move { boxes.sessions().await });
    until("the request", || asked(&fake, "/v1/sessions") == 1).await;
    fake.vanish().await;
    clock.advance(14 * SECOND).await;
    assert!(!call.is_finished(), "there is a second left");
    clock.advance(2 * SECOND).await;
    until("the answer", || call.is_finished()).await;
    assert!(begin.elapsed() <= 17 * SECOND);
    let error = call.await.expect("no panic").expect_err("refused");
    assert_eq!(error.code, ErrorCode::BackendUnavailable);
    assert!(!error.reached, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_runtime_does_not_delay_a_call_beyond_its_deadline() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.set(Mode::Stopped);
    let boxes = connector.boxes().with_deadlines(Deadlines {
        files: 3 * SECOND,
        ..Deadlines::default()
    });
    let id = SessionId::new("s").expect("legal");
    let call = tokio::spawn(async move { boxes.edit_text(&id, edit()).await });
    settle().await;
    clock.advance(4 * SECOND).await;
    until("the answer", || call.is_finished()).await;
    let error = call.await.expect("no panic").expect_err("late");
    assert_eq!(error.code, ErrorCode::Timeout);
    assert_eq!(error.message, "the box runtime did not answer within 3 s");
}

#[tokio::test(start_paused = true)]
async fn the_first_call_after_an_unnoticed_loss_is_refused_at_once() {
    let _clock = Clock::hold();
    let mut fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.vanish().await;
    settle().await;
    assert!(is_available(&connector), "not probed yet");
    let begin = Instant::now();
    let error = connector.boxes().sessions().await.expect_err("refused");
    assert_eq!(error.message, "Disconnected from Box runtime");
    assert!(!error.reached);
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_causes_a_probe() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.set(Mode::Stopped);
    let boxes = connector.boxes().with_deadlines(Deadlines {
        question: 60 * SECOND,
        ..Deadlines::default()
    });
    let call = tokio::spawn(async move { boxes.sessions().await });
    until("the request", || asked(&fake, "/v1/sessions") == 1).await;
    let lost = || !is_available(&connector);
    clock.advance_until("the loss", 11 * SECOND, lost).await;
    fake.set(Mode::Answers);
    clock.advance(4 * SECOND).await;
    until("the answer", || call.is_finished()).await;
    assert_eq!(call.await.expect("no panic"), Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_answer_was_lost_is_not_made_twice() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.set(Mode::Closes);
    let boxes = connector.boxes();
    let id = SessionId::new("s").expect("legal");
    let call = tokio::spawn(async move { boxes.edit_text(&id, edit()).await });
    until("the loss", || !is_available(&connector)).await;
    fake.set(Mode::Answers);
    clock.advance(5 * SECOND).await;
    until("the answer", || call.is_finished()).await;
    let error = call.await.expect("no panic").expect_err("in doubt");
    assert_eq!(
        error.message,
        "the connection to the box runtime was lost; whether the file was edited is not known"
    );
    assert_eq!(asked(&fake, "/v1/sessions/s/files/edit"), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_are_refused_during_dispose() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    let connector = Connector::remote(fake.endpoint(), None);
    connector.settled().await;
    fake.set(Mode::Stopped);
    let boxes = connector.boxes();
    let running = tokio::spawn(async move { boxes.sessions().await });
    until("the request", || asked(&fake, "/v1/sessions") == 1).await;
    let disposal = tokio::spawn({
        let connector = connector.clone();
        async move { connector.dispose().await }
    });
    settle().await;
    let error = connector.boxes().status().await.expect_err("refused");
    assert!(
        !error.reached && error.message.contains("was closed"),
        "{error:?}"
    );
    assert!(!disposal.is_finished(), "a call is under way");
    fake.set(Mode::Answers);
    until("the end", || disposal.is_finished()).await;
    assert_eq!(running.await.expect("no panic"), Ok(Vec::new()));
    drop(clock);
}

fn asked(fake: &Fake, target: &str) -> usize {
    let seen = fake.seen();
    seen.iter().filter(|(_, asked)| asked == target).count()
}
