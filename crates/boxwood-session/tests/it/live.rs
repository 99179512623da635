//! Commands whose input and output flow while they run.

use boxwood_api::{ErrorCode, ExecExit, ExecStatus, Reason};
use boxwood_session::{ExecEvent, Resume, Stdio, StreamedExec, TerminalSize};

use super::{
    daemon, eventually, id, in_time, is_asleep, is_running, request, request_with, unique_nap,
};

struct Output {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    exited: ExecExit,
}

/// Reads to the end, and checks that `Exited` is the last event.
async fn read_all(exec: &StreamedExec) -> Output {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match in_time(exec.next()).await.expect("an end before the close") {
            ExecEvent::Stdout(bytes) => stdout.extend_from_slice(&bytes),
            ExecEvent::Stderr(bytes) => stderr.extend_from_slice(&bytes),
            ExecEvent::Exited(exited) => {
                assert!(
                    in_time(exec.next()).await.is_none(),
                    "nothing after the end"
                );
                return Output {
                    stdout,
                    stderr,
                    exited,
                };
            }
        }
    }
}

async fn read_until(exec: &StreamedExec, expected: &str) {
    let mut output = String::new();
    while !output.contains(expected) {
        match in_time(exec.next()).await {
            Some(ExecEvent::Stdout(bytes)) => output.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("before `{expected}` came {other:?}, after `{output}`"),
        }
    }
}

#[tokio::test]
async fn input_and_output_are_streamed() {
    let daemon = daemon();
    let cmd = "read a; echo got $a; read b; echo also $b >&2; exit 7";
    let live = in_time(
        daemon
            .sessions
            .stream(request("s", cmd), Stdio::Pipes, Resume::Never),
    )
    .await
    .expect("it starts");
    let exec = live;
    in_time(exec.write_stdin(b"one\n")).await.expect("taken");
    read_until(&exec, "got one\n").await;
    in_time(exec.write_stdin(b"two\n")).await.expect("taken");
    let output = read_all(&exec).await;
    assert_eq!(output.stderr, b"also two\n");
    let ExecExit {
        exit_code,
        status,
        reason,
        ..
    } = output.exited;
    assert_eq!(
        (exit_code, status, reason),
        (Some(7), ExecStatus::Completed, None)
    );
}

#[tokio::test]
async fn closed_input_is_an_end_of_file() {
    let daemon = daemon();
    let live = in_time(daemon.sessions.stream(
        request("s", "cat; echo eof"),
        Stdio::Pipes,
        Resume::Never,
    ))
    .await
    .expect("it starts");
    let exec = live;
    in_time(exec.write_stdin(b"x")).await.expect("taken");
    exec.close_stdin();
    let output = read_all(&exec).await;
    assert_eq!(output.stdout, b"xeof\n");
    let error = in_time(exec.write_stdin(b"y")).await.expect_err("closed");
    assert_eq!(error.code(), ErrorCode::ValidationError);
}

#[tokio::test]
async fn a_slow_reader_loses_nothing() {
    let daemon = daemon();
    let cmd = "head -c 5000000 /dev/zero; echo; echo last";
    let live = in_time(
        daemon
            .sessions
            .stream(request("s", cmd), Stdio::Output, Resume::Never),
    )
    .await
    .expect("it starts");
    let exec = live;
    // Long enough for the command to be held up by the full channel and the full pipe.
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    let output = read_all(&exec).await;
    assert_eq!(output.stdout.len(), 5_000_000 + 6);
    assert!(output.stdout.ends_with(b"\nlast\n"));
}

#[tokio::test]
async fn a_dropped_stream_kills_the_command_and_its_children() {
    let daemon = daemon();
    let nap = unique_nap();
    let cmd = format!("(setsid sleep {nap} &); sleep {nap}");
    let live = in_time(
        daemon
            .sessions
            .stream(request("s", &cmd), Stdio::Pipes, Resume::Never),
    )
    .await
    .expect("it starts");
    eventually("the command", || is_asleep(&nap)).await;
    drop(live);
    eventually("its end", || !is_running(&nap)).await;
    assert_eq!(daemon.sessions.list().len(), 1);
}

#[tokio::test]
async fn a_signal_reaches_children_and_is_reported_as_cancelled() {
    let daemon = daemon();
    let nap = unique_nap();
    let cmd = format!("echo ready; sleep {nap} & wait");
    let live = in_time(
        daemon
            .sessions
            .stream(request("s", &cmd), Stdio::Output, Resume::Never),
    )
    .await
    .expect("it starts");
    let exec = live;
    read_until(&exec, "ready\n").await;
    eventually("the child", || is_asleep(&nap)).await;
    in_time(exec.signal(15)).await.expect("sent");
    let output = read_all(&exec).await;
    let ExecExit {
        exit_code, reason, ..
    } = output.exited;
    assert_eq!(exit_code, Some(128 + 15));
    assert_eq!(reason, Some(Reason::Cancelled));
    eventually("the child's end", || !is_running(&nap)).await;
    let error = in_time(exec.signal(4711))
        .await
        .expect_err("no such signal");
    assert_eq!(error.code(), ErrorCode::ValidationError);
}

#[tokio::test]
async fn a_stream_ends_at_its_timeout() {
    let daemon = daemon();
    let nap = unique_nap();
    let cmd = format!("echo before; sleep {nap}");
    let admission = request_with("s", &cmd, |request| request.timeout_sec = Some(4));
    let live = in_time(
        daemon
            .sessions
            .stream(admission, Stdio::Output, Resume::Never),
    )
    .await
    .expect("it starts");
    let exec = live;
    let output = read_all(&exec).await;
    assert_eq!(output.stdout, b"before\n");
    let ExecExit {
        exit_code,
        status,
        reason,
        ..
    } = output.exited;
    assert_eq!(
        (exit_code, status, reason),
        (None, ExecStatus::TimedOut, Some(Reason::Timeout))
    );
    eventually("the command's end", || !is_running(&nap)).await;
    assert!(daemon.sessions.detail(&id("s")).is_ok());
}

#[tokio::test]
async fn a_terminal_has_a_size_and_can_be_resized() {
    let daemon = daemon();
    let size = TerminalSize { rows: 33, cols: 99 };
    let cmd = "tty >/dev/null && echo terminal; stty size; read x; stty size; echo bye";
    let live = in_time(daemon.sessions.stream(
        request("s", cmd),
        Stdio::Terminal(size),
        Resume::Never,
    ))
    .await
    .expect("it starts");
    let exec = live;
    read_until(&exec, "terminal\r\n33 99\r\n").await;
    let size = TerminalSize { rows: 10, cols: 20 };
    exec.resize(size).expect("resized");
    in_time(exec.write_stdin(b"go\n")).await.expect("taken");
    let output = read_all(&exec).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.ends_with("10 20\r\nbye\r\n"), "{text}");
}

#[tokio::test]
async fn a_program_can_be_run_without_a_shell() {
    let daemon = daemon();
    let argv = ["printf", "%s|", "a b", "$HOME"]
        .map(str::to_owned)
        .to_vec();
    let live = in_time(daemon.sessions.stream_argv(
        request("s", "x"),
        argv,
        Stdio::Output,
        Resume::Never,
    ))
    .await
    .expect("it starts");
    let exec = live;
    assert_eq!(read_all(&exec).await.stdout, b"a b|$HOME|");
    let missing = vec!["no-such-program".to_owned()];
    let live = in_time(daemon.sessions.stream_argv(
        request("s", "x"),
        missing,
        Stdio::Output,
        Resume::Never,
    ))
    .await
    .expect("a program that is missing exits 127");
    let exec = live;
    let output = read_all(&exec).await;
    assert!(matches!(
        output.exited,
        ExecExit {
            exit_code: Some(127),
            ..
        }
    ));
    assert!(!output.stderr.is_empty());
    assert!(
        in_time(daemon.sessions.stream_argv(
            request("s", "x"),
            Vec::new(),
            Stdio::Output,
            Resume::Never
        ))
        .await
        .is_err()
    );
}
