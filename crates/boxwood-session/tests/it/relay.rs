//! Input and output of managed processes: attachments, lines, change of clients.

use boxwood_api::{ErrorCode, ProcessId, ProcessStatus};
use boxwood_session::{Attachment, Replace, SessionError};
use futures_util::FutureExt as _;

use super::{TestDaemon, daemon, eventually, id, in_time, request, script};

async fn with_process(text: &str) -> TestDaemon {
    let daemon = daemon();
    in_time(daemon.sessions.get_or_create(request("s", "true").spec))
        .await
        .expect("a session");
    in_time(
        daemon
            .sessions
            .start_process(&id("s"), script("default", text), Replace::Refuse),
    )
    .await
    .expect("started");
    daemon
}

async fn attach(daemon: &TestDaemon) -> Attachment {
    let attachable = daemon
        .sessions
        .check_attachable(&id("s"), &ProcessId::default())
        .expect("attachable");
    in_time(attachable.attach()).await.expect("attached")
}

async fn line(attachment: &mut Attachment) -> Option<String> {
    let line = in_time(attachment.next_line()).await?;
    Some(String::from_utf8(line).expect("text"))
}

async fn until_exited(daemon: &TestDaemon) {
    eventually("the process's end", || {
        daemon
            .sessions
            .process(&id("s"), &ProcessId::default())
            .is_ok_and(|info| info.status == ProcessStatus::Exited)
    })
    .await;
}

#[tokio::test]
async fn lines_are_relayed_in_both_directions() {
    let daemon = with_process("cat").await;
    let mut attachment = attach(&daemon).await;
    let before = daemon.sessions.detail(&id("s")).expect("there").session;
    in_time(attachment.send(b"one\n\ntwo\n"))
        .await
        .expect("taken");
    assert_eq!(line(&mut attachment).await.as_deref(), Some("one"));
    assert_eq!(line(&mut attachment).await.as_deref(), Some(""));
    assert_eq!(line(&mut attachment).await.as_deref(), Some("two"));
    let detail = daemon.sessions.detail(&id("s")).expect("there");
    assert!(detail.session.last_used_at > before.last_used_at);
    assert!(detail.managed_process.is_some_and(|info| info.attached));
    drop(attachment);
    let info = daemon
        .sessions
        .process(&id("s"), &ProcessId::default())
        .expect("there");
    assert!(!info.attached);
    assert_eq!(info.status, ProcessStatus::Running);
}

#[tokio::test]
async fn clients_are_attached_in_order() {
    let daemon = with_process("cat").await;
    let process = ProcessId::default();
    let come = || daemon.sessions.check_attachable(&id("s"), &process);
    let [first, second, third] = [(), (), ()].map(|()| come().expect("attachable"));
    // The order is that of the requests, not of the connections.
    let mut third = Box::pin(third.attach());
    let mut second = Box::pin(second.attach());
    assert!((&mut third).now_or_never().is_none());
    assert!((&mut second).now_or_never().is_none());
    let first = in_time(first.attach()).await.expect("attached");
    drop(first);
    assert!((&mut third).now_or_never().is_none());
    let second = in_time(second).await.expect("attached");
    drop(second);
    in_time(third).await.expect("attached");
    // A client that disconnected before does not block the next.
    drop(come().expect("attachable"));
    attach(&daemon).await;
}

#[tokio::test]
async fn no_line_is_lost_or_repeated_when_clients_change() {
    let daemon = with_process("i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done").await;
    let mut received = Vec::new();
    let mut ended = false;
    while !ended {
        let mut attachment = attach(&daemon).await;
        for _ in 0..37 {
            // Half of the reads are given up, and some lines are given back.
            {
                let next = attachment.next_line();
                let mut next = std::pin::pin!(next);
                if let std::task::Poll::Ready(outcome) = futures_util::poll!(next.as_mut()) {
                    match outcome {
                        Some(line) => received.push(String::from_utf8(line).expect("text")),
                        None => ended = true,
                    }
                    continue;
                }
            }
            match line(&mut attachment).await {
                Some(text) if text.ends_with('3') && received.last() != Some(&text) => {
                    attachment.put_back();
                    assert_eq!(line(&mut attachment).await, Some(text.clone()));
                    received.push(text);
                }
                Some(text) => received.push(text),
                None => ended = true,
            }
            if ended {
                break;
            }
        }
        if !ended && received.len() == 2000 {
            assert_eq!(line(&mut attachment).await, None);
            ended = true;
        }
    }
    let expected: Vec<_> = (0..2000).map(|number| number.to_string()).collect();
    assert_eq!(received, expected);
}

#[tokio::test]
async fn a_second_client_waits() {
    let daemon = with_process("cat").await;
    let mut first = attach(&daemon).await;
    let second = daemon
        .sessions
        .check_attachable(&id("s"), &ProcessId::default())
        .expect("it is not refused");
    let waiting = tokio::spawn(second.attach());
    in_time(first.send(b"a\nb\n")).await.expect("taken");
    assert_eq!(line(&mut first).await.as_deref(), Some("a"));
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(first);
    let mut second = in_time(waiting).await.expect("no panic").expect("its turn");
    assert_eq!(line(&mut second).await.as_deref(), Some("b"));
}

#[tokio::test]
async fn waiting_clients_get_an_error_when_the_process_is_stopped() {
    let daemon = with_process("cat").await;
    let mut first = attach(&daemon).await;
    let second = daemon
        .sessions
        .check_attachable(&id("s"), &ProcessId::default())
        .expect("attachable");
    let waiting = tokio::spawn(second.attach());
    in_time(first.send(b"last\n")).await.expect("taken");
    eventually("the line", || {
        daemon
            .sessions
            .logs(&id("s"), &ProcessId::default())
            .is_ok_and(|logs| !logs.stdout.is_empty())
    })
    .await;
    in_time(
        daemon
            .sessions
            .stop_process(&id("s"), &ProcessId::default()),
    )
    .await
    .expect("stopped");
    let outcome = in_time(waiting).await.expect("no panic");
    assert!(matches!(
        outcome.err(),
        Some(SessionError::ProcessReplaced { .. })
    ));
    // The one who was attached gets everything, then the end.
    assert_eq!(line(&mut first).await.as_deref(), Some("last"));
    assert_eq!(line(&mut first).await, None);
    assert!(in_time(first.send(b"x\n")).await.is_err());
}

#[tokio::test]
async fn replacing_a_process_ends_the_old_attachment() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = directory.path().join("written");
    let daemon = with_process(&format!("echo old; : > {}; cat", written.display())).await;
    let mut old = attach(&daemon).await;
    eventually("the old process has written", || written.exists()).await;
    in_time(daemon.sessions.start_process(
        &id("s"),
        script("default", "echo new; cat"),
        Replace::Running,
    ))
    .await
    .expect("started");
    let mut new = attach(&daemon).await;
    assert_eq!(line(&mut new).await.as_deref(), Some("new"));
    assert_eq!(line(&mut old).await.as_deref(), Some("old"));
    assert_eq!(line(&mut old).await, None);
}

#[tokio::test]
async fn the_output_of_a_process_that_closes_stdout_ends_while_it_runs() {
    let daemon = with_process("echo one; exec >&-; sleep 100").await;
    let mut attachment = attach(&daemon).await;
    assert_eq!(line(&mut attachment).await.as_deref(), Some("one"));
    assert_eq!(line(&mut attachment).await, None);
    let exited = attachment.exited().now_or_never();
    assert!(exited.is_none(), "{exited:?}");
}

#[tokio::test]
async fn output_is_kept_for_the_first_client_after_the_exit() {
    let daemon = with_process("echo one; echo two; printf three").await;
    until_exited(&daemon).await;
    let mut attachment = attach(&daemon).await;
    for expected in ["one", "two", "three"] {
        assert_eq!(line(&mut attachment).await.as_deref(), Some(expected));
    }
    assert_eq!(line(&mut attachment).await, None);
    drop(attachment);
    let error = daemon
        .sessions
        .check_attachable(&id("s"), &ProcessId::default())
        .err()
        .expect("nothing left");
    assert_eq!(
        error.to_string(),
        "managed process in session s is not running"
    );
    assert_eq!(error.code(), ErrorCode::ManagedProcessConflict);
}

#[tokio::test]
async fn a_line_of_ten_mebibytes_is_one_line() {
    let daemon =
        with_process("head -c 10485760 /dev/zero | tr '\\0' x; echo; echo short; sleep 100").await;
    let mut attachment = attach(&daemon).await;
    let long = line(&mut attachment).await.expect("the long line");
    assert_eq!(long.len(), 10 * 1024 * 1024);
    assert!(long.bytes().all(|byte| byte == b'x'));
    assert_eq!(line(&mut attachment).await.as_deref(), Some("short"));
}

#[tokio::test]
async fn a_process_with_unread_output_waits_and_loses_nothing() {
    let daemon = with_process(
        "i=0; while [ $i -lt 400000 ]; do echo 0123456789; i=$((i+1)); done; echo done >&2",
    )
    .await;
    // Without a client, the queue and the pipe fill and the process waits.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let info = daemon
        .sessions
        .process(&id("s"), &ProcessId::default())
        .expect("there");
    assert_eq!(info.status, ProcessStatus::Running);
    let mut attachment = attach(&daemon).await;
    let mut lines = 0;
    while let Some(text) = line(&mut attachment).await {
        assert_eq!(text, "0123456789");
        lines += 1;
    }
    assert_eq!(lines, 400_000);
    until_exited(&daemon).await;
}

#[tokio::test]
async fn a_long_stderr_line_does_not_block() {
    let daemon = with_process(
        "head -c 5000000 /dev/zero | tr '\\0' e >&2; echo >&2; echo fine >&2; echo out",
    )
    .await;
    until_exited(&daemon).await;
    let info = daemon
        .sessions
        .process(&id("s"), &ProcessId::default())
        .expect("there");
    assert_eq!(info.exit_code, Some(0));
    assert!(info.stderr_preview.ends_with("fine"));
    assert!(info.stderr_preview.chars().count() <= 4000);
    let mut attachment = attach(&daemon).await;
    assert_eq!(line(&mut attachment).await.as_deref(), Some("out"));
}

#[tokio::test]
async fn a_process_that_does_not_read_blocks_only_its_sender() {
    let daemon = with_process("sleep 100").await;
    let attachment = attach(&daemon).await;
    let sent = {
        let message = vec![b'x'; 1_000_000];
        let sending = attachment.send(&message);
        tokio::time::timeout(std::time::Duration::from_millis(200), sending).await
    };
    assert!(sent.is_err(), "the pipe is full");
    in_time(
        daemon
            .sessions
            .stop_process(&id("s"), &ProcessId::default()),
    )
    .await
    .expect("stopped all the same");
}

#[tokio::test]
async fn attaching_to_a_missing_process_fails() {
    let daemon = with_process("cat").await;
    let missing = |session: &str, process: &str| {
        daemon
            .sessions
            .check_attachable(&id(session), &super::process_id(process))
            .err()
            .expect("missing")
            .code()
    };
    assert_eq!(missing("other", "default"), ErrorCode::SessionNotFound);
    assert_eq!(missing("s", "other"), ErrorCode::ManagedProcessNotFound);
}
