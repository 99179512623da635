//! Idle sessions are frozen and thawed by the next request.

use std::time::Duration;

use boxwood_api::EventKind;
use boxwood_backend::{FileCall, OpenFor};
use boxwood_session::Replace;
use boxwood_test_support::{FakeHost, Fault, Point};

use crate::{
    TestDaemon, daemon_of, daemon_with, eventually, id, in_time, process_id, request, script,
};

/// Long enough to observe the session before it is frozen.
const SOON: Duration = Duration::from_millis(80);

fn soon_frozen() -> TestDaemon {
    daemon_with(|settings| settings.freeze_after = SOON)
}

fn is_frozen(daemon: &TestDaemon, session: &str) -> bool {
    let listed = daemon.sessions.list();
    let found = listed.iter().find(|info| info.session_id == id(session));
    let shown = found.is_some_and(|info| info.frozen);
    let boxes = daemon.backend.boxes();
    let really = boxes
        .iter()
        .find(|found| *found.session() == id(session))
        .is_some_and(|found| found.is_frozen());
    // In between the two may differ for a moment.
    shown && really
}

async fn until_frozen(daemon: &TestDaemon, session: &str) {
    eventually("the session is frozen", || is_frozen(daemon, session)).await;
}

/// Waits until the process has set its traps. The command that waits keeps the box from being frozen.
async fn until_ready(daemon: &TestDaemon, session: &str) {
    let look = request(session, "until [ -e ready ]; do sleep 0.01; done");
    in_time(daemon.sessions.exec(look)).await.expect("ran");
}

fn counter(daemon: &TestDaemon, session: &str) -> u64 {
    let boxes = daemon.backend.boxes();
    let found = boxes.iter().find(|found| *found.session() == id(session));
    let path = found.expect("a box").root().join("workspace/count");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

const COUNTING: &str =
    "i=0; while :; do i=$((i+1)); echo $i > next; mv next count; sleep 0.01; done";

#[tokio::test]
async fn an_idle_session_is_frozen_and_thawed_by_a_command() {
    let daemon = soon_frozen();
    in_time(daemon.sessions.exec(request("one", "true")))
        .await
        .expect("made");
    until_frozen(&daemon, "one").await;
    assert_eq!(daemon.sessions.status().frozen_sessions, 1);
    assert_eq!(daemon.sessions.workload().frozen, 1);
    let done = in_time(daemon.sessions.exec(request("one", "echo awake")))
        .await
        .expect("it wakes");
    assert_eq!(done.stdout, "awake\n");
    // It is frozen again.
    until_frozen(&daemon, "one").await;
}

#[tokio::test]
async fn a_box_that_dies_while_it_is_thawed_is_recreated() {
    let host = FakeHost::new();
    let daemon = daemon_of(host.backend(), |settings| settings.freeze_after = SOON);
    in_time(daemon.sessions.exec(request("one", "echo old > file")))
        .await
        .expect("made");
    until_frozen(&daemon, "one").await;
    host.fault(Point::BeforeThaw, Fault::Dies);
    let done = in_time(daemon.sessions.exec(request("one", "cat file; echo new")))
        .await
        .expect("made again");
    assert_eq!(done.stdout, "new\n");
}

#[tokio::test]
async fn nothing_is_frozen_by_default() {
    let daemon = daemon_with(|_| {});
    in_time(daemon.sessions.exec(request("one", "true")))
        .await
        .expect("made");
    tokio::time::sleep(SOON * 3).await;
    assert!(!is_frozen(&daemon, "one"));
}

#[tokio::test]
async fn a_profile_can_set_its_own_time() {
    let daemon = daemon_with(|settings| {
        let own = &mut settings.freeze_after_by_profile;
        own.insert("offline_readonly".to_owned(), SOON);
        own.insert("network_basic".to_owned(), Duration::ZERO);
    });
    for (session, profile) in [("a", "offline_readonly"), ("b", "network_basic")] {
        let admission = crate::request_with(session, "true", |spec| {
            spec.profile = Some(profile.to_owned());
        });
        in_time(daemon.sessions.exec(admission))
            .await
            .expect("made");
    }
    until_frozen(&daemon, "a").await;
    assert!(!is_frozen(&daemon, "b"));
}

#[tokio::test]
async fn a_session_with_a_running_command_is_not_frozen() {
    let daemon = soon_frozen();
    let done = in_time(
        daemon
            .sessions
            .exec(request("one", "sleep 0.4; echo through")),
    )
    .await
    .expect("ran");
    assert_eq!(done.stdout, "through\n");
}

#[tokio::test]
async fn background_children_are_frozen_and_thawed() {
    let daemon = soon_frozen();
    let leave = format!("({COUNTING}) >/dev/null 2>&1 & echo left");
    in_time(daemon.sessions.exec(request("one", &leave)))
        .await
        .expect("ran");
    until_frozen(&daemon, "one").await;
    let before = counter(&daemon, "one");
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(counter(&daemon, "one"), before);
    let look = "a=$(cat count); for i in $(seq 100); do sleep 0.1; \
                [ \"$a\" != \"$(cat count)\" ] && echo on && break; done";
    let done = in_time(daemon.sessions.exec(request("one", look)))
        .await
        .expect("ran");
    assert_eq!(done.stdout, "on\n");
}

#[tokio::test]
async fn a_silent_process_is_frozen_and_one_with_output_is_not() {
    // Longer than any pause between two words, also on a busy machine.
    let daemon = daemon_with(|settings| settings.freeze_after = Duration::from_secs(3));
    for session in ["talking", "silent"] {
        in_time(daemon.sessions.get_or_create(request(session, "").spec))
            .await
            .expect("made");
    }
    let silent = script("p", COUNTING);
    let talking = script("p", "while :; do echo word; sleep 0.02; done");
    // In this order: if output did not count as use, `talking` would be frozen first.
    for (session, spec) in [("talking", talking), ("silent", silent)] {
        in_time(
            daemon
                .sessions
                .start_process(&id(session), spec, Replace::Refuse),
        )
        .await
        .expect("started");
    }
    until_frozen(&daemon, "silent").await;
    let before = counter(&daemon, "silent");
    tokio::time::sleep(SOON * 2).await;
    assert_eq!(counter(&daemon, "silent"), before);
    assert!(!is_frozen(&daemon, "talking"));
    let info = daemon
        .sessions
        .process(&id("silent"), &process_id("p"))
        .expect("readable while frozen");
    assert!(info.exited_at.is_none());
    assert!(
        is_frozen(&daemon, "silent"),
        "reading the details thawed the box"
    );
}

#[tokio::test]
async fn attaching_thaws_the_box() {
    let daemon = soon_frozen();
    in_time(daemon.sessions.get_or_create(request("one", "").spec))
        .await
        .expect("made");
    let echo = script("p", "while read line; do echo \"heard $line\"; done");
    in_time(
        daemon
            .sessions
            .start_process(&id("one"), echo, Replace::Refuse),
    )
    .await
    .expect("started");
    until_frozen(&daemon, "one").await;
    let attachable = daemon
        .sessions
        .check_attachable(&id("one"), &process_id("p"))
        .expect("it runs");
    let attachment = in_time(attachable.attach()).await.expect("attached");
    in_time(attachment.send(b"you\n")).await.expect("sent");
    let line = in_time(attachment.next_line()).await.expect("a line");
    assert_eq!(line, b"heard you");
    // While a client is attached.
    tokio::time::sleep(SOON * 3).await;
    assert!(!is_frozen(&daemon, "one"));
    drop(attachment);
    until_frozen(&daemon, "one").await;
}

#[tokio::test]
async fn files_signals_and_stops_reach_a_frozen_session() {
    let daemon = soon_frozen();
    in_time(daemon.sessions.get_or_create(request("one", "").spec))
        .await
        .expect("made");
    let trap = script(
        "p",
        "trap 'echo usr1 > heard' USR1; touch ready; while :; do sleep 0.01; done",
    );
    in_time(
        daemon
            .sessions
            .start_process(&id("one"), trap, Replace::Refuse),
    )
    .await
    .expect("started");
    until_ready(&daemon, "one").await;
    until_frozen(&daemon, "one").await;
    in_time(
        daemon
            .sessions
            .signal_process(&id("one"), &process_id("p"), 10),
    )
    .await
    .expect("sent");
    let look = request("one", "until [ -e heard ]; do sleep 0.01; done; cat heard");
    let done = in_time(daemon.sessions.exec(look)).await.expect("ran");
    assert_eq!(done.stdout, "usr1\n");
    until_frozen(&daemon, "one").await;
    let call = FileCall::Open {
        path: "/workspace/heard".to_owned(),
        how: OpenFor::Read,
    };
    in_time(daemon.sessions.file(&id("one"), call))
        .await
        .expect("read");
    until_frozen(&daemon, "one").await;
    let ended = in_time(daemon.sessions.stop_process(&id("one"), &process_id("p")))
        .await
        .expect("stopped");
    // SIGTERM was enough, because the box was thawed to receive it.
    assert_eq!(ended.exit_code, Some(143), "{ended:?}");
}

#[tokio::test]
async fn a_frozen_session_is_removed_in_the_usual_way() {
    let daemon = soon_frozen();
    in_time(daemon.sessions.get_or_create(request("one", "").spec))
        .await
        .expect("made");
    let polite = script(
        "p",
        "trap 'exit 0' TERM; touch ready; while :; do sleep 0.01; done",
    );
    in_time(
        daemon
            .sessions
            .start_process(&id("one"), polite, Replace::Refuse),
    )
    .await
    .expect("started");
    until_ready(&daemon, "one").await;
    until_frozen(&daemon, "one").await;
    let mut events = daemon.sessions.events();
    in_time(daemon.sessions.delete(&id("one"), "enough"))
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
    assert!(daemon.backend.boxes().is_empty());
}

#[tokio::test]
async fn a_frozen_session_expires_like_any_other() {
    let daemon = daemon_with(|settings| {
        settings.freeze_after = SOON;
        settings.session_ttl = SOON * 40;
    });
    in_time(daemon.sessions.exec(request("one", "true")))
        .await
        .expect("made");
    until_frozen(&daemon, "one").await;
    eventually("it expires", || daemon.sessions.list().is_empty()).await;
    eventually("its box is gone", || daemon.backend.boxes().is_empty()).await;
}

#[tokio::test]
async fn a_box_that_cannot_be_frozen_keeps_running() {
    let daemon = soon_frozen();
    daemon.backend.forbid_freezing();
    in_time(daemon.sessions.exec(request("one", "true")))
        .await
        .expect("made");
    tokio::time::sleep(SOON * 3).await;
    assert!(!is_frozen(&daemon, "one"));
    let done = in_time(daemon.sessions.exec(request("one", "echo fine")))
        .await
        .expect("ran");
    assert_eq!(done.stdout, "fine\n");
}

#[tokio::test]
async fn freezing_and_thawing_are_events() {
    let daemon = soon_frozen();
    let mut events = daemon.sessions.events();
    in_time(daemon.sessions.exec(request("one", "true")))
        .await
        .expect("made");
    until_frozen(&daemon, "one").await;
    in_time(daemon.sessions.exec(request("one", "true")))
        .await
        .expect("ran");
    let mut events_seen = Vec::new();
    while let Ok(event) = events.try_recv() {
        match event.kind {
            EventKind::SessionFrozen => events_seen.push("frozen"),
            EventKind::SessionThawed { .. } => events_seen.push("thawed"),
            _ => {}
        }
    }
    assert_eq!(events_seen, ["frozen", "thawed"]);
}

/// A request during freezing must never hang in a frozen box.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_that_race_with_freezing_succeed() {
    let daemon = daemon_with(|settings| settings.freeze_after = Duration::from_millis(10));
    in_time(daemon.sessions.get_or_create(request("one", "").spec))
        .await
        .expect("made");
    for round in 0..60_u64 {
        // Around the moment at which the box would be frozen.
        tokio::time::sleep(Duration::from_micros(8_000 + 97 * (round % 60))).await;
        let done = in_time(daemon.sessions.exec(request("one", "echo through")))
            .await
            .expect("ran");
        assert_eq!(done.stdout, "through\n");
    }
}
