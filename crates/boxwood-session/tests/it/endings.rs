//! How sessions end: by a delete, by the reaper, with their box, at the daemon's end.

use std::time::Duration;

use boxwood_api::{ErrorCode, EventKind, FileKind};
use boxwood_session::{FileAnswer, FileCall, Replace, SessionError, ShutdownBoxes};

use super::{
    asked, asked_with, eventually, house, house_with, id, in_time, is_running, script, unique_nap,
};

#[tokio::test]
async fn a_deleted_session_is_gone_with_everything_in_it() {
    let house = house();
    let nap = unique_nap();
    in_time(
        house
            .sessions
            .exec(asked("s", &format!("setsid sleep {nap} &"))),
    )
    .await
    .expect("it runs");
    let root = house.backend.boxes()[0].root().to_owned();
    assert!(root.exists());
    in_time(house.sessions.delete(&id("s"), "test"))
        .await
        .expect("deleted");
    assert!(!is_running(&nap));
    assert!(!root.exists());
    let error = in_time(house.sessions.delete(&id("s"), "test"))
        .await
        .expect_err("gone already");
    assert_eq!(error.to_string(), "session s not found");
    assert_eq!(error.code(), ErrorCode::SessionNotFound);
    assert!(matches!(
        house.sessions.detail(&id("s")),
        Err(SessionError::NotFound { .. })
    ));
}

#[tokio::test]
async fn idle_sessions_are_removed_and_busy_ones_are_not() {
    let house = house_with(|settings| settings.session_ttl = Duration::from_secs(5));
    let mut events = house.sessions.events();
    in_time(house.sessions.get_or_create(asked("process", "true").spec))
        .await
        .expect("a session");
    let kept = asked_with("kept", "true", |request| request.persistent = Some(true));
    in_time(house.sessions.get_or_create(kept.spec))
        .await
        .expect("a session");
    in_time(house.sessions.start_process(
        &id("process"),
        script("default", "sleep 100"),
        Replace::Refuse,
    ))
    .await
    .expect("a process");
    in_time(house.sessions.get_or_create(asked("idle", "true").spec))
        .await
        .expect("a session");
    let sessions = house.sessions.clone();
    let busy = tokio::spawn(async move { sessions.exec(asked("busy", "sleep 10")).await });
    let gone = in_time(async {
        loop {
            let event = events.recv().await.expect("an event");
            if let EventKind::SessionDeleted { why } = event.kind {
                return (event.session_id, why);
            }
        }
    })
    .await;
    assert_eq!(gone.0, id("idle"));
    assert_eq!(gone.1, "idle for too long");
    let result = in_time(busy).await.expect("no panic").expect("a result");
    assert_eq!(result.exit_code, Some(0), "a running command is not reaped");
    assert!(house.sessions.detail(&id("process")).is_ok());
    assert!(house.sessions.detail(&id("kept")).is_ok());
    in_time(
        house
            .sessions
            .stop_process(&id("process"), &boxwood_api::ProcessId::default()),
    )
    .await
    .expect("stopped");
    eventually("both to go", || {
        let names: Vec<_> = house.sessions.list();
        names.len() == 1 && names[0].session_id == id("kept")
    })
    .await;
}

#[tokio::test]
async fn a_time_to_live_of_zero_is_for_ever() {
    let house = house_with(|settings| settings.session_ttl = Duration::ZERO);
    in_time(house.sessions.get_or_create(asked("s", "true").spec))
        .await
        .expect("a session");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(house.sessions.list().len(), 1);
    assert_eq!(house.sessions.status().session_ttl_sec, 0);
}

#[tokio::test]
async fn use_moves_the_time_of_last_use() {
    let house = house();
    let made = in_time(house.sessions.get_or_create(asked("s", "true").spec))
        .await
        .expect("a session");
    in_time(house.sessions.exec(asked("s", "sleep 0.05")))
        .await
        .expect("it runs");
    let used = house.sessions.detail(&id("s")).expect("there").session;
    assert!(used.last_used_at > made.last_used_at);
    assert_eq!(used.created_at, made.created_at);
    // Looking is not using.
    let looked = house.sessions.detail(&id("s")).expect("there").session;
    assert_eq!(looked.last_used_at, used.last_used_at);
}

#[tokio::test]
async fn a_box_that_dies_unused_is_noticed() {
    let house = house();
    in_time(house.sessions.get_or_create(asked("s", "true").spec))
        .await
        .expect("a session");
    let root = house.backend.boxes()[0].root().to_owned();
    assert!(house.backend.kill_box(&id("s")));
    eventually("the session's end", || house.sessions.list().is_empty()).await;
    eventually("the box's files", || !root.exists()).await;
}

#[tokio::test]
async fn a_shutdown_removes_everything_and_nothing_new_starts() {
    let house = house();
    let nap = unique_nap();
    for name in ["a", "b", "c"] {
        let kept = asked_with(name, &format!("sleep {nap} &"), |request| {
            request.persistent = Some(name == "c");
        });
        in_time(house.sessions.exec(kept)).await.expect("it runs");
    }
    assert!(is_running(&nap));
    in_time(house.sessions.shutdown(ShutdownBoxes::Stop)).await;
    assert!(!is_running(&nap));
    assert!(house.backend.boxes().is_empty());
    assert_eq!(house.backend.shutdowns(), 1);
    let error = in_time(house.sessions.exec(asked("d", "true")))
        .await
        .expect_err("too late");
    assert!(matches!(error, SessionError::ShuttingDown));
}

#[tokio::test]
async fn a_shutdown_waits_for_a_start_and_removes_what_it_made() {
    let house = house();
    house.backend.hold_starts();
    let sessions = house.sessions.clone();
    let creating =
        tokio::spawn(async move { sessions.get_or_create(asked("s", "true").spec).await });
    eventually("a start", || house.backend.starts() == 1).await;
    let sessions = house.sessions.clone();
    let shutdown = tokio::spawn(async move { sessions.shutdown(ShutdownBoxes::Stop).await });
    tokio::task::yield_now().await;
    house.backend.release_starts();
    in_time(shutdown).await.expect("no panic");
    assert!(in_time(creating).await.expect("no panic").is_err());
    assert!(house.backend.boxes().is_empty());
}

#[tokio::test]
async fn files_are_those_of_the_session() {
    let house = house();
    in_time(
        house
            .sessions
            .exec(asked("s", "echo hello > a.txt; ln -s /etc/passwd out")),
    )
    .await
    .expect("it runs");
    let stat = FileCall::Stat {
        path: "/workspace/a.txt".to_owned(),
        follow: false,
    };
    let FileAnswer::Entry(entry) = in_time(house.sessions.file(&id("s"), stat))
        .await
        .expect("it is there")
    else {
        panic!("an entry");
    };
    assert_eq!((entry.kind, entry.size), (FileKind::File, 6));
    let outside = FileCall::Open {
        path: "/workspace/out".to_owned(),
        how: boxwood_session::OpenFor::Read,
    };
    let error = in_time(house.sessions.file(&id("s"), outside))
        .await
        .expect_err("there is no /etc/passwd in the box");
    assert_eq!(error.code(), ErrorCode::NotFound);
    let nowhere = FileCall::List {
        path: "/".to_owned(),
        limit: 10,
    };
    let error = in_time(house.sessions.file(&id("other"), nowhere))
        .await
        .expect_err("no such session");
    assert_eq!(error.code(), ErrorCode::SessionNotFound);
}

#[tokio::test]
async fn the_status_counts_what_is_there() {
    let house = house();
    assert!(in_time(house.sessions.backends().first_look()).await);
    in_time(house.sessions.get_or_create(asked("s", "true").spec))
        .await
        .expect("a session");
    for (name, text) in [("a", "sleep 100"), ("b", "true")] {
        in_time(
            house
                .sessions
                .start_process(&id("s"), script(name, text), Replace::Refuse),
        )
        .await
        .expect("a process");
    }
    eventually("one process's end", || {
        house.sessions.status().managed_processes == 1
    })
    .await;
    let status = house.sessions.status();
    assert_eq!(status.backend.name.as_deref(), Some("fake"));
    assert!(status.backend.available);
    assert_eq!(status.active_sessions, 1);
    assert_eq!(status.session_ttl_sec, 300);
}
