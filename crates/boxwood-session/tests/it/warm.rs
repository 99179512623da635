//! Boxes that were made before anybody asked.

use std::sync::Arc;
use std::time::Duration;

use boxwood_policy::Admission;
use boxwood_session::{Backends, Candidate, Choice, Sessions, Settings, ShutdownBoxes, WarmWish};
use boxwood_test_support::FakeBackend;

use crate::{House, asked, asked_with, eventually, house, house_with, id, in_time};

fn wish(most: usize) -> WarmWish {
    WarmWish {
        spec: asked("warm-default", "").spec,
        most,
    }
}

fn waiting(house: &House) -> u64 {
    house.sessions.status().warm_boxes
}

async fn until_waiting(house: &House, count: u64) {
    eventually("boxes wait", || waiting(house) == count).await;
}

async fn run(house: &House, admission: Admission) -> String {
    let done = in_time(house.sessions.exec(admission)).await;
    done.expect("it runs").stdout
}

#[tokio::test]
async fn a_session_gets_the_box_that_waits_for_it() {
    let house = house();
    house.sessions.keep_warm(vec![wish(2)]);
    until_waiting(&house, 1).await;
    assert_eq!(house.backend.starts(), 1);
    let ready = house.backend.boxes()[0].id().to_owned();
    assert!(house.sessions.list().is_empty(), "it is no session");
    assert_eq!(house.sessions.status().active_sessions, 0);
    house.backend.hold_starts();
    assert_eq!(run(&house, asked("one", "echo mine")).await, "mine\n");
    let info = &house.sessions.list()[0];
    assert_eq!(info.backend_session_id, ready);
    assert_eq!(info.session_id, id("one"));
    assert_eq!(info.backend_name, "fake");
    house.backend.release_starts();
    // The next ones are made, more than before: somebody asks.
    until_waiting(&house, 2).await;
}

#[tokio::test]
async fn whoever_wants_another_box_gets_another_box() {
    let house = house();
    house.sessions.keep_warm(vec![wish(1)]);
    until_waiting(&house, 1).await;
    let ready = house.backend.boxes()[0].id().to_owned();
    let other = asked_with("other", "true", |spec| spec.memory_mb = Some(100));
    run(&house, other).await;
    assert_ne!(house.sessions.list()[0].backend_session_id, ready);
    assert_eq!(waiting(&house), 1);
    let named = asked_with("named", "true", |spec| {
        spec.backend = Some("fake".to_owned());
    });
    run(&house, named).await;
    assert!(
        house
            .sessions
            .list()
            .iter()
            .all(|info| info.backend_session_id != ready)
    );
}

#[tokio::test]
async fn many_requests_make_for_many_boxes_up_to_the_most() {
    let house = house();
    house.sessions.keep_warm(vec![wish(4)]);
    until_waiting(&house, 1).await;
    for number in 0..8 {
        run(&house, asked(&format!("s{number}"), "true")).await;
    }
    until_waiting(&house, 4).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(waiting(&house), 4);
    assert_eq!(house.backend.boxes().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn they_become_fewer_when_nobody_asks() {
    let house = house_with(|settings| settings.session_ttl = Duration::ZERO);
    house.sessions.keep_warm(vec![wish(4)]);
    until_waiting(&house, 1).await;
    for number in 0..4 {
        in_time(
            house
                .sessions
                .get_or_create(asked(&format!("s{number}"), "").spec),
        )
        .await
        .expect("made");
    }
    until_waiting(&house, 4).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    until_waiting(&house, 2).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    until_waiting(&house, 1).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(waiting(&house), 1);
    assert_eq!(house.backend.boxes().len(), 5);
}

#[tokio::test]
async fn sessions_and_boxes_that_wait_are_never_more_than_the_most_sessions() {
    let house = house_with(|settings| settings.max_sessions = 3);
    house.sessions.keep_warm(vec![wish(8)]);
    for number in 0..2 {
        run(&house, asked(&format!("s{number}"), "true")).await;
    }
    until_waiting(&house, 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(house.backend.boxes().len(), 3);
    // A session of another kind comes before a box that nobody has asked for.
    let other = asked_with("other", "true", |spec| spec.memory_mb = Some(100));
    run(&house, other).await;
    eventually("the box that waited is gone", || {
        waiting(&house) == 0 && house.backend.boxes().len() == 3
    })
    .await;
}

#[tokio::test]
async fn a_box_that_died_while_it_waited_is_replaced() {
    let house = house();
    house.sessions.keep_warm(vec![wish(1)]);
    until_waiting(&house, 1).await;
    let dead = house.backend.boxes()[0].id().to_owned();
    assert!(house.backend.kill_box(&id("warm-default")));
    eventually("another one waits", || {
        let boxes = house.backend.boxes();
        waiting(&house) == 1 && boxes.iter().any(|found| found.id() != dead)
    })
    .await;
    assert_eq!(run(&house, asked("one", "echo alive")).await, "alive\n");
}

#[tokio::test]
async fn nobody_gets_a_box_of_an_earlier_configuration() {
    let house = house();
    house.sessions.keep_warm(vec![wish(1)]);
    until_waiting(&house, 1).await;
    let before = house.backend.boxes()[0].id().to_owned();
    let changed = WarmWish {
        spec: asked_with("warm-default", "", |spec| spec.memory_mb = Some(100)).spec,
        most: 1,
    };
    house.sessions.keep_warm(vec![changed]);
    eventually("the old one is gone, and a new one waits", || {
        let boxes = house.backend.boxes();
        waiting(&house) == 1 && boxes.len() == 1 && boxes[0].id() != before
    })
    .await;
    house.sessions.keep_warm(Vec::new());
    eventually("none is wanted any more", || {
        house.backend.boxes().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_change_of_images_lets_go_of_what_was_made_from_them() {
    let house = house();
    house.sessions.keep_warm(vec![wish(1)]);
    until_waiting(&house, 1).await;
    in_time(house.sessions.forget_warm("another")).await;
    assert_eq!(waiting(&house), 1);
    in_time(house.sessions.forget_warm("fake")).await;
    assert_eq!(waiting(&house), 0);
    assert!(house.backend.boxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_images_behind_our_back_is_noticed() {
    let house = house();
    house.sessions.keep_warm(vec![wish(1)]);
    until_waiting(&house, 1).await;
    let before = house.backend.boxes()[0].id().to_owned();
    let images = boxwood_backend::Backend::images(&*house.backend);
    let name = boxwood_api::ImageName::new("fresh").expect("a name");
    house.backend.images.publish("fresh");
    images
        .pull(&name, &boxwood_backend::Progress::silent())
        .await
        .expect("pulled");
    tokio::time::sleep(Duration::from_secs(61)).await;
    eventually("it was made anew", || {
        let boxes = house.backend.boxes();
        waiting(&house) == 1 && boxes.iter().all(|found| found.id() != before)
    })
    .await;
}

#[tokio::test]
async fn a_box_waits_only_where_boxes_go_now() {
    let (first, second) = (FakeBackend::named("first"), FakeBackend::named("second"));
    first.break_down("not there", "start it");
    let backends = Backends::new(
        [
            Candidate::living(Arc::clone(&first) as _),
            Candidate::living(Arc::clone(&second) as _),
        ],
        Choice::Auto,
    );
    backends.first_look().await;
    let sessions = Sessions::new(backends, Settings::default());
    sessions.keep_warm(vec![wish(1)]);
    eventually("one waits on the second", || {
        sessions.status().warm_boxes == 1 && second.boxes().len() == 1
    })
    .await;
    first.mend();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(sessions.backends().first_look().await);
    let info = in_time(sessions.get_or_create(asked("one", "").spec))
        .await
        .expect("made");
    assert_eq!(info.backend_name, "first");
}

#[tokio::test]
async fn a_backend_that_does_not_work_is_left_alone_for_a_while() {
    let house = house();
    house.backend.break_down("not there", "start it");
    house.sessions.keep_warm(vec![wish(4)]);
    eventually("it was tried", || house.backend.starts() > 0).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(house.backend.starts(), 1);
    // Whoever asks is told why, as ever.
    let refused = in_time(house.sessions.exec(asked("one", "true"))).await;
    assert!(
        refused
            .expect_err("no box")
            .to_string()
            .contains("not there")
    );
}

#[tokio::test]
async fn nothing_waits_any_more_after_the_end() {
    let house = house();
    house.sessions.keep_warm(vec![wish(4)]);
    for number in 0..4 {
        run(&house, asked(&format!("s{number}"), "true")).await;
    }
    in_time(house.sessions.shutdown(ShutdownBoxes::Stop)).await;
    assert!(house.backend.boxes().is_empty());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(house.backend.boxes().is_empty());
}
