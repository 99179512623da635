//! How sessions come to be, and what a second request finds.

use boxwood_api::{ErrorCode, EventKind, Network};
use boxwood_session::SessionError;

use super::{asked, asked_with, eventually, house, house_with, id, in_time};

#[tokio::test]
async fn callers_of_one_id_share_one_creation() {
    let house = house();
    house.backend.hold_starts();
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let sessions = house.sessions.clone();
            tokio::spawn(async move { sessions.get_or_create(asked("s", "true").spec).await })
        })
        .collect();
    eventually("a start", || house.backend.starts() == 1).await;
    house.backend.release_starts();
    for caller in callers {
        let info = in_time(caller).await.expect("no panic").expect("a session");
        assert_eq!(info.incarnation, 1);
    }
    assert_eq!(house.backend.starts(), 1);
}

#[tokio::test]
async fn callers_share_the_error_too() {
    let house = house();
    house.backend.hold_starts();
    house.backend.fail_next_start("no engine here");
    let callers: Vec<_> = (0..5)
        .map(|_| {
            let sessions = house.sessions.clone();
            tokio::spawn(async move { sessions.get_or_create(asked("s", "true").spec).await })
        })
        .collect();
    eventually("a start", || house.backend.starts() == 1).await;
    // All of them wait for that one start: none begins another.
    tokio::task::yield_now().await;
    house.backend.release_starts();
    for caller in callers {
        let error = in_time(caller)
            .await
            .expect("no panic")
            .expect_err("it failed");
        assert_eq!(error.code(), ErrorCode::BackendUnavailable);
        assert_eq!(error.to_string(), "no engine here");
        assert_eq!(error.hint().as_deref(), Some("the test asked for it"));
    }
    assert_eq!(house.backend.starts(), 1);
    // A failure is not remembered.
    in_time(house.sessions.get_or_create(asked("s", "true").spec))
        .await
        .expect("the next start works");
}

#[tokio::test]
async fn a_backend_that_panics_is_an_error_and_frees_the_name() {
    let house = house();
    house.backend.panic_in_next_start();
    let error = in_time(house.sessions.get_or_create(asked("s", "true").spec))
        .await
        .expect_err("a panic is not a session");
    assert_eq!(error.code(), ErrorCode::InternalError);
    in_time(house.sessions.get_or_create(asked("s", "true").spec))
        .await
        .expect("the name is free");
}

#[tokio::test]
async fn a_slow_creation_holds_up_nobody_else() {
    let house = house();
    in_time(house.sessions.exec(asked("fast", "true")))
        .await
        .expect("it runs");
    house.backend.hold_starts();
    let sessions = house.sessions.clone();
    let slow = tokio::spawn(async move { sessions.exec(asked("slow", "true")).await });
    eventually("the slow start", || house.backend.starts() == 2).await;
    let result = in_time(house.sessions.exec(asked("fast", "echo hi")))
        .await
        .expect("it runs");
    assert_eq!(result.stdout, "hi\n");
    house.backend.release_starts();
    in_time(slow).await.expect("no panic").expect("it runs");
}

#[tokio::test]
async fn a_caller_that_vanishes_leaves_a_session_and_not_half_of_one() {
    let house = house();
    house.backend.hold_starts();
    {
        let creating = house.sessions.get_or_create(asked("s", "true").spec);
        let mut creating = std::pin::pin!(creating);
        assert!(futures_util::poll!(creating.as_mut()).is_pending());
        eventually("a start", || house.backend.starts() == 1).await;
    }
    house.backend.release_starts();
    eventually("the session", || house.sessions.list().len() == 1).await;
    in_time(house.sessions.delete(&id("s"), "test"))
        .await
        .expect("deleted");
    assert!(house.backend.boxes().is_empty());
}

#[tokio::test]
async fn a_delete_during_the_start_is_remembered() {
    let house = house();
    house.backend.hold_starts();
    let sessions = house.sessions.clone();
    let creating =
        tokio::spawn(async move { sessions.get_or_create(asked("s", "true").spec).await });
    eventually("a start", || house.backend.starts() == 1).await;
    let sessions = house.sessions.clone();
    let deleting = tokio::spawn(async move { sessions.delete(&id("s"), "test").await });
    tokio::task::yield_now().await;
    assert!(!deleting.is_finished(), "it waits for the start");
    house.backend.release_starts();
    in_time(deleting).await.expect("no panic").expect("deleted");
    let error = in_time(creating)
        .await
        .expect("no panic")
        .expect_err("deleted meanwhile");
    assert!(matches!(error, SessionError::DeletedWhileStarting { .. }));
    assert!(house.backend.boxes().is_empty());
    assert!(house.sessions.list().is_empty());
}

#[tokio::test]
async fn a_conflict_names_the_first_field_that_differs() {
    let house = house();
    let base = asked_with("s", "true", |request| request.memory_mb = Some(256));
    in_time(house.sessions.get_or_create(base.spec))
        .await
        .expect("a session");
    let conflict = async |admission: boxwood_policy::Admission| {
        in_time(house.sessions.exec(admission))
            .await
            .expect_err("a conflict")
            .to_string()
    };
    // Two fields differ: the one that comes first is named.
    let both = asked_with("s", "true", |request| {
        request.network = Some(Network::On);
        request.memory_mb = Some(512);
    });
    assert_eq!(
        conflict(both).await,
        "sandbox_exec session s already exists with network=off"
    );
    let memory = asked_with("s", "true", |request| request.memory_mb = Some(512));
    assert_eq!(
        conflict(memory).await,
        "sandbox_exec session s already exists with memory_mb=256"
    );
    let cpus = asked_with("s", "true", |request| {
        request.memory_mb = Some(256);
        request.cpus = Some(0.5);
    });
    assert_eq!(
        conflict(cpus).await,
        "sandbox_exec session s already exists with cpus=1.0"
    );
    let persistent = asked_with("s", "true", |request| {
        request.memory_mb = Some(256);
        request.persistent = Some(true);
    });
    assert_eq!(
        conflict(persistent).await,
        "sandbox_exec session s already exists with persistent=false"
    );
    // What one command may choose for itself is no conflict.
    let command = asked_with("s", "echo $WORD; pwd", |request| {
        request.memory_mb = Some(256);
        request.timeout_sec = Some(5);
        request.env.insert("WORD".to_owned(), "ok".to_owned());
        request.workdir = Some("/workspace/sub".to_owned());
    });
    let result = in_time(house.sessions.exec(command))
        .await
        .expect("it fits");
    assert!(result.stdout.starts_with("ok\n"));
    assert!(result.stdout.ends_with("/workspace/sub\n"));
}

#[tokio::test]
async fn other_mounts_are_another_session() {
    let house = house();
    let directory = tempfile::tempdir().expect("a directory");
    let plain = || asked("s", "true");
    let mounted = asked_with("s", "true", |request| {
        request.extra_mounts.push(boxwood_api::MountSpec {
            host_path: directory.path().display().to_string(),
            mount_path: "/data".to_owned(),
            mode: boxwood_api::MountMode::Ro,
        });
    });
    in_time(house.sessions.get_or_create(plain().spec))
        .await
        .expect("a session");
    let error = in_time(house.sessions.get_or_create(mounted.clone().spec))
        .await
        .expect_err("a conflict");
    assert_eq!(
        error.to_string(),
        "sandbox_exec session s already exists with extra_mounts=[]"
    );
}

#[tokio::test]
async fn a_request_that_names_only_a_command_fits_any_session() {
    let house = house();
    let special = asked_with("s", "true", |request| {
        request.memory_mb = Some(256);
        request.persistent = Some(true);
        request.mount_path = Some("/data".to_owned());
    });
    in_time(house.sessions.get_or_create(special.spec))
        .await
        .expect("a session");
    let result = in_time(house.sessions.exec(asked("s", "pwd")))
        .await
        .expect("it fits");
    // And it starts in the workspace of the session that is there.
    assert!(result.stdout.ends_with("/data\n"), "{}", result.stdout);
}

#[tokio::test]
async fn a_box_that_died_is_made_anew_with_a_higher_incarnation() {
    let house = house();
    let mut events = house.sessions.events();
    let first = in_time(house.sessions.get_or_create(asked("s", "true").spec))
        .await
        .expect("a session");
    assert!(house.backend.kill_box(&id("s")));
    let second = in_time(house.sessions.get_or_create(asked("s", "true").spec))
        .await
        .expect("a new one");
    assert!(second.incarnation > first.incarnation);
    assert_ne!(second.backend_session_id, first.backend_session_id);
    let mut kinds = Vec::new();
    for _ in 0..3 {
        kinds.push(in_time(events.recv()).await.expect("an event").kind);
    }
    assert!(matches!(kinds[0], EventKind::SessionCreated { .. }));
    assert!(matches!(kinds[1], EventKind::SessionDeleted { .. }));
    assert!(matches!(kinds[2], EventKind::SessionCreated { .. }));
}

#[tokio::test]
async fn the_number_of_sessions_is_bounded() {
    let house = house_with(|settings| settings.max_sessions = 2);
    for name in ["a", "b"] {
        in_time(house.sessions.get_or_create(asked(name, "true").spec))
            .await
            .expect("there is room");
    }
    let error = in_time(house.sessions.get_or_create(asked("c", "true").spec))
        .await
        .expect_err("it is full");
    assert_eq!(error.code(), ErrorCode::Capacity);
    in_time(house.sessions.exec(asked("a", "true")))
        .await
        .expect("those that exist work");
    in_time(house.sessions.delete(&id("a"), "test"))
        .await
        .expect("deleted");
    in_time(house.sessions.get_or_create(asked("c", "true").spec))
        .await
        .expect("there is room again");
}
