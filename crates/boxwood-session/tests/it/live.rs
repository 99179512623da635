//! Commands whose input and output flow while they run.

use boxwood_api::{ErrorCode, ExecStatus, Reason};
use boxwood_session::{LiveControl, LiveEvent, LiveExec, Resume, Stdio, TerminalSize};
use tokio::sync::mpsc::Receiver;

use super::{asked, asked_with, eventually, house, id, in_time, is_asleep, is_running, unique_nap};

struct Heard {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    exited: LiveEvent,
}

/// Reads to the end, and checks that `Exited` is the last event.
async fn hear(events: &mut Receiver<LiveEvent>) -> Heard {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match in_time(events.recv())
            .await
            .expect("an end before the close")
        {
            LiveEvent::Stdout(bytes) => stdout.extend_from_slice(&bytes),
            LiveEvent::Stderr(bytes) => stderr.extend_from_slice(&bytes),
            exited @ LiveEvent::Exited { .. } => {
                assert!(
                    in_time(events.recv()).await.is_none(),
                    "nothing after the end"
                );
                return Heard {
                    stdout,
                    stderr,
                    exited,
                };
            }
        }
    }
}

async fn hear_until(events: &mut Receiver<LiveEvent>, wanted: &str) {
    let mut heard = String::new();
    while !heard.contains(wanted) {
        match in_time(events.recv()).await {
            Some(LiveEvent::Stdout(bytes)) => heard.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("before `{wanted}` came {other:?}, after `{heard}`"),
        }
    }
}

fn split(live: LiveExec) -> (LiveControl, Receiver<LiveEvent>) {
    live.split()
}

#[tokio::test]
async fn input_goes_in_and_output_comes_out_while_it_runs() {
    let house = house();
    let cmd = "read a; echo got $a; read b; echo also $b >&2; exit 7";
    let live = in_time(
        house
            .sessions
            .stream(asked("s", cmd), Stdio::Pipes, Resume::Never),
    )
    .await
    .expect("it starts");
    let (mut control, mut events) = split(live);
    in_time(control.write_stdin(b"one\n")).await.expect("taken");
    hear_until(&mut events, "got one\n").await;
    in_time(control.write_stdin(b"two\n")).await.expect("taken");
    let heard = hear(&mut events).await;
    assert_eq!(heard.stderr, b"also two\n");
    let LiveEvent::Exited {
        exit_code,
        status,
        reason,
        ..
    } = heard.exited
    else {
        panic!("the end");
    };
    assert_eq!(
        (exit_code, status, reason),
        (Some(7), ExecStatus::Completed, None)
    );
}

#[tokio::test]
async fn closed_input_is_an_end_of_file() {
    let house = house();
    let live = in_time(house.sessions.stream(
        asked("s", "cat; echo eof"),
        Stdio::Pipes,
        Resume::Never,
    ))
    .await
    .expect("it starts");
    let (mut control, mut events) = split(live);
    in_time(control.write_stdin(b"x")).await.expect("taken");
    control.close_stdin();
    let heard = hear(&mut events).await;
    assert_eq!(heard.stdout, b"xeof\n");
    let error = in_time(control.write_stdin(b"y"))
        .await
        .expect_err("closed");
    assert_eq!(error.code(), ErrorCode::ValidationError);
}

#[tokio::test]
async fn a_slow_reader_loses_nothing() {
    let house = house();
    let cmd = "head -c 5000000 /dev/zero; echo; echo last";
    let live = in_time(
        house
            .sessions
            .stream(asked("s", cmd), Stdio::Output, Resume::Never),
    )
    .await
    .expect("it starts");
    let (_control, mut events) = split(live);
    // Long enough for the command to be held up by the full channel and the full pipe.
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
    let heard = hear(&mut events).await;
    assert_eq!(heard.stdout.len(), 5_000_000 + 6);
    assert!(heard.stdout.ends_with(b"\nlast\n"));
}

#[tokio::test]
async fn a_dropped_stream_kills_the_tree() {
    let house = house();
    let nap = unique_nap();
    let cmd = format!("(setsid sleep {nap} &); sleep {nap}");
    let live = in_time(
        house
            .sessions
            .stream(asked("s", &cmd), Stdio::Pipes, Resume::Never),
    )
    .await
    .expect("it starts");
    eventually("the command", || is_asleep(&nap)).await;
    drop(live);
    eventually("its end", || !is_running(&nap)).await;
    assert_eq!(house.sessions.list().len(), 1);
}

#[tokio::test]
async fn a_dropped_control_only_closes_the_input() {
    let house = house();
    let cmd = "cat; echo after";
    let live = in_time(
        house
            .sessions
            .stream(asked("s", cmd), Stdio::Pipes, Resume::Never),
    )
    .await
    .expect("it starts");
    let (control, mut events) = split(live);
    drop(control);
    assert_eq!(hear(&mut events).await.stdout, b"after\n");
}

#[tokio::test]
async fn signals_reach_the_tree_and_are_no_riddle() {
    let house = house();
    let nap = unique_nap();
    let cmd = format!("echo ready; sleep {nap} & wait");
    let live = in_time(
        house
            .sessions
            .stream(asked("s", &cmd), Stdio::Output, Resume::Never),
    )
    .await
    .expect("it starts");
    let (control, mut events) = split(live);
    hear_until(&mut events, "ready\n").await;
    eventually("the child", || is_asleep(&nap)).await;
    in_time(control.signal(15)).await.expect("sent");
    let heard = hear(&mut events).await;
    let LiveEvent::Exited {
        exit_code, reason, ..
    } = heard.exited
    else {
        panic!("the end");
    };
    assert_eq!(exit_code, Some(128 + 15));
    assert_eq!(reason, Some(Reason::Cancelled));
    eventually("the child's end", || !is_running(&nap)).await;
    let error = in_time(control.signal(4711))
        .await
        .expect_err("no such signal");
    assert_eq!(error.code(), ErrorCode::ValidationError);
}

#[tokio::test]
async fn a_stream_ends_at_its_timeout() {
    let house = house();
    let nap = unique_nap();
    let cmd = format!("echo before; sleep {nap}");
    let admission = asked_with("s", &cmd, |request| request.timeout_sec = Some(4));
    let live = in_time(
        house
            .sessions
            .stream(admission, Stdio::Output, Resume::Never),
    )
    .await
    .expect("it starts");
    let (_control, mut events) = split(live);
    let heard = hear(&mut events).await;
    assert_eq!(heard.stdout, b"before\n");
    let LiveEvent::Exited {
        exit_code,
        status,
        reason,
        ..
    } = heard.exited
    else {
        panic!("the end");
    };
    assert_eq!(
        (exit_code, status, reason),
        (None, ExecStatus::TimedOut, Some(Reason::Timeout))
    );
    eventually("the command's end", || !is_running(&nap)).await;
    assert!(house.sessions.detail(&id("s")).is_ok());
}

#[tokio::test]
async fn a_terminal_is_one() {
    let house = house();
    let size = TerminalSize { rows: 33, cols: 99 };
    let cmd = "tty >/dev/null && echo terminal; stty size; read x; stty size; echo bye";
    let live = in_time(house.sessions.stream(
        asked("s", cmd),
        Stdio::Terminal(size),
        Resume::Never,
    ))
    .await
    .expect("it starts");
    let (mut control, mut events) = split(live);
    hear_until(&mut events, "terminal\r\n33 99\r\n").await;
    let size = TerminalSize { rows: 10, cols: 20 };
    control.resize(size).expect("resized");
    in_time(control.write_stdin(b"go\n")).await.expect("taken");
    let heard = hear(&mut events).await;
    let text = String::from_utf8_lossy(&heard.stdout).into_owned();
    assert!(text.ends_with("10 20\r\nbye\r\n"), "{text}");
}

#[tokio::test]
async fn a_program_can_be_given_without_a_shell() {
    let house = house();
    let argv = ["printf", "%s|", "a b", "$HOME"]
        .map(str::to_owned)
        .to_vec();
    let live = in_time(house.sessions.stream_argv(
        asked("s", "x"),
        argv,
        Stdio::Output,
        Resume::Never,
    ))
    .await
    .expect("it starts");
    let (_control, mut events) = split(live);
    assert_eq!(hear(&mut events).await.stdout, b"a b|$HOME|");
    let missing = vec!["no-such-program".to_owned()];
    let live = in_time(house.sessions.stream_argv(
        asked("s", "x"),
        missing,
        Stdio::Output,
        Resume::Never,
    ))
    .await
    .expect("a program that is missing exits 127");
    let (_control, mut events) = split(live);
    let heard = hear(&mut events).await;
    assert!(matches!(
        heard.exited,
        LiveEvent::Exited {
            exit_code: Some(127),
            ..
        }
    ));
    assert!(!heard.stderr.is_empty());
    assert!(
        in_time(house.sessions.stream_argv(
            asked("s", "x"),
            Vec::new(),
            Stdio::Output,
            Resume::Never
        ))
        .await
        .is_err()
    );
}
