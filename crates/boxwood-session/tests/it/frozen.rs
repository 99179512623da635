//! Sessions that nobody uses stand still, and nobody who comes notices.

use std::time::Duration;

use boxwood_api::EventKind;
use boxwood_backend::{FileCall, OpenFor};
use boxwood_session::Replace;
use boxwood_test_support::{FakeHost, Fault, Point};

use crate::{House, asked, eventually, house_of, house_with, id, in_time, process_id, script};

/// Long enough to be seen awake, short enough to wait for.
const SOON: Duration = Duration::from_millis(80);

fn soon_frozen() -> House {
    house_with(|settings| settings.freeze_after = SOON)
}

fn is_frozen(house: &House, session: &str) -> bool {
    let listed = house.sessions.list();
    let found = listed.iter().find(|info| info.session_id == id(session));
    let shown = found.is_some_and(|info| info.frozen);
    let boxes = house.backend.boxes();
    let really = boxes
        .iter()
        .find(|found| *found.session() == id(session))
        .is_some_and(|found| found.is_frozen());
    // In between the two may differ for a moment.
    shown && really
}

async fn until_frozen(house: &House, session: &str) {
    eventually("the session is frozen", || is_frozen(house, session)).await;
}

/// The session's process has set its traps. Whoever waits for it in the box keeps it awake for that.
async fn until_ready(house: &House, session: &str) {
    let look = asked(session, "until [ -e ready ]; do sleep 0.01; done");
    in_time(house.sessions.exec(look)).await.expect("ran");
}

fn counter(house: &House, session: &str) -> u64 {
    let boxes = house.backend.boxes();
    let found = boxes.iter().find(|found| *found.session() == id(session));
    let path = found.expect("a box").root().join("workspace/count");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

const COUNTING: &str =
    "i=0; while :; do i=$((i+1)); echo $i > next; mv next count; sleep 0.01; done";

#[tokio::test]
async fn an_idle_session_is_frozen_and_wakes_for_a_command() {
    let house = soon_frozen();
    in_time(house.sessions.exec(asked("one", "true")))
        .await
        .expect("made");
    until_frozen(&house, "one").await;
    assert_eq!(house.sessions.status().frozen_sessions, 1);
    assert_eq!(house.sessions.workload().frozen, 1);
    let done = in_time(house.sessions.exec(asked("one", "echo awake")))
        .await
        .expect("it wakes");
    assert_eq!(done.stdout, "awake\n");
    // And falls asleep again.
    until_frozen(&house, "one").await;
}

#[tokio::test]
async fn a_box_that_dies_as_it_wakes_is_made_again() {
    let host = FakeHost::new();
    let house = house_of(host.backend(), |settings| settings.freeze_after = SOON);
    in_time(house.sessions.exec(asked("one", "echo old > file")))
        .await
        .expect("made");
    until_frozen(&house, "one").await;
    host.fault(Point::BeforeThaw, Fault::Dies);
    let done = in_time(house.sessions.exec(asked("one", "cat file; echo new")))
        .await
        .expect("made again");
    assert_eq!(done.stdout, "new\n");
}

#[tokio::test]
async fn nothing_is_frozen_unless_somebody_asked_for_it() {
    let house = house_with(|_| {});
    in_time(house.sessions.exec(asked("one", "true")))
        .await
        .expect("made");
    tokio::time::sleep(SOON * 3).await;
    assert!(!is_frozen(&house, "one"));
}

#[tokio::test]
async fn a_profile_of_its_own_decides() {
    let house = house_with(|settings| {
        let own = &mut settings.freeze_after_by_profile;
        own.insert("offline_readonly".to_owned(), SOON);
        own.insert("network_basic".to_owned(), Duration::ZERO);
    });
    for (session, profile) in [("a", "offline_readonly"), ("b", "network_basic")] {
        let wish = crate::asked_with(session, "true", |spec| {
            spec.profile = Some(profile.to_owned());
        });
        in_time(house.sessions.exec(wish)).await.expect("made");
    }
    until_frozen(&house, "a").await;
    assert!(!is_frozen(&house, "b"));
}

#[tokio::test]
async fn a_running_command_keeps_its_session_awake() {
    let house = soon_frozen();
    let done = in_time(house.sessions.exec(asked("one", "sleep 0.4; echo through")))
        .await
        .expect("ran");
    assert_eq!(done.stdout, "through\n");
}

#[tokio::test]
async fn what_a_command_left_behind_stands_still_and_goes_on() {
    let house = soon_frozen();
    let leave = format!("({COUNTING}) >/dev/null 2>&1 & echo left");
    in_time(house.sessions.exec(asked("one", &leave)))
        .await
        .expect("ran");
    until_frozen(&house, "one").await;
    let before = counter(&house, "one");
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(counter(&house, "one"), before);
    let look = "a=$(cat count); for i in $(seq 100); do sleep 0.1; \
                [ \"$a\" != \"$(cat count)\" ] && echo on && break; done";
    let done = in_time(house.sessions.exec(asked("one", look)))
        .await
        .expect("ran");
    assert_eq!(done.stdout, "on\n");
}

#[tokio::test]
async fn a_silent_process_is_frozen_and_one_that_talks_is_not() {
    // Longer than any pause between two words, also on a busy machine.
    let house = house_with(|settings| settings.freeze_after = Duration::from_secs(3));
    for session in ["talking", "silent"] {
        in_time(house.sessions.get_or_create(asked(session, "").spec))
            .await
            .expect("made");
    }
    let silent = script("p", COUNTING);
    let talking = script("p", "while :; do echo word; sleep 0.02; done");
    // In this order: one whose words do not count is frozen before the other.
    for (session, spec) in [("talking", talking), ("silent", silent)] {
        in_time(
            house
                .sessions
                .start_process(&id(session), spec, Replace::Refuse),
        )
        .await
        .expect("started");
    }
    until_frozen(&house, "silent").await;
    let before = counter(&house, "silent");
    tokio::time::sleep(SOON * 2).await;
    assert_eq!(counter(&house, "silent"), before);
    assert!(!is_frozen(&house, "talking"));
    let info = house
        .sessions
        .process(&id("silent"), &process_id("p"))
        .expect("looking does not need it awake");
    assert!(info.exited_at.is_none());
    assert!(is_frozen(&house, "silent"), "looking woke it");
}

#[tokio::test]
async fn whoever_attaches_finds_the_process_awake() {
    let house = soon_frozen();
    in_time(house.sessions.get_or_create(asked("one", "").spec))
        .await
        .expect("made");
    let echo = script("p", "while read line; do echo \"heard $line\"; done");
    in_time(
        house
            .sessions
            .start_process(&id("one"), echo, Replace::Refuse),
    )
    .await
    .expect("started");
    until_frozen(&house, "one").await;
    let attachable = house
        .sessions
        .check_attachable(&id("one"), &process_id("p"))
        .expect("it runs");
    let attachment = in_time(attachable.attach()).await.expect("attached");
    in_time(attachment.send(b"you\n")).await.expect("sent");
    let line = in_time(attachment.next_line()).await.expect("a line");
    assert_eq!(line, b"heard you");
    // As long as somebody is there.
    tokio::time::sleep(SOON * 3).await;
    assert!(!is_frozen(&house, "one"));
    drop(attachment);
    until_frozen(&house, "one").await;
}

#[tokio::test]
async fn files_signals_and_stops_reach_a_frozen_session() {
    let house = soon_frozen();
    in_time(house.sessions.get_or_create(asked("one", "").spec))
        .await
        .expect("made");
    let trap = script(
        "p",
        "trap 'echo usr1 > heard' USR1; touch ready; while :; do sleep 0.01; done",
    );
    in_time(
        house
            .sessions
            .start_process(&id("one"), trap, Replace::Refuse),
    )
    .await
    .expect("started");
    until_ready(&house, "one").await;
    until_frozen(&house, "one").await;
    in_time(
        house
            .sessions
            .signal_process(&id("one"), &process_id("p"), 10),
    )
    .await
    .expect("sent");
    let look = asked("one", "until [ -e heard ]; do sleep 0.01; done; cat heard");
    let done = in_time(house.sessions.exec(look)).await.expect("ran");
    assert_eq!(done.stdout, "usr1\n");
    until_frozen(&house, "one").await;
    let call = FileCall::Open {
        path: "/workspace/heard".to_owned(),
        how: OpenFor::Read,
    };
    in_time(house.sessions.file(&id("one"), call))
        .await
        .expect("read");
    until_frozen(&house, "one").await;
    let ended = in_time(house.sessions.stop_process(&id("one"), &process_id("p")))
        .await
        .expect("stopped");
    // Asked to end, and awake to hear it: no kill was needed.
    assert_eq!(ended.exit_code, Some(143), "{ended:?}");
}

#[tokio::test]
async fn a_frozen_session_is_removed_in_the_usual_way() {
    let house = soon_frozen();
    in_time(house.sessions.get_or_create(asked("one", "").spec))
        .await
        .expect("made");
    let polite = script(
        "p",
        "trap 'exit 0' TERM; touch ready; while :; do sleep 0.01; done",
    );
    in_time(
        house
            .sessions
            .start_process(&id("one"), polite, Replace::Refuse),
    )
    .await
    .expect("started");
    until_ready(&house, "one").await;
    until_frozen(&house, "one").await;
    let mut events = house.sessions.events();
    in_time(house.sessions.delete(&id("one"), "enough"))
        .await
        .expect("deleted");
    let exit_code = in_time(async {
        loop {
            let event = events.recv().await.expect("an event");
            if let EventKind::ProcessExited { exit_code, .. } = event.kind {
                return exit_code;
            }
        }
    })
    .await;
    assert_eq!(exit_code, Some(0), "one that sleeps on is killed");
    assert!(house.backend.boxes().is_empty());
}

#[tokio::test]
async fn a_frozen_session_expires_like_any_other() {
    let house = house_with(|settings| {
        settings.freeze_after = SOON;
        settings.session_ttl = SOON * 40;
    });
    in_time(house.sessions.exec(asked("one", "true")))
        .await
        .expect("made");
    until_frozen(&house, "one").await;
    eventually("it expires", || house.sessions.list().is_empty()).await;
    eventually("its box is gone", || house.backend.boxes().is_empty()).await;
}

#[tokio::test]
async fn a_box_that_cannot_be_frozen_stays_awake() {
    let house = soon_frozen();
    house.backend.forbid_freezing();
    in_time(house.sessions.exec(asked("one", "true")))
        .await
        .expect("made");
    tokio::time::sleep(SOON * 3).await;
    assert!(!is_frozen(&house, "one"));
    let done = in_time(house.sessions.exec(asked("one", "echo fine")))
        .await
        .expect("ran");
    assert_eq!(done.stdout, "fine\n");
}

#[tokio::test]
async fn whoever_watches_is_told() {
    let house = soon_frozen();
    let mut events = house.sessions.events();
    in_time(house.sessions.exec(asked("one", "true")))
        .await
        .expect("made");
    until_frozen(&house, "one").await;
    in_time(house.sessions.exec(asked("one", "true")))
        .await
        .expect("ran");
    let mut said = Vec::new();
    while let Ok(event) = events.try_recv() {
        match event.kind {
            EventKind::SessionFrozen => said.push("frozen"),
            EventKind::SessionThawed { .. } => said.push("thawed"),
            _ => {}
        }
    }
    assert_eq!(said, ["frozen", "thawed"]);
}

/// Freezing and calling at the same time, over and over: no call may ever wait for a box that sleeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_that_race_with_the_frost_always_get_through() {
    let house = house_with(|settings| settings.freeze_after = Duration::from_millis(10));
    in_time(house.sessions.get_or_create(asked("one", "").spec))
        .await
        .expect("made");
    for round in 0..60_u64 {
        // Around the moment at which the box would be frozen.
        tokio::time::sleep(Duration::from_micros(8_000 + 97 * (round % 60))).await;
        let done = in_time(house.sessions.exec(asked("one", "echo through")))
            .await
            .expect("ran");
        assert_eq!(done.stdout, "through\n");
    }
}
