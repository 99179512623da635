//! Prewarmed boxes.

use std::sync::Arc;
use std::time::Duration;

use boxwood_policy::Admission;
use boxwood_session::{
    Backends, Candidate, Choice, Sessions, Settings, ShutdownBoxes, WarmPoolSpec,
};
use boxwood_test_support::FakeBackend;

use crate::{TestDaemon, daemon, daemon_with, eventually, id, in_time, request, request_with};

fn pool_spec(most: usize) -> WarmPoolSpec {
    WarmPoolSpec {
        spec: request("warm-default", "").spec,
        most,
    }
}

fn waiting(daemon: &TestDaemon) -> u64 {
    daemon.sessions.status().warm_boxes
}

async fn until_waiting(daemon: &TestDaemon, count: u64) {
    eventually("boxes wait", || waiting(daemon) == count).await;
}

async fn run(daemon: &TestDaemon, admission: Admission) -> String {
    let done = in_time(daemon.sessions.exec(admission)).await;
    done.expect("it runs").stdout
}

#[tokio::test]
async fn a_session_gets_a_prewarmed_box() {
    let daemon = daemon();
    daemon.sessions.keep_warm(vec![pool_spec(2)]);
    until_waiting(&daemon, 1).await;
    assert_eq!(daemon.backend.starts(), 1);
    let ready = daemon.backend.boxes()[0].id().to_owned();
    assert!(daemon.sessions.list().is_empty(), "it is no session");
    assert_eq!(daemon.sessions.status().active_sessions, 0);
    daemon.backend.hold_starts();
    assert_eq!(run(&daemon, request("one", "echo mine")).await, "mine\n");
    let info = &daemon.sessions.list()[0];
    assert_eq!(info.backend_session_id, ready);
    assert_eq!(info.session_id, id("one"));
    assert_eq!(info.backend_name, "fake");
    daemon.backend.release_starts();
    // The request increases the number of prewarmed boxes.
    until_waiting(&daemon, 2).await;
}

#[tokio::test]
async fn a_request_for_another_box_gets_no_prewarmed_one() {
    let daemon = daemon();
    daemon.sessions.keep_warm(vec![pool_spec(1)]);
    until_waiting(&daemon, 1).await;
    let ready = daemon.backend.boxes()[0].id().to_owned();
    let other = request_with("other", "true", |spec| spec.memory_mb = Some(100));
    run(&daemon, other).await;
    assert_ne!(daemon.sessions.list()[0].backend_session_id, ready);
    assert_eq!(waiting(&daemon), 1);
    let named = request_with("named", "true", |spec| {
        spec.backend = Some("fake".to_owned());
    });
    run(&daemon, named).await;
    assert!(
        daemon
            .sessions
            .list()
            .iter()
            .all(|info| info.backend_session_id != ready)
    );
}

#[tokio::test]
async fn the_pool_grows_with_requests_up_to_its_maximum() {
    let daemon = daemon();
    daemon.sessions.keep_warm(vec![pool_spec(4)]);
    until_waiting(&daemon, 1).await;
    for number in 0..8 {
        run(&daemon, request(&format!("s{number}"), "true")).await;
    }
    until_waiting(&daemon, 4).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(waiting(&daemon), 4);
    assert_eq!(daemon.backend.boxes().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn the_pool_shrinks_without_requests() {
    let daemon = daemon_with(|settings| settings.session_ttl = Duration::ZERO);
    daemon.sessions.keep_warm(vec![pool_spec(4)]);
    until_waiting(&daemon, 1).await;
    for number in 0..4 {
        in_time(
            daemon
                .sessions
                .get_or_create(request(&format!("s{number}"), "").spec),
        )
        .await
        .expect("made");
    }
    until_waiting(&daemon, 4).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    until_waiting(&daemon, 2).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    until_waiting(&daemon, 1).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(waiting(&daemon), 1);
    assert_eq!(daemon.backend.boxes().len(), 5);
}

#[tokio::test]
async fn sessions_and_prewarmed_boxes_together_are_limited() {
    let daemon = daemon_with(|settings| settings.max_sessions = 3);
    daemon.sessions.keep_warm(vec![pool_spec(8)]);
    for number in 0..2 {
        run(&daemon, request(&format!("s{number}"), "true")).await;
    }
    until_waiting(&daemon, 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(daemon.backend.boxes().len(), 3);
    // A session of another kind has priority over a prewarmed box.
    let other = request_with("other", "true", |spec| spec.memory_mb = Some(100));
    run(&daemon, other).await;
    eventually("the box that waited is gone", || {
        waiting(&daemon) == 0 && daemon.backend.boxes().len() == 3
    })
    .await;
}

#[tokio::test]
async fn a_dead_prewarmed_box_is_replaced() {
    let daemon = daemon();
    daemon.sessions.keep_warm(vec![pool_spec(1)]);
    until_waiting(&daemon, 1).await;
    let dead = daemon.backend.boxes()[0].id().to_owned();
    assert!(daemon.backend.kill_box(&id("warm-default")));
    eventually("another one waits", || {
        let boxes = daemon.backend.boxes();
        waiting(&daemon) == 1 && boxes.iter().any(|found| found.id() != dead)
    })
    .await;
    assert_eq!(run(&daemon, request("one", "echo alive")).await, "alive\n");
}

#[tokio::test]
async fn prewarmed_boxes_of_an_earlier_configuration_are_not_used() {
    let daemon = daemon();
    daemon.sessions.keep_warm(vec![pool_spec(1)]);
    until_waiting(&daemon, 1).await;
    let before = daemon.backend.boxes()[0].id().to_owned();
    let changed = WarmPoolSpec {
        spec: request_with("warm-default", "", |spec| spec.memory_mb = Some(100)).spec,
        most: 1,
    };
    daemon.sessions.keep_warm(vec![changed]);
    eventually("the old one is gone, and a new one waits", || {
        let boxes = daemon.backend.boxes();
        waiting(&daemon) == 1 && boxes.len() == 1 && boxes[0].id() != before
    })
    .await;
    daemon.sessions.keep_warm(Vec::new());
    eventually("none is wanted any more", || {
        daemon.backend.boxes().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_change_of_images_removes_prewarmed_boxes() {
    let daemon = daemon();
    daemon.sessions.keep_warm(vec![pool_spec(1)]);
    until_waiting(&daemon, 1).await;
    in_time(daemon.sessions.remove_prewarmed("another")).await;
    assert_eq!(waiting(&daemon), 1);
    in_time(daemon.sessions.remove_prewarmed("fake")).await;
    assert_eq!(waiting(&daemon), 0);
    assert!(daemon.backend.boxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_external_change_of_images_is_detected() {
    let daemon = daemon();
    daemon.sessions.keep_warm(vec![pool_spec(1)]);
    until_waiting(&daemon, 1).await;
    let before = daemon.backend.boxes()[0].id().to_owned();
    let images = boxwood_backend::Backend::images(&*daemon.backend);
    let name = boxwood_api::ImageName::new("fresh").expect("a name");
    daemon.backend.images.publish("fresh");
    images
        .pull(&name, &boxwood_backend::Progress::silent())
        .await
        .expect("pulled");
    tokio::time::sleep(Duration::from_secs(61)).await;
    eventually("it was made anew", || {
        let boxes = daemon.backend.boxes();
        waiting(&daemon) == 1 && boxes.iter().all(|found| found.id() != before)
    })
    .await;
}

#[tokio::test]
async fn prewarmed_boxes_are_on_the_current_backend() {
    let (first, second) = (FakeBackend::named("first"), FakeBackend::named("second"));
    first.break_down("not there", "start it");
    let backends = Backends::new(
        [
            Candidate::initialised(Arc::clone(&first) as _),
            Candidate::initialised(Arc::clone(&second) as _),
        ],
        Choice::Auto,
    );
    backends.first_probe().await;
    let sessions = Sessions::new(backends, Settings::default());
    sessions.keep_warm(vec![pool_spec(1)]);
    eventually("one waits on the second", || {
        sessions.status().warm_boxes == 1 && second.boxes().len() == 1
    })
    .await;
    first.mend();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(sessions.backends().first_probe().await);
    let info = in_time(sessions.get_or_create(request("one", "").spec))
        .await
        .expect("made");
    assert_eq!(info.backend_name, "first");
}

#[tokio::test]
async fn a_failing_backend_is_not_retried_at_once() {
    let daemon = daemon();
    daemon.backend.break_down("not there", "start it");
    daemon.sessions.keep_warm(vec![pool_spec(4)]);
    eventually("it was tried", || daemon.backend.starts() > 0).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(daemon.backend.starts(), 1);
    // A request gets the error.
    let refused = in_time(daemon.sessions.exec(request("one", "true"))).await;
    assert!(
        refused
            .expect_err("no box")
            .to_string()
            .contains("not there")
    );
}

#[tokio::test]
async fn a_shutdown_removes_prewarmed_boxes() {
    let daemon = daemon();
    daemon.sessions.keep_warm(vec![pool_spec(4)]);
    for number in 0..4 {
        run(&daemon, request(&format!("s{number}"), "true")).await;
    }
    in_time(daemon.sessions.shutdown(ShutdownBoxes::Stop)).await;
    assert!(daemon.backend.boxes().is_empty());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(daemon.backend.boxes().is_empty());
}
