//! Commands and their results.

use std::time::Duration;

use boxwood_api::{ErrorCode, EventKind, ExecStatus, Reason};

use super::{
    daemon, daemon_with, eventually, id, in_time, is_asleep, is_running, request, request_with,
    unique_nap,
};

#[tokio::test]
async fn output_and_exit_code_are_exact() {
    let daemon = daemon();
    let result = in_time(
        daemon
            .sessions
            .exec(request("s", "printf '  a\\n\\n'; printf 'e ' >&2; exit 3")),
    )
    .await
    .expect("it runs");
    assert_eq!(result.status, ExecStatus::Completed);
    assert_eq!(result.exit_code, Some(3));
    assert_eq!(result.stdout, "  a\n\n");
    assert_eq!(result.stderr, "e ");
    assert_eq!(result.reason, None);
    assert_eq!(result.backend_name, "fake");
}

#[tokio::test]
async fn a_signal_is_an_exit_code_and_a_reason() {
    let daemon = daemon();
    let result = in_time(daemon.sessions.exec(request("s", "kill -SEGV $$")))
        .await
        .expect("it runs");
    assert_eq!(result.exit_code, Some(128 + 11));
    assert_eq!(result.reason, Some(Reason::Signal { signal: 11 }));
}

#[tokio::test]
async fn an_empty_command_creates_no_session() {
    let daemon = daemon();
    let error = in_time(daemon.sessions.exec(request("s", "")))
        .await
        .expect_err("nothing to run");
    assert_eq!(error.code(), ErrorCode::ValidationError);
    assert_eq!(error.to_string(), "cmd must not be empty");
    assert_eq!(daemon.backend.starts(), 0);
}

#[tokio::test]
async fn input_is_written_and_closed() {
    let daemon = daemon();
    let text = "line\n".repeat(100_000);
    let expected = text.clone();
    let admission = request_with("s", "cat", |request| request.stdin = Some(text));
    let result = in_time(daemon.sessions.exec(admission))
        .await
        .expect("it runs");
    assert_eq!(result.stdout, expected);
    // A command that does not read its input ends all the same.
    let admission = request_with("s", "true", |request| {
        request.stdin = Some("x".repeat(1_000_000));
    });
    let result = in_time(daemon.sessions.exec(admission))
        .await
        .expect("it runs");
    assert_eq!(result.exit_code, Some(0));
    // Without input there is nothing to wait for.
    let result = in_time(daemon.sessions.exec(request("s", "cat")))
        .await
        .expect("it runs");
    assert_eq!(result.stdout, "");
}

#[tokio::test]
async fn commands_of_one_session_run_in_parallel() {
    let daemon = daemon();
    in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("a session");
    // Each waits for what the other does: one after the other they would never end.
    let first = "until [ -e two ]; do sleep 0.01; done; touch one; echo first";
    let second = "touch two; until [ -e one ]; do sleep 0.01; done; echo second";
    let (first, second) = in_time(async {
        tokio::join!(
            Box::pin(daemon.sessions.exec(request("s", first))),
            Box::pin(daemon.sessions.exec(request("s", second))),
        )
    })
    .await;
    assert_eq!(first.expect("it runs").stdout, "first\n");
    assert_eq!(second.expect("it runs").stdout, "second\n");
}

#[tokio::test]
async fn a_timeout_kills_the_command_and_keeps_the_session() {
    let daemon = daemon();
    let nap = unique_nap();
    let before = in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("a session");
    let cmd = format!("echo said; trap '' TERM; (setsid sleep {nap} &) ; sleep {nap}");
    let admission = request_with("s", &cmd, |request| request.timeout_sec = Some(4));
    let result = in_time(daemon.sessions.exec(admission))
        .await
        .expect("a result");
    assert_eq!(result.status, ExecStatus::TimedOut);
    assert_eq!(result.exit_code, None);
    assert_eq!(result.reason, Some(Reason::Timeout));
    assert_eq!(result.stdout, "said\n");
    assert_eq!(result.stderr, "Command timed out after 4 seconds.");
    assert_eq!(result.stderr_capture.total_bytes, 0);
    eventually("the tree's end", || !is_running(&nap)).await;
    let after = daemon.sessions.detail(&id("s")).expect("still there");
    assert_eq!(after.session.incarnation, before.incarnation);
    let result = in_time(daemon.sessions.exec(request("s", "echo fine")))
        .await
        .expect("it runs");
    assert_eq!(result.stdout, "fine\n");
}

#[tokio::test]
async fn long_output_does_not_block_and_keeps_head_and_tail() {
    let daemon = daemon();
    let cmd = "echo first; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last; \
               head -c 3000000 /dev/zero | tr '\\0' y >&2";
    let result = in_time(daemon.sessions.exec(request("s", cmd)))
        .await
        .expect("it runs");
    assert_eq!(result.exit_code, Some(0));
    assert!(result.stdout.starts_with("first\nxxx"));
    assert!(result.stdout.ends_with("xxx\nlast\n"));
    assert_eq!(result.stdout_capture.total_bytes, 20_000_000 + 12);
    let kept = 1024 * 1024;
    let dropped = result.stdout_capture.dropped_bytes;
    assert_eq!(dropped, 20_000_000 + 12 - kept);
    let marker = format!("\n... [{dropped} bytes dropped] ...\n");
    assert!(result.stdout.contains(&marker));
    assert_eq!(result.stderr_capture.total_bytes, 3_000_000);
    assert_eq!(result.stderr_capture.dropped_bytes, 3_000_000 - kept);
}

#[tokio::test]
async fn a_background_child_does_not_delay_the_result_and_runs_on() {
    let daemon = daemon();
    let nap = unique_nap();
    let cmd =
        format!("(while true; do echo still here; sleep 0.2; done & sleep {nap}) & echo done");
    let result = in_time(daemon.sessions.exec(request("s", &cmd)))
        .await
        .expect("it runs");
    assert_eq!(result.exit_code, Some(0));
    assert!(result.stdout.contains("done\n"));
    assert!(is_running(&nap));
    // It still writes to the pipe, and must not be killed by SIGPIPE.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let alive = in_time(
        daemon
            .sessions
            .exec(request("s", "ps -e -o args= | grep -c '[s]till here'")),
    )
    .await
    .expect("it runs");
    assert_ne!(alive.stdout.trim(), "0");
    in_time(daemon.sessions.delete(&id("s"), "test"))
        .await
        .expect("deleted");
    assert!(!is_running(&nap));
}

#[tokio::test]
async fn a_dropped_exec_kills_the_command_and_its_children() {
    let daemon = daemon();
    let nap = unique_nap();
    let mut events = daemon.sessions.events();
    in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("a session");
    let sessions = daemon.sessions.clone();
    let cmd = format!("(setsid sleep {nap} &); sleep {nap}");
    let exec = tokio::spawn(async move { sessions.exec(request("s", &cmd)).await });
    eventually("the command", || is_asleep(&nap)).await;
    exec.abort();
    eventually("its end", || !is_running(&nap)).await;
    let cancelled = in_time(async {
        loop {
            let event = events.recv().await.expect("an event");
            if let EventKind::ExecFinished { reason, .. } = event.kind {
                return reason;
            }
        }
    })
    .await;
    assert_eq!(cancelled, Some(Reason::Cancelled));
    assert_eq!(daemon.sessions.list().len(), 1);
}

#[tokio::test]
async fn a_command_whose_box_dies_has_the_reason_box_gone() {
    let daemon = daemon();
    let nap = unique_nap();
    let sessions = daemon.sessions.clone();
    let cmd = format!("echo before; sleep {nap}");
    let exec = tokio::spawn(async move { sessions.exec(request("s", &cmd)).await });
    eventually("the command", || is_asleep(&nap)).await;
    assert!(daemon.backend.kill_box(&id("s")));
    let result = in_time(exec).await.expect("no panic").expect("a result");
    assert_eq!(result.reason, Some(Reason::BoxGone));
    assert_eq!(result.exit_code, None);
    assert_eq!(result.stdout, "before\n");
    eventually("the session's end", || daemon.sessions.list().is_empty()).await;
}

#[tokio::test]
async fn a_command_whose_session_is_deleted_was_cancelled() {
    let daemon = daemon();
    let nap = unique_nap();
    let sessions = daemon.sessions.clone();
    let cmd = format!("sleep {nap}");
    let exec = tokio::spawn(async move { sessions.exec(request("s", &cmd)).await });
    eventually("the command", || is_asleep(&nap)).await;
    in_time(daemon.sessions.delete(&id("s"), "test"))
        .await
        .expect("deleted");
    let result = in_time(exec).await.expect("no panic").expect("a result");
    assert_eq!(result.reason, Some(Reason::Cancelled));
}

#[tokio::test]
async fn a_long_command_runs() {
    let daemon = daemon();
    let cmd = format!("# {}\necho end", "x".repeat(500_000));
    let result = in_time(daemon.sessions.exec(request("s", &cmd)))
        .await
        .expect("it runs");
    assert_eq!(result.stdout, "end\n");
}

#[tokio::test]
async fn a_capture_limit_of_zero_keeps_nothing() {
    let daemon = daemon_with(|settings| settings.capture_bytes = 0);
    let result = in_time(daemon.sessions.exec(request("s", "echo hi")))
        .await
        .expect("it runs");
    assert_eq!(result.stdout_capture.dropped_bytes, 3);
    assert_eq!(result.stdout, "... [3 bytes dropped] ...\n");
}
