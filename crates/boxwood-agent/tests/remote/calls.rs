//! Calls to a runtime that is not there, or is lost during a call.

use std::time::Duration;

use boxwood_agent::{Boxes as _, Deadlines};
use boxwood_api::{EditTextRequest, ErrorCode, SessionId};
use tokio::time::Instant;

use crate::fake::{Clock, Fake, Mode, settle, until};

const SECOND: Duration = Duration::from_secs(1);
const SESSIONS: &str = "/v1/sessions";
const EDIT: &str = "/v1/sessions/s/files/edit";

fn session() -> SessionId {
    SessionId::new("s").expect("a legal id")
}

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
    let begin = Instant::now();
    let error = fake.remote().sessions().await.expect_err("refused");
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert_eq!(error.code, ErrorCode::BackendUnavailable);
    assert!(!error.reached);
    let why = "box runtime connection failed: no daemon answers at";
    assert!(error.message.starts_with(why), "{error}");
    assert!(error.message.contains("refused"), "{error}");
    assert!(error.hint.expect("a fix").contains("boxwood serve"));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_starts_later_answers_the_next_call() {
    let _clock = Clock::hold();
    let mut fake = Fake::absent().await;
    let remote = fake.remote();
    assert!(!remote.shares_filesystem());
    remote.sessions().await.expect_err("not there yet");
    fake.open().await;
    assert_eq!(remote.sessions().await, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_restarts_between_two_calls_answers_the_next_one() {
    let _clock = Clock::hold();
    let mut fake = Fake::start().await;
    let remote = fake.remote();
    for _ in 0..2 {
        assert_eq!(remote.sessions().await, Ok(Vec::new()));
        fake.vanish().await;
        settle().await;
        let error = remote.sessions().await.expect_err("refused");
        assert!(!error.reached, "{error:?}");
        fake.open().await;
    }
    assert_eq!(remote.sessions().await, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_response_was_lost_is_repeated() {
    let clock = Clock::hold();
    let mut fake = Fake::start().await;
    fake.set(Mode::Stopped);
    let remote = fake.remote();
    let call = tokio::spawn(async move { remote.sessions().await });
    until("the request", || fake.requests(SESSIONS) == 1).await;
    fake.vanish().await;
    clock.advance(3 * SECOND).await;
    assert!(!call.is_finished(), "the runtime may be restarting");
    fake.set(Mode::Answers);
    fake.open().await;
    clock.advance(SECOND).await;
    until("the response", || call.is_finished()).await;
    assert_eq!(call.await.expect("no panic"), Ok(Vec::new()));
    assert_eq!(fake.requests(SESSIONS), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_lost_runtime_no_longer_than_its_deadline() {
    let clock = Clock::hold();
    let mut fake = Fake::start().await;
    fake.set(Mode::Stopped);
    let remote = fake.remote();
    let begin = Instant::now();
    let call = tokio::spawn(async move { remote.sessions().await });
    until("the request", || fake.requests(SESSIONS) == 1).await;
    fake.vanish().await;
    clock.advance(14 * SECOND).await;
    assert!(!call.is_finished(), "there is a second left");
    clock.advance(2 * SECOND).await;
    until("the end of the call", || call.is_finished()).await;
    assert!(begin.elapsed() <= 17 * SECOND);
    let error = call.await.expect("no panic").expect_err("refused");
    assert_eq!(error.code, ErrorCode::BackendUnavailable);
    assert!(!error.reached, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_always_loses_the_connection_is_sent_four_times() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    fake.set(Mode::Closes);
    let remote = fake.remote();
    let call = tokio::spawn(async move { remote.sessions().await });
    settle().await;
    clock.advance(2 * SECOND).await;
    until("the end of the call", || call.is_finished()).await;
    let error = call.await.expect("no panic").expect_err("lost");
    assert!(!error.reached, "{error:?}");
    assert_eq!(fake.requests(SESSIONS), 4);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_runtime_does_not_delay_a_call_beyond_its_deadline() {
    let clock = Clock::hold();
    let fake = Fake::start().await;
    fake.set(Mode::Stopped);
    let remote = fake.remote().with_deadlines(Deadlines {
        files: 3 * SECOND,
        ..Deadlines::default()
    });
    let call = tokio::spawn(async move { remote.edit_text(&session(), edit()).await });
    settle().await;
    clock.advance(4 * SECOND).await;
    until("the end of the call", || call.is_finished()).await;
    let error = call.await.expect("no panic").expect_err("late");
    assert_eq!(error.code, ErrorCode::Timeout);
    assert_eq!(error.message, "the box runtime did not answer within 3 s");
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_response_was_lost_is_not_repeated() {
    let _clock = Clock::hold();
    let fake = Fake::start().await;
    fake.set(Mode::Closes);
    let remote = fake.remote();
    let edited = remote.edit_text(&session(), edit()).await;
    let error = edited.expect_err("in doubt");
    assert_eq!(
        error.message,
        "the connection to the box runtime was lost; whether the file was edited is not known"
    );
    assert_eq!(fake.requests(EDIT), 1);
}

#[tokio::test(start_paused = true)]
async fn a_missing_token_is_reported_with_the_fix() {
    let _clock = Clock::hold();
    let fake = Fake::start().await;
    fake.set(Mode::Strict);
    let error = fake.remote().status().await.expect_err("refused");
    assert!(!error.reached, "{error:?}");
    assert_eq!(error.message, "box runtime connection failed: no");
    let hint = error.hint.expect("a fix");
    assert!(hint.contains("BOXWOOD_TOKEN"), "{hint}");
}

#[tokio::test(start_paused = true)]
async fn a_skill_file_that_is_too_long_is_no_error_of_the_connection() {
    let _clock = Clock::hold();
    let fake = Fake::start().await;
    let read = fake.remote().read_skill_file("s", "long").await;
    let error = read.expect_err("too long");
    assert_eq!(error.code, ErrorCode::PayloadTooLarge);
    assert_eq!(error.message, "long has more than 16 MiB");
    assert!(error.reached, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_are_refused_during_dispose() {
    let _clock = Clock::hold();
    let fake = Fake::start().await;
    fake.set(Mode::Stopped);
    let remote = fake.remote();
    let running = tokio::spawn({
        let remote = remote.clone();
        async move { remote.sessions().await }
    });
    until("the request", || fake.requests(SESSIONS) == 1).await;
    let disposal = tokio::spawn({
        let remote = remote.clone();
        async move { remote.dispose().await }
    });
    settle().await;
    let error = remote.status().await.expect_err("refused");
    assert!(
        !error.reached && error.message.contains("was closed"),
        "{error:?}"
    );
    assert!(!disposal.is_finished(), "a call is running");
    fake.set(Mode::Answers);
    until("the end", || disposal.is_finished()).await;
    assert_eq!(running.await.expect("no panic"), Ok(Vec::new()));
}
