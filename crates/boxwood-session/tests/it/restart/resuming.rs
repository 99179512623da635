//! Resuming process output, streamed commands and results, also after the daemon was killed.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{
    ErrorCode, EventKind, ExecExit, ExecState, ExecStatus, ProcessId, ProcessStatus, Reason,
};
use boxwood_ledger::Ledger;
use boxwood_session::{
    Attachment, Backends, ExecEvent, Replace, Resume, Sessions, Settings, ShutdownBoxes, Since,
    Stdio, StreamedExec,
};
use boxwood_test_support::FakeHost;

use crate::{daemon, daemon_with, eventually, id, in_time, request, request_with, script};

/// The next daemon on the same host. It has an empty ledger, because the boxes themselves are enough to adopt them.
async fn next_daemon(host: &Arc<FakeHost>) -> Sessions {
    let backends = Backends::only(host.backend() as _);
    let recovering = Sessions::recover(backends, Settings::default(), Ledger::in_memory());
    in_time(recovering).await.0
}

async fn with_process(sessions: &Sessions, words: &str) {
    in_time(sessions.get_or_create(request("s", "").spec))
        .await
        .expect("a session");
    let mut spec = script("default", "");
    "@".clone_into(&mut spec.command);
    spec.args = vec![words.to_owned()];
    in_time(sessions.start_process(&id("s"), spec, Replace::Refuse))
        .await
        .expect("started");
}

async fn attach_at(sessions: &Sessions, since: Since) -> Attachment {
    let attachable = sessions
        .check_attachable_at(&id("s"), &ProcessId::default(), since)
        .expect("attachable");
    in_time(attachable.attach_at(since))
        .await
        .expect("attached")
}

/// Reads `length` bytes. Returns their offset and text.
async fn read(attachment: &Attachment, length: usize) -> (u64, String) {
    let mut received = Vec::new();
    let mut began = None;
    while received.len() < length {
        let next = in_time(attachment.next_bytes(length - received.len())).await;
        let (offset, bytes) = next.expect("more of it");
        let first = *began.get_or_insert(offset);
        assert_eq!(offset, first + received.len() as u64, "nothing between");
        received.extend_from_slice(&bytes);
    }
    let text = String::from_utf8(received).expect("text");
    (began.unwrap_or_default(), text)
}

#[tokio::test]
async fn a_relay_continues_after_a_killed_daemon_without_a_lost_or_repeated_byte() {
    let host = FakeHost::new();
    let first = next_daemon(&host).await;
    with_process(&first, "name p; echo").await;
    let attachment = attach_at(&first, Since::Now).await;
    assert_eq!(attachment.stdout_offset(), 0);
    let accepted = in_time(attachment.accept(b"hello\n")).await.expect("safe");
    assert_eq!(accepted, 6);
    assert_eq!(read(&attachment, 6).await, (0, "hello\n".to_owned()));
    let started_at = attachment.started_at();
    host.crash();
    let second = next_daemon(&host).await;
    // The client has seen three bytes of it.
    let attachment = attach_at(&second, Since::Offset(3)).await;
    assert_eq!(attachment.started_at(), started_at);
    assert_eq!(attachment.stdin_accepted(), 6);
    in_time(attachment.accept(b"again\n")).await.expect("safe");
    assert_eq!(read(&attachment, 9).await, (3, "lo\nagain\n".to_owned()));
    let logs = second.logs(&id("s"), &ProcessId::default()).expect("logs");
    assert_eq!(logs.stdout, "hello\nagain\n");
    let left = host.box_of(&id("s")).expect("its box lives");
    assert!(left.end_program("p", 9));
    assert!(in_time(attachment.next_bytes(1)).await.is_none());
    assert_eq!(in_time(attachment.exited()).await.exit_code, Some(9));
    // Output of an ended process can be read again.
    drop(attachment);
    let attachment = attach_at(&second, Since::Offset(9)).await;
    assert_eq!(read(&attachment, 3).await, (9, "in\n".to_owned()));
}

#[tokio::test]
async fn closed_input_ends_after_the_accepted_bytes() {
    let daemon = daemon();
    let sessions = &daemon.sessions;
    in_time(sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("a session");
    in_time(sessions.start_process(&id("s"), script("default", "cat"), Replace::Refuse))
        .await
        .expect("started");
    let attachment = attach_at(sessions, Since::Now).await;
    let message = "0123456789".repeat(50_000);
    let accepted = in_time(attachment.accept(message.as_bytes())).await;
    assert_eq!(accepted.expect("safe"), 500_000);
    attachment.close_stdin();
    assert!(in_time(attachment.accept(b"late")).await.is_err());
    assert!(read(&attachment, 500_000).await.1 == message);
    assert!(in_time(attachment.next_bytes(1)).await.is_none());
    assert_eq!(in_time(attachment.exited()).await.exit_code, Some(0));
}

#[tokio::test]
async fn a_client_of_lines_gets_the_last_one_again_after_a_crash() {
    let host = FakeHost::new();
    let first = next_daemon(&host).await;
    with_process(&first, "name p; say one; say two; say three; stay").await;
    let attach = async |sessions: &Sessions| {
        let attachable = sessions.check_attachable(&id("s"), &ProcessId::default());
        in_time(attachable.expect("attachable").attach())
            .await
            .expect("attached")
    };
    let attachment = attach(&first).await;
    assert_eq!(in_time(attachment.next_line()).await, Some(b"one".to_vec()));
    assert_eq!(in_time(attachment.next_line()).await, Some(b"two".to_vec()));
    host.crash();
    let second = next_daemon(&host).await;
    let attachment = attach(&second).await;
    assert_eq!(in_time(attachment.next_line()).await, Some(b"two".to_vec()));
    assert_eq!(
        in_time(attachment.next_line()).await,
        Some(b"three".to_vec())
    );
}

#[tokio::test]
async fn an_unobserved_exit_is_reported_once() {
    let host = FakeHost::new();
    let first = next_daemon(&host).await;
    with_process(&first, "name p; say out; moan wrong; stay").await;
    let process = ProcessId::default();
    let before = first.process(&id("s"), &process).expect("there");
    eventually("its last words", || {
        let info = first.process(&id("s"), &process).expect("there");
        info.stderr_preview == "wrong"
    })
    .await;
    host.crash();
    let left = host.box_of(&id("s")).expect("its box lives");
    assert!(left.end_program("p", 7));
    let second = next_daemon(&host).await;
    let mut events = second.events();
    eventually("the end", || {
        let info = second.process(&id("s"), &process).expect("there");
        info.status == ProcessStatus::Exited
    })
    .await;
    let info = second.process(&id("s"), &process).expect("there");
    assert_eq!(
        (info.exit_code, info.started_at),
        (Some(7), before.started_at)
    );
    assert_eq!(info.stderr_preview, "wrong");
    assert_eq!(second.workload().running_processes, 0);
    let event = in_time(events.recv()).await.map(|event| event.kind);
    assert!(matches!(
        event,
        Ok(EventKind::ProcessExited {
            exit_code: Some(7),
            ..
        })
    ));
    host.crash();
    let third = next_daemon(&host).await;
    let mut events = third.events();
    let recovered = third.process(&id("s"), &process).expect("there");
    assert_eq!(recovered.exited_at, info.exited_at);
    assert_eq!(recovered.exit_code, Some(7));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(events.try_recv().is_err(), "an event was repeated");
}

#[tokio::test]
async fn replay_is_limited() {
    let daemon = daemon_with(|settings| settings.replay.bytes = 100_000);
    let (sessions, process) = (&daemon.sessions, ProcessId::default());
    in_time(sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("a session");
    let text = "head -c 400000 /dev/zero; sleep 1000";
    in_time(sessions.start_process(&id("s"), script("default", text), Replace::Refuse))
        .await
        .expect("started");
    let attachment = attach_at(sessions, Since::Offset(0)).await;
    assert_eq!(read(&attachment, 400_000).await.0, 0);
    let refused = |since| {
        sessions
            .check_attachable_at(&id("s"), &process, Since::Offset(since))
            .err()
            .expect("refused")
            .code()
    };
    assert_eq!(refused(0), ErrorCode::ReplayGone);
    assert_eq!(refused(400_001), ErrorCode::ValidationError);
    drop(attachment);
    let attachment = attach_at(sessions, Since::Offset(310_000)).await;
    assert_eq!(read(&attachment, 90_000).await.0, 310_000);
}

async fn hear_all(exec: &StreamedExec) -> (String, ExecExit) {
    let mut stdout = Vec::new();
    loop {
        match in_time(exec.next()).await.expect("an end") {
            ExecEvent::Stdout(bytes) => stdout.extend_from_slice(&bytes),
            ExecEvent::Stderr(_) => {}
            ExecEvent::Exited(exited) => {
                return (String::from_utf8_lossy(&stdout).into_owned(), exited);
            }
        }
    }
}

async fn streamed(sessions: &Sessions, cmd: &str, resume: Resume) -> StreamedExec {
    in_time(sessions.stream(request("s", cmd), Stdio::Pipes, resume))
        .await
        .expect("it starts")
}

#[tokio::test]
async fn a_command_runs_on_when_a_detaching_daemon_disconnects_its_client() {
    let host = FakeHost::new();
    let first = next_daemon(&host).await;
    let live = streamed(&first, "@ name p; echo", Resume::Never).await;
    let exec_id = live.exec_id();
    first.begin_shutdown(ShutdownBoxes::Keep);
    // As when its socket is closed: elsewhere this kills the command.
    drop(live);
    in_time(first.shutdown(ShutdownBoxes::Keep)).await;
    let second = next_daemon(&host).await;
    let detail = second.exec_detail(&id("s"), exec_id).expect("it is known");
    assert_eq!(detail.info.state, ExecState::Running);
    let exec = resumed(&second, exec_id, 0);
    in_time(exec.accept_stdin(b"still here\n"))
        .await
        .expect("safe");
    let event = in_time(exec.next()).await;
    assert_eq!(event, Some(ExecEvent::Stdout("still here\n".into())));
}

#[tokio::test]
async fn a_detaching_daemon_refuses_to_kill_and_resume() {
    let host = FakeHost::new();
    let first = next_daemon(&host).await;
    let live = streamed(&first, "@ name p; echo", Resume::Allowed).await;
    let exec_id = live.exec_id();
    first.begin_shutdown(ShutdownBoxes::Keep);
    let killed = in_time(first.kill_exec(&id("s"), exec_id)).await;
    let error = killed.expect_err("it is another daemon's to kill");
    assert_eq!(error.code(), ErrorCode::BackendUnavailable, "{error}");
    let outcome = first.resume_exec(&id("s"), exec_id, Since::Now, Since::Now);
    let error = outcome.err().expect("it is another daemon's to follow");
    assert_eq!(error.code(), ErrorCode::BackendUnavailable, "{error}");
    drop(live);
    in_time(first.shutdown(ShutdownBoxes::Keep)).await;
    let second = next_daemon(&host).await;
    in_time(second.kill_exec(&id("s"), exec_id))
        .await
        .expect("there it is killed");
}

fn resumed(sessions: &Sessions, exec_id: u64, stdout: u64) -> StreamedExec {
    let since = Since::Offset(stdout);
    sessions
        .resume_exec(&id("s"), exec_id, since, Since::Now)
        .expect("it can be followed again")
}

#[tokio::test]
async fn a_resumable_command_waits_for_its_client() {
    let daemon = daemon();
    let cmd = "echo one; read line; echo got $line; exit 3";
    let live = streamed(&daemon.sessions, cmd, Resume::Allowed).await;
    let exec_id = live.exec_id();
    let exec = live;
    let first = in_time(exec.next()).await;
    assert_eq!(first, Some(ExecEvent::Stdout("one\n".into())));
    drop(exec);
    eventually("its loss is noticed", || {
        let execs = daemon.sessions.execs(&id("s")).expect("there");
        execs.len() == 1 && !execs[0].attached && execs[0].resumable
    })
    .await;
    let live = resumed(&daemon.sessions, exec_id, 2);
    assert_eq!((live.stdout_offset(), live.stdin_accepted()), (2, Some(0)));
    let exec = live;
    assert_eq!(
        in_time(exec.accept_stdin(b"this\n")).await.expect("safe"),
        5
    );
    let (stdout, exited) = hear_all(&exec).await;
    assert_eq!(stdout, "e\ngot this\n");
    assert!(matches!(
        exited,
        ExecExit {
            exit_code: Some(3),
            ..
        }
    ));
    // It is kept after the end.
    let detail = daemon
        .sessions
        .exec_detail(&id("s"), exec_id)
        .expect("there");
    assert_eq!(detail.info.state, ExecState::Ended);
    assert_eq!(detail.result.expect("a result").stdout, "one\ngot this\n");
    let exec = resumed(&daemon.sessions, exec_id, 0);
    assert_eq!(hear_all(&exec).await.0, "one\ngot this\n");
}

#[tokio::test]
async fn a_second_client_replaces_the_first() {
    let daemon = daemon();
    let live = streamed(&daemon.sessions, "echo one; read line", Resume::Allowed).await;
    let exec_id = live.exec_id();
    let first = live;
    assert!(in_time(first.next()).await.is_some());
    let second = resumed(&daemon.sessions, exec_id, 0);
    assert_eq!(in_time(first.next()).await, None, "no end is told to it");
    in_time(second.write_stdin(b"x\n")).await.expect("taken");
    assert_eq!(hear_all(&second).await.0, "one\n");
}

#[tokio::test]
async fn a_resumable_command_is_killed_if_no_client_returns() {
    let daemon = daemon_with(|settings| {
        settings.replay.resume_grace = Duration::from_millis(200);
    });
    let live = streamed(&daemon.sessions, "sleep 1000", Resume::Allowed).await;
    let exec_id = live.exec_id();
    drop(live);
    eventually("its end", || {
        let detail = daemon.sessions.exec_detail(&id("s"), exec_id);
        detail.is_ok_and(|detail| detail.info.state == ExecState::Ended)
    })
    .await;
    let detail = daemon
        .sessions
        .exec_detail(&id("s"), exec_id)
        .expect("there");
    let result = detail.result.expect("a result");
    assert_eq!(result.reason, Some(Reason::Cancelled));
}

#[tokio::test]
async fn resuming_fails_for_commands_that_are_not_resumable() {
    let daemon = daemon();
    let live = streamed(&daemon.sessions, "sleep 1000", Resume::Never).await;
    let error = |exec_id| {
        daemon
            .sessions
            .resume_exec(&id("s"), exec_id, Since::Now, Since::Now)
            .err()
            .expect("refused")
            .code()
    };
    assert_eq!(error(live.exec_id()), ErrorCode::ValidationError);
    assert_eq!(error(1), ErrorCode::NotFound);
}

#[tokio::test]
async fn a_running_command_can_be_killed_by_others() {
    let daemon = daemon();
    let sessions = daemon.sessions.clone();
    let running = tokio::spawn(async move { sessions.exec(request("s", "sleep 1000")).await });
    eventually("the command", || {
        daemon
            .sessions
            .execs(&id("s"))
            .is_ok_and(|execs| execs.len() == 1)
    })
    .await;
    let exec = daemon.sessions.execs(&id("s")).expect("there").remove(0);
    assert_eq!(exec.command, "sleep 1000");
    in_time(daemon.sessions.kill_exec(&id("s"), exec.exec_id))
        .await
        .expect("killed");
    let result = in_time(running).await.expect("no panic").expect("a result");
    assert_eq!(result.reason, Some(Reason::Cancelled));
    assert!(daemon.sessions.execs(&id("s")).expect("there").is_empty());
}

#[tokio::test]
async fn a_streamed_command_is_adopted_by_the_next_daemon() {
    let host = FakeHost::new();
    let first = next_daemon(&host).await;
    let live = streamed(&first, "@ name x; say hello; moan oh; echo", Resume::Never).await;
    let exec_id = live.exec_id();
    let exec = live;
    in_time(exec.write_stdin(b"one\n")).await.expect("taken");
    let mut received = 0;
    while received < 10 {
        if let Some(ExecEvent::Stdout(bytes)) = in_time(exec.next()).await {
            received += bytes.len();
        }
    }
    host.crash();
    let second = next_daemon(&host).await;
    let execs = second.execs(&id("s")).expect("there");
    assert!(execs.len() == 1 && execs[0].adopted && !execs[0].attached);
    let live = resumed(&second, exec_id, 3);
    assert_eq!(live.stdin_accepted(), Some(4));
    let exec = live;
    in_time(exec.write_stdin(b"two\n")).await.expect("taken");
    eventually("its echo", || {
        let execs = second.execs(&id("s")).expect("there");
        execs[0].stdout_bytes == 14
    })
    .await;
    let left = host.box_of(&id("s")).expect("its box lives");
    assert!(left.end_program("x", 4));
    let (stdout, exited) = hear_all(&exec).await;
    assert_eq!(stdout, "lo\none\ntwo\n");
    assert!(matches!(
        exited,
        ExecExit {
            exit_code: Some(4),
            ..
        }
    ));
    // The daemon after that knows the same result.
    host.crash();
    let third = next_daemon(&host).await;
    let ended = || {
        let detail = third.exec_detail(&id("s"), exec_id).ok()?;
        detail.result
    };
    eventually("its result", || ended().is_some()).await;
    let result = ended().expect("a result");
    assert_eq!(
        (result.exit_code, result.stderr.as_str()),
        (Some(4), "oh\n")
    );
    assert_eq!(result.stdout, "hello\none\ntwo\n");
    let new = streamed(&third, "@ say new", Resume::Never).await;
    assert!(new.exec_id() > exec_id, "an exec id was reused");
}

#[tokio::test]
async fn an_adopted_captured_command_keeps_output_input_and_deadline() {
    let host = FakeHost::new();
    let first = next_daemon(&host).await;
    let input = "line\n".repeat(40_000);
    let stdin = input.clone();
    let admission = request_with("s", "@ name in; echo; stay", |spec| {
        spec.stdin = Some(stdin);
        spec.timeout_sec = Some(500);
    });
    let sessions = first.clone();
    let fed = tokio::spawn(async move { sessions.exec(admission).await });
    eventually("its output", || {
        first
            .execs(&id("s"))
            .is_ok_and(|execs| execs.len() == 1 && execs[0].stdout_bytes > 0)
    })
    .await;
    let slow = request_with("s", "@ name slow; say begun; stay", |spec| {
        spec.timeout_sec = Some(6);
    });
    let sessions = first.clone();
    let timed = tokio::spawn(async move { sessions.exec(slow).await });
    eventually("the other one's output", || {
        let execs = first.execs(&id("s")).expect("there");
        execs.len() == 2 && execs.iter().all(|exec| exec.stdout_bytes > 0)
    })
    .await;
    host.crash();
    fed.abort();
    timed.abort();
    let second = next_daemon(&host).await;
    let result_of = |command: &str| {
        let execs = second.execs(&id("s")).expect("there");
        let exec = execs.iter().find(|exec| exec.command.contains(command))?;
        let detail = second.exec_detail(&id("s"), exec.exec_id).ok()?;
        detail.result
    };
    eventually("the deadline", || result_of("slow").is_some()).await;
    let slow = result_of("slow").expect("a result");
    assert_eq!(slow.status, ExecStatus::TimedOut);
    assert_eq!(slow.stdout, "begun\n");
    eventually("all of its input", || {
        let execs = second.execs(&id("s")).expect("there");
        execs.iter().any(|exec| exec.stdout_bytes == 200_000)
    })
    .await;
    let left = host.box_of(&id("s")).expect("its box lives");
    assert!(left.end_program("in", 5));
    eventually("the other one's end", || result_of("name in").is_some()).await;
    let result = result_of("name in").expect("a result");
    assert_eq!(result.exit_code, Some(5));
    assert!(result.stdout == input, "output was lost or repeated");
    assert!(result.notices[0].contains("timeout_sec was shortened"));
    let execs = second.execs(&id("s")).expect("there");
    let mut ends = execs.into_iter().filter_map(|exec| exec.exit);
    assert!(ends.any(|exit| exit.notices == result.notices));
}
