//! A daemon under a service manager: socket activation and notifications.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::support::daemon::{Daemon, serve_command};

/// What a service manager does between `fork` and `exec`.
const ACTIVATE: &str = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=http; exec \"$0\" \"$@\"";

/// The same command with `socket` as its fourth descriptor.
fn activated(command: &Command, socket: impl Into<OwnedFd>) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(ACTIVATE).arg(command.get_program());
    shell.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::from(socket.into()));
    shell
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// The notification socket of the service manager.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("bind");
        let timeout = Some(Duration::from_secs(20));
        socket.set_read_timeout(timeout).expect("a timeout");
        Self { socket }
    }

    /// The next message that contains `expected`.
    fn wait_for_message(&self, expected: &str) -> String {
        let mut received = Vec::new();
        loop {
            let mut buffer = [0; 4096];
            let Ok(count) = self.socket.recv(&mut buffer) else {
                panic!("no {expected} in {received:?}");
            };
            let message = String::from_utf8_lossy(&buffer[..count]).into_owned();
            if message.contains(expected) {
                return message;
            }
            received.push(message);
        }
    }
}

#[test]
fn connections_wait_for_the_daemon_on_its_managers_socket() {
    let directory = directory();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("an address");
    // Before there is a daemon.
    let mut early = TcpStream::connect(address).expect("a listener");
    let request = "GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    early.write_all(request.as_bytes()).expect("sent");

    let kept = listener.try_clone().expect("a second descriptor");
    let command = activated(&serve_command(directory.path()), listener);
    let mut daemon = Daemon::started_by(command, directory);
    assert_eq!(daemon.url(), format!("http://{address}"));
    let mut answer = String::new();
    early.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    daemon.run(&["exec", "s", "--", "true"]).ok();

    // Clients of a stopped daemon are not refused: the manager's socket still exists.
    assert_eq!(daemon.terminate(), Some(0));
    let mut between = TcpStream::connect(address).expect("a listener");
    between.write_all(request.as_bytes()).expect("sent");
    let directory = daemon.leave_directory();
    let command = activated(&serve_command(directory.path()), kept);
    let _next = Daemon::started_by(command, directory);
    let mut answer = String::new();
    between.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn the_service_manager_is_notified_of_start_takeover_and_stop() {
    let directory = directory();
    let path = directory.path().join("notify");
    let manager = Manager::at(&path);
    let notify = path.to_str().expect("text").to_owned();
    let settings = [("NOTIFY_SOCKET", notify.as_str())];
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("an address");
    let mut command = activated(&serve_command(directory.path()), listener);
    command.envs(settings);
    let mut daemon = Daemon::started_by(command, directory);
    let ready = manager.wait_for_message("READY=1");
    assert!(ready.contains(&address.to_string()), "{ready}");

    // The old daemon notifies the manager of the new one, which keeps the manager's socket.
    assert_eq!(daemon.taken_over(&settings), Some(0));
    let main_pid = format!("MAINPID={}", daemon.pid());
    let response = manager.wait_for_message("MAINPID=");
    assert!(
        response.contains(&main_pid) && response.contains("handing over"),
        "{response}"
    );
    let ready = manager.wait_for_message("READY=1");
    assert!(ready.contains(&main_pid), "{ready}");
    assert_eq!(daemon.url(), format!("http://{address}"));

    assert_eq!(daemon.terminate(), Some(0));
    manager.wait_for_message("STOPPING=1");
}

/// An engine that found these variables would tell the manager that *it* is ready.
#[test]
fn no_program_of_the_daemon_gets_the_managers_variables() {
    let directory = directory();
    let (seen, program) = (
        directory.path().join("seen"),
        directory.path().join("docker"),
    );
    let script = format!("#!/bin/sh\nenv >> {}\nexit 1\n", seen.display());
    std::fs::write(&program, script).expect("written");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("executable");
    let notify = directory.path().join("notify");
    let _manager = Manager::at(&notify);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let mut command = activated(&serve_command(directory.path()), listener);
    command
        .env("NOTIFY_SOCKET", &notify)
        .env("BOXWOOD_DOCKER__PROGRAM", &program);
    let daemon = Daemon::started_by(command, directory);
    let output = daemon.run(&["exec", "s", "--backend", "docker", "--", "true"]);
    assert_ne!(output.code, Some(0), "{}", output.all());
    let seen = std::fs::read_to_string(&seen).expect("the engine was asked");
    assert!(seen.contains("PATH="), "{seen}");
    for name in ["LISTEN_", "NOTIFY_SOCKET"] {
        assert!(!seen.contains(name), "{seen}");
    }
}

#[test]
fn a_socket_that_does_not_listen_is_refused_by_name() {
    let directory = directory();
    let (connected, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let file = std::fs::File::open("/dev/null").expect("open");
    for (descriptor, why) in [
        (OwnedFd::from(connected), "not a listening socket"),
        (file.into(), "not a socket"),
    ] {
        let output = activated(&serve_command(directory.path()), descriptor)
            .output()
            .expect("sh runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        for part in ["`http`", why, "hint: ", "ListenStream"] {
            assert!(stderr.contains(part), "{stderr}");
        }
    }
}

#[test]
fn variables_for_another_process_are_ignored_and_invalid_ones_refused() {
    let directory = directory();
    let mut command = serve_command(directory.path());
    command.env("LISTEN_PID", "1").env("LISTEN_FDS", "7");
    let daemon = Daemon::started_by(command, directory);
    daemon.run(&["exec", "s", "--", "true"]).ok();
    let mut wrong = serve_command(daemon.directory());
    let output = wrong
        .env("LISTEN_PID", "one")
        .env("LISTEN_FDS", "1")
        .output()
        .expect("boxwood runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("LISTEN_PID"), "{stderr}");
}
