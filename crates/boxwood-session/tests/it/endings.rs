//! How sessions end: by a delete, by the reaper, with their box, at the daemon's end.

use std::time::Duration;

use boxwood_api::{ErrorCode, EventKind, FileKind};
use boxwood_session::{FileAnswer, FileCall, Replace, SessionError, ShutdownBoxes};

use super::{
    daemon, daemon_with, eventually, id, in_time, is_running, request, request_with, script,
    unique_nap,
};

#[tokio::test]
async fn a_deleted_session_is_removed_with_its_programs() {
    let daemon = daemon();
    let nap = unique_nap();
    in_time(
        daemon
            .sessions
            .exec(request("s", &format!("setsid sleep {nap} &"))),
    )
    .await
    .expect("it runs");
    let root = daemon.backend.boxes()[0].root().to_owned();
    assert!(root.exists());
    in_time(daemon.sessions.delete(&id("s"), "test"))
        .await
        .expect("deleted");
    assert!(!is_running(&nap));
    assert!(!root.exists());
    let error = in_time(daemon.sessions.delete(&id("s"), "test"))
        .await
        .expect_err("gone already");
    assert_eq!(error.to_string(), "session s not found");
    assert_eq!(error.code(), ErrorCode::SessionNotFound);
    assert!(matches!(
        daemon.sessions.detail(&id("s")),
        Err(SessionError::NotFound { .. })
    ));
}

#[tokio::test]
async fn idle_sessions_are_removed_and_busy_ones_are_not() {
    let daemon = daemon_with(|settings| settings.session_ttl = Duration::from_secs(5));
    let mut events = daemon.sessions.events();
    in_time(
        daemon
            .sessions
            .get_or_create(request("process", "true").spec),
    )
    .await
    .expect("a session");
    let kept = request_with("kept", "true", |request| request.persistent = Some(true));
    in_time(daemon.sessions.get_or_create(kept.spec))
        .await
        .expect("a session");
    in_time(daemon.sessions.start_process(
        &id("process"),
        script("default", "sleep 100"),
        Replace::Refuse,
    ))
    .await
    .expect("a process");
    in_time(daemon.sessions.get_or_create(request("idle", "true").spec))
        .await
        .expect("a session");
    let sessions = daemon.sessions.clone();
    let busy = tokio::spawn(async move { sessions.exec(request("busy", "sleep 10")).await });
    let deleted = in_time(async {
        loop {
            let event = events.recv().await.expect("an event");
            if let EventKind::SessionDeleted { why } = event.kind {
                return (event.session_id, why);
            }
        }
    })
    .await;
    assert_eq!(deleted.0, id("idle"));
    assert_eq!(deleted.1, "idle for too long");
    let result = in_time(busy).await.expect("no panic").expect("a result");
    assert_eq!(result.exit_code, Some(0), "a running command is not reaped");
    assert!(daemon.sessions.detail(&id("process")).is_ok());
    assert!(daemon.sessions.detail(&id("kept")).is_ok());
    in_time(
        daemon
            .sessions
            .stop_process(&id("process"), &boxwood_api::ProcessId::default()),
    )
    .await
    .expect("stopped");
    eventually("both to go", || {
        let names: Vec<_> = daemon.sessions.list();
        names.len() == 1 && names[0].session_id == id("kept")
    })
    .await;
}

#[tokio::test]
async fn a_time_to_live_of_zero_is_unlimited() {
    let daemon = daemon_with(|settings| settings.session_ttl = Duration::ZERO);
    in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("a session");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(daemon.sessions.list().len(), 1);
    assert_eq!(daemon.sessions.status().session_ttl_sec, 0);
}

#[tokio::test]
async fn commands_update_the_time_of_last_use() {
    let daemon = daemon();
    let made = in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("a session");
    in_time(daemon.sessions.exec(request("s", "sleep 0.05")))
        .await
        .expect("it runs");
    let used = daemon.sessions.detail(&id("s")).expect("there").session;
    assert!(used.last_used_at > made.last_used_at);
    assert_eq!(used.created_at, made.created_at);
    // Reading the details is not a use.
    let looked = daemon.sessions.detail(&id("s")).expect("there").session;
    assert_eq!(looked.last_used_at, used.last_used_at);
}

#[tokio::test]
async fn the_death_of_an_idle_box_closes_its_session() {
    let daemon = daemon();
    in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("a session");
    let root = daemon.backend.boxes()[0].root().to_owned();
    assert!(daemon.backend.kill_box(&id("s")));
    eventually("the session's end", || daemon.sessions.list().is_empty()).await;
    eventually("the box's files", || !root.exists()).await;
}

#[tokio::test]
async fn a_shutdown_removes_all_sessions_and_refuses_new_ones() {
    let daemon = daemon();
    let nap = unique_nap();
    for name in ["a", "b", "c"] {
        let kept = request_with(name, &format!("sleep {nap} &"), |request| {
            request.persistent = Some(name == "c");
        });
        in_time(daemon.sessions.exec(kept)).await.expect("it runs");
    }
    assert!(is_running(&nap));
    in_time(daemon.sessions.shutdown(ShutdownBoxes::Stop)).await;
    assert!(!is_running(&nap));
    assert!(daemon.backend.boxes().is_empty());
    assert_eq!(daemon.backend.shutdowns(), 1);
    let error = in_time(daemon.sessions.exec(request("d", "true")))
        .await
        .expect_err("too late");
    assert!(matches!(error, SessionError::ShuttingDown));
}

#[tokio::test]
async fn a_shutdown_waits_for_a_start_and_removes_its_box() {
    let daemon = daemon();
    daemon.backend.hold_starts();
    let sessions = daemon.sessions.clone();
    let creating =
        tokio::spawn(async move { sessions.get_or_create(request("s", "true").spec).await });
    eventually("a start", || daemon.backend.starts() == 1).await;
    let sessions = daemon.sessions.clone();
    let shutdown = tokio::spawn(async move { sessions.shutdown(ShutdownBoxes::Stop).await });
    tokio::task::yield_now().await;
    daemon.backend.release_starts();
    in_time(shutdown).await.expect("no panic");
    assert!(in_time(creating).await.expect("no panic").is_err());
    assert!(daemon.backend.boxes().is_empty());
}

#[tokio::test]
async fn files_are_those_of_the_session() {
    let daemon = daemon();
    in_time(
        daemon
            .sessions
            .exec(request("s", "echo hello > a.txt; ln -s /etc/passwd out")),
    )
    .await
    .expect("it runs");
    let stat = FileCall::Stat {
        path: "/workspace/a.txt".to_owned(),
        follow: false,
    };
    let FileAnswer::Entry(entry) = in_time(daemon.sessions.file(&id("s"), stat))
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
    let error = in_time(daemon.sessions.file(&id("s"), outside))
        .await
        .expect_err("there is no /etc/passwd in the box");
    assert_eq!(error.code(), ErrorCode::NotFound);
    let nowhere = FileCall::List {
        path: "/".to_owned(),
        limit: 10,
    };
    let error = in_time(daemon.sessions.file(&id("other"), nowhere))
        .await
        .expect_err("no such session");
    assert_eq!(error.code(), ErrorCode::SessionNotFound);
}

#[tokio::test]
async fn the_status_counts_what_is_there() {
    let daemon = daemon();
    assert!(in_time(daemon.sessions.backends().first_probe()).await);
    in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("a session");
    for (name, text) in [("a", "sleep 100"), ("b", "true")] {
        in_time(
            daemon
                .sessions
                .start_process(&id("s"), script(name, text), Replace::Refuse),
        )
        .await
        .expect("a process");
    }
    eventually("one process's end", || {
        daemon.sessions.status().managed_processes == 1
    })
    .await;
    let status = daemon.sessions.status();
    assert_eq!(status.backend.name.as_deref(), Some("fake"));
    assert!(status.backend.available);
    assert_eq!(status.active_sessions, 1);
    assert_eq!(status.session_ttl_sec, 300);
}
