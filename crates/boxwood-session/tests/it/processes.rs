//! Managed processes: their lives, without talking to them.

use std::time::Duration;

use boxwood_api::{ErrorCode, ProcessId, ProcessStatus, Reason};
use boxwood_session::{LogStream, Replace};

use super::{
    House, asked, eventually, house, house_with, id, in_time, is_asleep, is_running, process_id,
    script, unique_nap,
};

async fn with_session(house: &House) {
    in_time(house.sessions.get_or_create(asked("s", "true").spec))
        .await
        .expect("a session");
}

async fn start(
    house: &House,
    process: &str,
    text: &str,
    replace: Replace,
) -> Result<boxwood_api::ProcessInfo, boxwood_session::SessionError> {
    in_time(
        house
            .sessions
            .start_process(&id("s"), script(process, text), replace),
    )
    .await
}

async fn until_exited(house: &House, process: &str) -> boxwood_api::ProcessInfo {
    let process = process_id(process);
    let exited = || {
        house
            .sessions
            .process(&id("s"), &process)
            .is_ok_and(|info| info.status == ProcessStatus::Exited)
    };
    eventually("the process's end", exited).await;
    house.sessions.process(&id("s"), &process).expect("kept")
}

/// The process has said `ready` on stderr: its traps are set.
async fn until_ready(house: &House, process: &str) {
    let process = process_id(process);
    eventually("a word of the process", || {
        house
            .sessions
            .process(&id("s"), &process)
            .is_ok_and(|info| info.stderr_preview.contains("ready"))
    })
    .await;
}

#[tokio::test]
async fn a_process_needs_a_session() {
    let house = house();
    let error = start(&house, "default", "true", Replace::Refuse)
        .await
        .expect_err("no session");
    assert_eq!(error.to_string(), "session s not found");
    assert_eq!(house.backend.starts(), 0);
}

#[tokio::test]
async fn code_time_and_last_words_of_an_ended_process_are_kept() {
    let house = house();
    with_session(&house).await;
    let mut spec = script("p", "echo out; echo '  wrong  ' >&2; echo >&2; exit 4");
    spec.env.insert("SECRET".to_owned(), "value".to_owned());
    spec.env.insert("ALSO".to_owned(), "value".to_owned());
    let info = in_time(
        house
            .sessions
            .start_process(&id("s"), spec, Replace::Refuse),
    )
    .await
    .expect("started");
    assert_eq!(info.env_keys, ["ALSO", "SECRET"]);
    assert_eq!(info.command, "sh");
    let ended = until_exited(&house, "p").await;
    assert_eq!(ended.exit_code, Some(4));
    assert!(ended.exited_at.is_some_and(|at| at >= ended.started_at));
    assert_eq!(ended.reason, None);
    assert_eq!(ended.stderr_preview, "  wrong");
    let logs = house
        .sessions
        .logs(&id("s"), &process_id("p"))
        .expect("kept");
    assert_eq!(logs.text(LogStream::Stdout), "out\n");
    assert_eq!(logs.text(LogStream::Stderr), "  wrong  \n\n");
    let used = house.sessions.detail(&id("s")).expect("there").session;
    assert!(ended.exited_at.is_some_and(|at| used.last_used_at >= at));
}

#[tokio::test]
async fn a_program_that_is_missing_exits_127() {
    let house = house();
    with_session(&house).await;
    let mut spec = script("p", "");
    spec.command = "no-such-program".to_owned();
    in_time(
        house
            .sessions
            .start_process(&id("s"), spec, Replace::Refuse),
    )
    .await
    .expect("started");
    let ended = until_exited(&house, "p").await;
    assert_eq!(ended.exit_code, Some(127));
    assert!(ended.stderr_preview.contains("no-such-program"));
}

#[tokio::test]
async fn a_running_process_is_replaced_or_left_alone() {
    let house = house();
    with_session(&house).await;
    let (old, new) = (unique_nap(), unique_nap());
    start(&house, "default", &format!("sleep {old}"), Replace::Refuse)
        .await
        .expect("started");
    eventually("the old one", || is_asleep(&old)).await;
    let error = start(&house, "default", "true", Replace::Refuse)
        .await
        .expect_err("one is running");
    assert_eq!(error.to_string(), "session s already has a managed process");
    assert_eq!(error.code(), ErrorCode::ManagedProcessConflict);
    assert!(is_running(&old));
    start(&house, "default", &format!("sleep {new}"), Replace::Running)
        .await
        .expect("started");
    assert!(!is_running(&old));
    eventually("the new one", || is_asleep(&new)).await;
    assert_eq!(house.sessions.processes(&id("s")).expect("there").len(), 1);
    // One that has ended is in nobody's way.
    start(&house, "p2", "true", Replace::Refuse)
        .await
        .expect("started");
    until_exited(&house, "p2").await;
    start(&house, "p2", "sleep 100", Replace::Refuse)
        .await
        .expect("started");
}

#[tokio::test]
async fn many_starts_of_one_id_leave_one_process() {
    let house = house();
    with_session(&house).await;
    let nap = unique_nap();
    let starts: Vec<_> = (0..8)
        .map(|_| {
            let sessions = house.sessions.clone();
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
    assert_eq!(house.sessions.status().managed_processes, 1);
    in_time(house.sessions.stop_process(&id("s"), &process_id("p")))
        .await
        .expect("stopped");
    assert!(!is_running(&nap));
}

#[tokio::test]
async fn a_stop_is_polite_first() {
    let house = house();
    with_session(&house).await;
    let text = "trap 'echo cleaning up >&2; exit 0' TERM; echo ready >&2; \
                while true; do sleep 0.02; done";
    start(&house, "p", text, Replace::Refuse)
        .await
        .expect("started");
    until_ready(&house, "p").await;
    let ended = in_time(house.sessions.stop_process(&id("s"), &process_id("p")))
        .await
        .expect("stopped");
    assert_eq!(ended.status, ProcessStatus::Exited);
    assert_eq!(ended.exit_code, Some(0));
    // The shell may also complain about its `sleep`, which the signal reached as well.
    assert!(ended.stderr_preview.ends_with("\ncleaning up"));
    let error = house
        .sessions
        .process(&id("s"), &process_id("p"))
        .expect_err("forgotten");
    assert_eq!(
        error.to_string(),
        "session s has no managed process with process_id=p"
    );
    let error = in_time(house.sessions.stop_process(&id("s"), &ProcessId::default()))
        .await
        .expect_err("never there");
    assert_eq!(error.to_string(), "session s has no managed process");
}

#[tokio::test]
async fn a_stop_kills_what_ignores_it() {
    let house = house_with(|settings| settings.stop_grace = Duration::from_millis(200));
    with_session(&house).await;
    let nap = unique_nap();
    let text = format!("trap '' TERM; (setsid sleep {nap} &); while true; do sleep 0.02; done");
    start(&house, "p", &text, Replace::Refuse)
        .await
        .expect("started");
    eventually("the child", || is_asleep(&nap)).await;
    let ended = in_time(house.sessions.stop_process(&id("s"), &process_id("p")))
        .await
        .expect("stopped");
    assert_eq!(ended.exit_code, Some(128 + 9));
    assert_eq!(ended.reason, Some(Reason::Cancelled));
    assert!(!is_running(&nap));
}

#[tokio::test]
async fn a_process_that_ends_at_the_end_of_its_input_needs_no_signal() {
    let house = house();
    with_session(&house).await;
    let text = "trap '' TERM; cat; echo eof >&2; exit 5";
    start(&house, "p", text, Replace::Refuse)
        .await
        .expect("started");
    let ended = in_time(house.sessions.stop_process(&id("s"), &process_id("p")))
        .await
        .expect("stopped");
    assert_eq!(ended.status, ProcessStatus::Exited);
    assert!(ended.exit_code.is_some());
}

#[tokio::test]
async fn a_signal_reaches_a_process() {
    let house = house();
    with_session(&house).await;
    start(
        &house,
        "p",
        "trap 'exit 42' USR1; echo ready >&2; while true; do sleep 0.02; done",
        Replace::Refuse,
    )
    .await
    .expect("started");
    let process = process_id("p");
    until_ready(&house, "p").await;
    in_time(house.sessions.signal_process(&id("s"), &process, 10))
        .await
        .expect("sent");
    assert_eq!(until_exited(&house, "p").await.exit_code, Some(42));
    let error = in_time(house.sessions.signal_process(&id("s"), &process, 10))
        .await
        .expect_err("ended");
    assert_eq!(
        error.to_string(),
        "managed process p in session s is not running"
    );
}

#[tokio::test]
async fn the_number_of_running_processes_is_bounded() {
    let house = house_with(|settings| settings.max_processes = 2);
    with_session(&house).await;
    for name in ["a", "b"] {
        start(&house, name, "sleep 100", Replace::Refuse)
            .await
            .expect("there is room");
    }
    let error = start(&house, "c", "true", Replace::Refuse)
        .await
        .expect_err("it is full");
    assert_eq!(error.code(), ErrorCode::Capacity);
    assert!(house.sessions.process(&id("s"), &process_id("c")).is_err());
    // A replacement takes the seat of the one it replaces.
    start(&house, "a", "true", Replace::Running)
        .await
        .expect("there is room for it");
    until_exited(&house, "a").await;
    start(&house, "c", "true", Replace::Refuse)
        .await
        .expect("there is room again");
}

#[tokio::test]
async fn ended_processes_are_not_remembered_for_ever() {
    let house = house();
    with_session(&house).await;
    for number in 0..40 {
        let name = format!("p{number}");
        start(&house, &name, "true", Replace::Refuse)
            .await
            .expect("started");
        until_exited(&house, &name).await;
    }
    let kept = house.sessions.processes(&id("s")).expect("there");
    assert!(kept.len() <= 33);
    assert!(house.sessions.process(&id("s"), &process_id("p39")).is_ok());
    assert!(house.sessions.process(&id("s"), &process_id("p0")).is_err());
}

#[tokio::test]
async fn the_process_called_default_is_shown_apart() {
    let house = house();
    with_session(&house).await;
    let detail = house.sessions.detail(&id("s")).expect("there");
    assert!(detail.managed_processes.is_empty() && detail.managed_process.is_none());
    start(&house, "other", "sleep 100", Replace::Refuse)
        .await
        .expect("started");
    let detail = house.sessions.detail(&id("s")).expect("there");
    assert!(detail.managed_process.is_none());
    start(&house, "default", "sleep 100", Replace::Refuse)
        .await
        .expect("started");
    let detail = house.sessions.detail(&id("s")).expect("there");
    assert_eq!(detail.managed_processes.len(), 2);
    assert!(detail.managed_process.is_some());
}

#[tokio::test]
async fn a_wish_that_makes_no_sense_is_refused() {
    let house = house();
    with_session(&house).await;
    let check = async |change: &dyn Fn(&mut boxwood_api::ProcessSpec), text: &str| {
        let mut spec = script("p", "true");
        change(&mut spec);
        let error = in_time(
            house
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
