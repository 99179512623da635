//! Managed processes: start, end, stop, limits. Their input and output are tested in `relay.rs`.

use std::time::Duration;

use boxwood_api::{ErrorCode, ProcessId, ProcessStatus, Reason};
use boxwood_session::Replace;

use super::{
    TestDaemon, daemon, daemon_with, eventually, id, in_time, is_asleep, is_running, process_id,
    request, script, unique_nap,
};

async fn with_session(daemon: &TestDaemon) {
    in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("a session");
}

async fn start(
    daemon: &TestDaemon,
    process: &str,
    text: &str,
    replace: Replace,
) -> Result<boxwood_api::ProcessInfo, boxwood_session::SessionError> {
    in_time(
        daemon
            .sessions
            .start_process(&id("s"), script(process, text), replace),
    )
    .await
}

async fn until_exited(daemon: &TestDaemon, process: &str) -> boxwood_api::ProcessInfo {
    let process = process_id(process);
    let exited = || {
        daemon
            .sessions
            .process(&id("s"), &process)
            .is_ok_and(|info| info.status == ProcessStatus::Exited)
    };
    eventually("the process's end", exited).await;
    daemon.sessions.process(&id("s"), &process).expect("kept")
}

/// The process has said `ready` on stderr: its traps are set.
async fn until_ready(daemon: &TestDaemon, process: &str) {
    let process = process_id(process);
    eventually("a word of the process", || {
        daemon
            .sessions
            .process(&id("s"), &process)
            .is_ok_and(|info| info.stderr_preview.contains("ready"))
    })
    .await;
}

#[tokio::test]
async fn a_process_needs_a_session() {
    let daemon = daemon();
    let error = start(&daemon, "default", "true", Replace::Refuse)
        .await
        .expect_err("no session");
    assert_eq!(error.to_string(), "session s not found");
    assert_eq!(daemon.backend.starts(), 0);
}

#[tokio::test]
async fn exit_code_time_and_stderr_of_an_ended_process_are_kept() {
    let daemon = daemon();
    with_session(&daemon).await;
    let mut spec = script("p", "echo out; echo '  wrong  ' >&2; echo >&2; exit 4");
    spec.env.insert("SECRET".to_owned(), "value".to_owned());
    spec.env.insert("ALSO".to_owned(), "value".to_owned());
    let info = in_time(
        daemon
            .sessions
            .start_process(&id("s"), spec, Replace::Refuse),
    )
    .await
    .expect("started");
    assert_eq!(info.env_keys, ["ALSO", "SECRET"]);
    assert_eq!(info.command, "sh");
    let ended = until_exited(&daemon, "p").await;
    assert_eq!(ended.exit_code, Some(4));
    assert!(ended.exited_at.is_some_and(|at| at >= ended.started_at));
    assert_eq!(ended.reason, None);
    assert_eq!(ended.stderr_preview, "  wrong");
    let logs = daemon
        .sessions
        .logs(&id("s"), &process_id("p"))
        .expect("kept");
    assert_eq!(logs.stdout, "out\n");
    assert_eq!(logs.stderr, "  wrong  \n\n");
    let used = daemon.sessions.detail(&id("s")).expect("there").session;
    assert!(ended.exited_at.is_some_and(|at| used.last_used_at >= at));
}

#[tokio::test]
async fn stderr_of_a_process_does_not_use_up_the_budget() {
    let daemon = daemon();
    with_session(&daemon).await;
    let text = "head -c 1000000 /dev/zero >&2";
    let started = start(&daemon, "p", text, Replace::Refuse).await;
    started.expect("started");
    until_exited(&daemon, "p").await;
    let logs = daemon.sessions.logs(&id("s"), &process_id("p"));
    assert_eq!(logs.expect("kept").stderr.len(), 128 * 1024);
    assert_eq!(daemon.sessions.budget().used(), 0);
}

#[tokio::test]
async fn a_program_that_is_missing_exits_127() {
    let daemon = daemon();
    with_session(&daemon).await;
    let mut spec = script("p", "");
    spec.command = "no-such-program".to_owned();
    in_time(
        daemon
            .sessions
            .start_process(&id("s"), spec, Replace::Refuse),
    )
    .await
    .expect("started");
    let ended = until_exited(&daemon, "p").await;
    assert_eq!(ended.exit_code, Some(127));
    assert!(ended.stderr_preview.contains("no-such-program"));
}

#[tokio::test]
async fn a_running_process_is_replaced_or_left_alone() {
    let daemon = daemon();
    with_session(&daemon).await;
    let (old, new) = (unique_nap(), unique_nap());
    start(&daemon, "default", &format!("sleep {old}"), Replace::Refuse)
        .await
        .expect("started");
    eventually("the old one", || is_asleep(&old)).await;
    let error = start(&daemon, "default", "true", Replace::Refuse)
        .await
        .expect_err("one is running");
    assert_eq!(error.to_string(), "session s already has a managed process");
    assert_eq!(error.code(), ErrorCode::ManagedProcessConflict);
    assert!(is_running(&old));
    start(
        &daemon,
        "default",
        &format!("sleep {new}"),
        Replace::Running,
    )
    .await
    .expect("started");
    assert!(!is_running(&old));
    eventually("the new one", || is_asleep(&new)).await;
    assert_eq!(daemon.sessions.processes(&id("s")).expect("there").len(), 1);
    // An ended process does not block a start.
    start(&daemon, "p2", "true", Replace::Refuse)
        .await
        .expect("started");
    until_exited(&daemon, "p2").await;
    start(&daemon, "p2", "sleep 100", Replace::Refuse)
        .await
        .expect("started");
}

#[tokio::test]
async fn many_starts_of_one_id_leave_one_process() {
    let daemon = daemon();
    with_session(&daemon).await;
    let nap = unique_nap();
    let starts: Vec<_> = (0..8)
        .map(|_| {
            let sessions = daemon.sessions.clone();
            let spec = script("p", &format!("exec sleep {nap}"));
            tokio::spawn(async move {
                sessions
                    .start_process(&id("s"), spec, Replace::Running)
                    .await
            })
        })
        .collect();
    for started in starts {
        in_time(started).await.expect("no panic").expect("started");
    }
    assert_eq!(daemon.sessions.status().managed_processes, 1);
    in_time(daemon.sessions.stop_process(&id("s"), &process_id("p")))
        .await
        .expect("stopped");
    assert!(!is_running(&nap));
}

#[tokio::test]
async fn a_stop_sends_sigterm_first() {
    let daemon = daemon();
    with_session(&daemon).await;
    let text = "trap 'echo cleaning up >&2; exit 0' TERM; echo ready >&2; \
                while true; do sleep 0.02; done";
    start(&daemon, "p", text, Replace::Refuse)
        .await
        .expect("started");
    until_ready(&daemon, "p").await;
    let ended = in_time(daemon.sessions.stop_process(&id("s"), &process_id("p")))
        .await
        .expect("stopped");
    assert_eq!(ended.status, ProcessStatus::Exited);
    assert_eq!(ended.exit_code, Some(0));
    // The shell may also complain about its `sleep`, which the signal reached as well.
    assert!(ended.stderr_preview.ends_with("\ncleaning up"));
    let error = daemon
        .sessions
        .process(&id("s"), &process_id("p"))
        .expect_err("forgotten");
    assert_eq!(
        error.to_string(),
        "session s has no managed process with process_id=p"
    );
    let error = in_time(
        daemon
            .sessions
            .stop_process(&id("s"), &ProcessId::default()),
    )
    .await
    .expect_err("never there");
    assert_eq!(error.to_string(), "session s has no managed process");
}

#[tokio::test]
async fn a_stop_kills_a_process_that_ignores_sigterm() {
    let daemon = daemon_with(|settings| settings.stop_grace = Duration::from_millis(200));
    with_session(&daemon).await;
    let nap = unique_nap();
    let text = format!("trap '' TERM; (setsid sleep {nap} &); while true; do sleep 0.02; done");
    start(&daemon, "p", &text, Replace::Refuse)
        .await
        .expect("started");
    eventually("the child", || is_asleep(&nap)).await;
    let ended = in_time(daemon.sessions.stop_process(&id("s"), &process_id("p")))
        .await
        .expect("stopped");
    assert_eq!(ended.exit_code, Some(128 + 9));
    assert_eq!(ended.reason, Some(Reason::Cancelled));
    assert!(!is_running(&nap));
}

#[tokio::test]
async fn a_process_that_exits_at_end_of_file_gets_no_signal() {
    let daemon = daemon();
    with_session(&daemon).await;
    let text = "trap '' TERM; cat; echo eof >&2; exit 5";
    start(&daemon, "p", text, Replace::Refuse)
        .await
        .expect("started");
    let ended = in_time(daemon.sessions.stop_process(&id("s"), &process_id("p")))
        .await
        .expect("stopped");
    assert_eq!(ended.status, ProcessStatus::Exited);
    assert!(ended.exit_code.is_some());
}

#[tokio::test]
async fn a_signal_reaches_a_process() {
    let daemon = daemon();
    with_session(&daemon).await;
    start(
        &daemon,
        "p",
        "trap 'exit 42' USR1; echo ready >&2; while true; do sleep 0.02; done",
        Replace::Refuse,
    )
    .await
    .expect("started");
    let process = process_id("p");
    until_ready(&daemon, "p").await;
    in_time(daemon.sessions.signal_process(&id("s"), &process, 10))
        .await
        .expect("sent");
    assert_eq!(until_exited(&daemon, "p").await.exit_code, Some(42));
    let error = in_time(daemon.sessions.signal_process(&id("s"), &process, 10))
        .await
        .expect_err("ended");
    assert_eq!(
        error.to_string(),
        "managed process p in session s is not running"
    );
}

#[tokio::test]
async fn the_number_of_running_processes_is_limited() {
    let daemon = daemon_with(|settings| settings.max_processes = 2);
    with_session(&daemon).await;
    for name in ["a", "b"] {
        start(&daemon, name, "sleep 100", Replace::Refuse)
            .await
            .expect("there is room");
    }
    let error = start(&daemon, "c", "true", Replace::Refuse)
        .await
        .expect_err("it is full");
    assert_eq!(error.code(), ErrorCode::Capacity);
    assert!(daemon.sessions.process(&id("s"), &process_id("c")).is_err());
    // A replacement uses the permit of the process it replaces.
    start(&daemon, "a", "true", Replace::Running)
        .await
        .expect("there is room for it");
    until_exited(&daemon, "a").await;
    start(&daemon, "c", "true", Replace::Refuse)
        .await
        .expect("there is room again");
}

#[tokio::test]
async fn the_number_of_kept_ended_processes_is_limited() {
    let daemon = daemon();
    with_session(&daemon).await;
    for number in 0..40 {
        let name = format!("p{number}");
        start(&daemon, &name, "true", Replace::Refuse)
            .await
            .expect("started");
        until_exited(&daemon, &name).await;
    }
    let kept = daemon.sessions.processes(&id("s")).expect("there");
    assert!(kept.len() <= 33);
    assert!(
        daemon
            .sessions
            .process(&id("s"), &process_id("p39"))
            .is_ok()
    );
    assert!(
        daemon
            .sessions
            .process(&id("s"), &process_id("p0"))
            .is_err()
    );
}

#[tokio::test]
async fn the_process_default_has_a_field_of_its_own() {
    let daemon = daemon();
    with_session(&daemon).await;
    let detail = daemon.sessions.detail(&id("s")).expect("there");
    assert!(detail.managed_processes.is_empty() && detail.managed_process.is_none());
    start(&daemon, "other", "sleep 100", Replace::Refuse)
        .await
        .expect("started");
    let detail = daemon.sessions.detail(&id("s")).expect("there");
    assert!(detail.managed_process.is_none());
    start(&daemon, "default", "sleep 100", Replace::Refuse)
        .await
        .expect("started");
    let detail = daemon.sessions.detail(&id("s")).expect("there");
    assert_eq!(detail.managed_processes.len(), 2);
    assert!(detail.managed_process.is_some());
}

#[tokio::test]
async fn an_invalid_process_spec_is_refused() {
    let daemon = daemon();
    with_session(&daemon).await;
    let check = async |change: &dyn Fn(&mut boxwood_api::ProcessSpec), text: &str| {
        let mut spec = script("p", "true");
        change(&mut spec);
        let error = in_time(
            daemon
                .sessions
                .start_process(&id("s"), spec, Replace::Refuse),
        )
        .await
        .expect_err("refused");
        assert_eq!(error.code(), ErrorCode::ValidationError);
        assert!(error.to_string().contains(text), "{error}");
    };
    check(
        &|spec| spec.command = " ".to_owned(),
        "command must not be empty",
    )
    .await;
    check(
        &|spec| spec.cwd = "x".to_owned(),
        "cwd must be an absolute path",
    )
    .await;
    check(&|spec| spec.args.push("a\0b".to_owned()), "NUL").await;
    check(
        &|spec| {
            spec.env.insert("A=B".to_owned(), String::new());
        },
        "env names",
    )
    .await;
}
