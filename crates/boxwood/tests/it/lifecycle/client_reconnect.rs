//! Clients reconnect when their daemon is killed and another one starts.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::host::wait_until;

/// A verb that speaks over the socket, which is where the next daemon listens too.
fn client(daemon: &Daemon, args: &[&str]) -> Command {
    let socket = daemon.directory().join("state/run/boxwood.sock");
    let mut command = daemon.command(args);
    command
        .env("BOXWOOD_URL", format!("unix://{}", socket.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

fn spawn(daemon: &Daemon, args: &[&str]) -> Child {
    client(daemon, args).spawn().expect("boxwood runs")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn restarted(daemon: &mut Daemon) -> Daemon {
    let directory = daemon.kill();
    Daemon::start_in(directory)
}

#[test]
fn attach_goes_on_across_a_killed_daemon() {
    let mut daemon = Daemon::start();
    daemon
        .run(&["start", "s", "--id", "echo", "--", "cat"])
        .ok();
    let mut attached = spawn(&daemon, &["attach", "s", "echo"]);
    let mut stdin = attached.stdin.take().expect("piped");
    let mut lines = BufReader::new(attached.stdout.take().expect("piped")).lines();
    let mut received = Vec::new();
    for round in 0..3 {
        for number in 0..200 {
            writeln!(stdin, "{round}.{number}").expect("written");
        }
        // Restart while lines are in transit.
        received.push(lines.next().expect("a line").expect("text"));
        daemon = restarted(&mut daemon);
    }
    writeln!(stdin, "end").expect("written");
    while received.last().map(String::as_str) != Some("end") {
        received.push(lines.next().expect("a line").expect("text"));
    }
    let mut expected: Vec<_> = (0..3)
        .flat_map(|round| (0..200).map(move |number| format!("{round}.{number}")))
        .collect();
    expected.push("end".to_owned());
    assert_eq!(received, expected, "every line once, in order");
    attached.kill().expect("killed");
    attached.wait().expect("ended");
    daemon.run(&["rm", "s"]).ok();
}

#[test]
fn exec_goes_on_across_a_killed_daemon() {
    let mut daemon = Daemon::start();
    daemon.run(&["create", "s"]).ok();
    let program = "echo ready; while read line; do echo \"got $line\"; done; echo over >&2; exit 7";
    let mut exec = client(&daemon, &["exec", "-i", "s", "--", "sh", "-c", program])
        .stderr(Stdio::piped())
        .spawn()
        .expect("boxwood runs");
    let mut stdin = exec.stdin.take().expect("piped");
    let mut stdout = BufReader::new(exec.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    writeln!(stdin, "one").expect("written");
    daemon = restarted(&mut daemon);
    writeln!(stdin, "two").expect("written");
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "got one\ngot two\n");
    let mut stderr = String::new();
    let mut output = exec.stderr.take().expect("piped");
    output.read_to_string(&mut stderr).expect("text");
    assert_eq!(stderr, "over\n");
    assert_eq!(exec.wait().expect("ended").code(), Some(7));
    daemon.run(&["rm", "s"]).ok();
}

#[test]
fn a_command_whose_client_was_killed_is_shown_and_can_be_ended() {
    let daemon = Daemon::start();
    daemon.run(&["create", "s"]).ok();
    let mut exec = spawn(&daemon, &["exec", "s", "--", "sleep", "600"]);
    let listed = || daemon.run(&["ps", "s"]).ok();
    wait_until("the command is listed", || listed().contains("sleep 600"));
    exec.kill().expect("killed");
    exec.wait().expect("ended");
    let execs = json(&daemon.run(&["ps", "--execs", "s", "-o", "json"]).ok());
    let exec_id = execs[0]["exec_id"].to_string();
    assert_eq!(execs[0]["state"], "running", "{execs}");
    assert!(daemon.run(&["inspect", "s"]).ok().contains("sleep 600"));
    daemon.run(&["kill", "--exec", &exec_id, "s"]).ok();
    let detail = daemon.run(&["inspect", "--exec", &exec_id, "s", "-o", "json"]);
    assert_eq!(json(&detail.ok())["state"], "ended");
    assert!(!listed().contains("sleep 600"));
}
