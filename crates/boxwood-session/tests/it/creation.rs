//! Creation of sessions, also by concurrent requests.

use boxwood_api::{ErrorCode, EventKind, Network};
use boxwood_session::SessionError;

use super::{daemon, daemon_with, eventually, id, in_time, request, request_with};

#[tokio::test]
async fn callers_of_one_id_share_one_creation() {
    let daemon = daemon();
    daemon.backend.hold_starts();
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let sessions = daemon.sessions.clone();
            tokio::spawn(async move { sessions.get_or_create(request("s", "true").spec).await })
        })
        .collect();
    eventually("a start", || daemon.backend.starts() == 1).await;
    daemon.backend.release_starts();
    for caller in callers {
        let info = in_time(caller).await.expect("no panic").expect("a session");
        assert_eq!(info.incarnation, 1);
    }
    assert_eq!(daemon.backend.starts(), 1);
}

#[tokio::test]
async fn callers_of_one_id_share_one_error() {
    let daemon = daemon();
    daemon.backend.hold_starts();
    daemon.backend.fail_next_start("no engine here");
    let callers: Vec<_> = (0..5)
        .map(|_| {
            let sessions = daemon.sessions.clone();
            tokio::spawn(async move { sessions.get_or_create(request("s", "true").spec).await })
        })
        .collect();
    eventually("a start", || daemon.backend.starts() == 1).await;
    // All of them wait for that one start: none begins another.
    tokio::task::yield_now().await;
    daemon.backend.release_starts();
    for caller in callers {
        let error = in_time(caller)
            .await
            .expect("no panic")
            .expect_err("it failed");
        assert_eq!(error.code(), ErrorCode::BackendUnavailable);
        assert_eq!(error.to_string(), "no engine here");
        assert_eq!(error.hint().as_deref(), Some("the test asked for it"));
    }
    assert_eq!(daemon.backend.starts(), 1);
    // A failure is not remembered.
    in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("the next start works");
}

#[tokio::test]
async fn a_backend_that_panics_is_an_error_and_frees_the_name() {
    let daemon = daemon();
    daemon.backend.panic_in_next_start();
    let error = in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect_err("a panic is not a session");
    assert_eq!(error.code(), ErrorCode::InternalError);
    in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("the name is free");
}

#[tokio::test]
async fn a_slow_creation_does_not_delay_other_sessions() {
    let daemon = daemon();
    in_time(daemon.sessions.exec(request("fast", "true")))
        .await
        .expect("it runs");
    daemon.backend.hold_starts();
    let sessions = daemon.sessions.clone();
    let slow = tokio::spawn(async move { sessions.exec(request("slow", "true")).await });
    eventually("the slow start", || daemon.backend.starts() == 2).await;
    let result = in_time(daemon.sessions.exec(request("fast", "echo hi")))
        .await
        .expect("it runs");
    assert_eq!(result.stdout, "hi\n");
    daemon.backend.release_starts();
    in_time(slow).await.expect("no panic").expect("it runs");
}

#[tokio::test]
async fn a_creation_is_completed_after_its_caller_disconnects() {
    let daemon = daemon();
    daemon.backend.hold_starts();
    {
        let creating = daemon.sessions.get_or_create(request("s", "true").spec);
        let mut creating = std::pin::pin!(creating);
        assert!(futures_util::poll!(creating.as_mut()).is_pending());
        eventually("a start", || daemon.backend.starts() == 1).await;
    }
    daemon.backend.release_starts();
    eventually("the session", || daemon.sessions.list().len() == 1).await;
    in_time(daemon.sessions.delete(&id("s"), "test"))
        .await
        .expect("deleted");
    assert!(daemon.backend.boxes().is_empty());
}

#[tokio::test]
async fn a_delete_during_the_start_removes_the_session() {
    let daemon = daemon();
    daemon.backend.hold_starts();
    let sessions = daemon.sessions.clone();
    let creating =
        tokio::spawn(async move { sessions.get_or_create(request("s", "true").spec).await });
    eventually("a start", || daemon.backend.starts() == 1).await;
    let sessions = daemon.sessions.clone();
    let deleting = tokio::spawn(async move { sessions.delete(&id("s"), "test").await });
    tokio::task::yield_now().await;
    assert!(!deleting.is_finished(), "it waits for the start");
    daemon.backend.release_starts();
    in_time(deleting).await.expect("no panic").expect("deleted");
    let error = in_time(creating)
        .await
        .expect("no panic")
        .expect_err("deleted meanwhile");
    assert!(matches!(error, SessionError::DeletedWhileStarting { .. }));
    assert!(daemon.backend.boxes().is_empty());
    assert!(daemon.sessions.list().is_empty());
}

#[tokio::test]
async fn a_conflict_names_the_first_field_that_differs() {
    let daemon = daemon();
    let base = request_with("s", "true", |request| request.memory_mb = Some(256));
    in_time(daemon.sessions.get_or_create(base.spec))
        .await
        .expect("a session");
    let conflict = async |admission: boxwood_policy::Admission| {
        in_time(daemon.sessions.exec(admission))
            .await
            .expect_err("a conflict")
            .to_string()
    };
    // Two fields differ: the one that comes first is named.
    let both = request_with("s", "true", |request| {
        request.network = Some(Network::On);
        request.memory_mb = Some(512);
    });
    assert_eq!(
        conflict(both).await,
        "sandbox_exec session s already exists with network=off"
    );
    let memory = request_with("s", "true", |request| request.memory_mb = Some(512));
    assert_eq!(
        conflict(memory).await,
        "sandbox_exec session s already exists with memory_mb=256"
    );
    let cpus = request_with("s", "true", |request| {
        request.memory_mb = Some(256);
        request.cpus = Some(0.5);
    });
    assert_eq!(
        conflict(cpus).await,
        "sandbox_exec session s already exists with cpus=1.0"
    );
    let persistent = request_with("s", "true", |request| {
        request.memory_mb = Some(256);
        request.persistent = Some(true);
    });
    assert_eq!(
        conflict(persistent).await,
        "sandbox_exec session s already exists with persistent=false"
    );
    // What one command may choose for itself is no conflict.
    let command = request_with("s", "echo $WORD; pwd", |request| {
        request.memory_mb = Some(256);
        request.timeout_sec = Some(5);
        request.env.insert("WORD".to_owned(), "ok".to_owned());
        request.workdir = Some("/workspace/sub".to_owned());
    });
    let result = in_time(daemon.sessions.exec(command))
        .await
        .expect("it fits");
    assert!(result.stdout.starts_with("ok\n"));
    assert!(result.stdout.ends_with("/workspace/sub\n"));
}

#[tokio::test]
async fn other_mounts_are_another_session() {
    let daemon = daemon();
    let directory = tempfile::tempdir().expect("a directory");
    let plain = || request("s", "true");
    let mounted = request_with("s", "true", |request| {
        request.extra_mounts.push(boxwood_api::MountSpec {
            host_path: directory.path().display().to_string(),
            mount_path: "/data".to_owned(),
            mode: boxwood_api::MountMode::Ro,
        });
    });
    in_time(daemon.sessions.get_or_create(plain().spec))
        .await
        .expect("a session");
    let error = in_time(daemon.sessions.get_or_create(mounted.clone().spec))
        .await
        .expect_err("a conflict");
    assert_eq!(
        error.to_string(),
        "sandbox_exec session s already exists with extra_mounts=[]"
    );
}

#[tokio::test]
async fn a_request_that_names_only_a_command_fits_any_session() {
    let daemon = daemon();
    let special = request_with("s", "true", |request| {
        request.memory_mb = Some(256);
        request.persistent = Some(true);
        request.mount_path = Some("/data".to_owned());
    });
    in_time(daemon.sessions.get_or_create(special.spec))
        .await
        .expect("a session");
    let result = in_time(daemon.sessions.exec(request("s", "pwd")))
        .await
        .expect("it fits");
    // And it starts in the workspace of the session that is there.
    assert!(result.stdout.ends_with("/data\n"), "{}", result.stdout);
}

#[tokio::test]
async fn a_dead_box_is_recreated_with_a_higher_incarnation() {
    let daemon = daemon();
    let mut events = daemon.sessions.events();
    let first = in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("a session");
    assert!(daemon.backend.kill_box(&id("s")));
    let second = in_time(daemon.sessions.get_or_create(request("s", "true").spec))
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
async fn the_number_of_sessions_is_limited() {
    let daemon = daemon_with(|settings| settings.max_sessions = 2);
    for name in ["a", "b"] {
        in_time(daemon.sessions.get_or_create(request(name, "true").spec))
            .await
            .expect("there is room");
    }
    let error = in_time(daemon.sessions.get_or_create(request("c", "true").spec))
        .await
        .expect_err("it is full");
    assert_eq!(error.code(), ErrorCode::Capacity);
    in_time(daemon.sessions.exec(request("a", "true")))
        .await
        .expect("those that exist work");
    in_time(daemon.sessions.delete(&id("a"), "test"))
        .await
        .expect("deleted");
    in_time(daemon.sessions.get_or_create(request("c", "true").spec))
        .await
        .expect("there is room again");
}
