//! A daemon takes over from another while clients send requests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support::daemon::{Daemon, serve_command};
use crate::support::host::{pids, token, wait_until, waiting};

const ECHO: &str = "while read line; do echo \"got $line\"; done";

/// Clients that ask again and again, each time over a new connection.
#[derive(Default)]
struct Load {
    over: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    fn add(&mut self, ask: impl Fn() -> Result<(), String> + Send + 'static) {
        let (over, asked) = (Arc::clone(&self.over), Arc::clone(&self.asked));
        self.clients.push(std::thread::spawn(move || {
            let mut failures = Vec::new();
            while !over.load(Ordering::Relaxed) {
                failures.extend(ask().err());
                asked.fetch_add(1, Ordering::Relaxed);
            }
            failures
        }));
    }

    /// How many requests there were, and what went wrong.
    fn end(self) -> (usize, Vec<String>) {
        self.over.store(true, Ordering::Relaxed);
        let clients = self.clients.into_iter();
        let failures = clients.flat_map(|client| client.join().expect("a client ended"));
        let failures = failures.collect();
        (self.asked.load(Ordering::Relaxed), failures)
    }
}

fn request(method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends a request and expects a complete response with status 200.
fn answered(mut stream: impl std::io::Read + std::io::Write, request: &str) -> Result<(), String> {
    let written = stream.write_all(request.as_bytes());
    written.map_err(|error| format!("not sent: {error}"))?;
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    read.map_err(|error| format!("no answer: {error}"))?;
    if answer.starts_with("HTTP/1.1 200 ") {
        return Ok(());
    }
    Err(format!("not an answer: {answer:?}"))
}

fn over_tcp(address: &str, request: &str) -> Result<(), String> {
    let stream = TcpStream::connect(address).map_err(|error| format!("refused: {error}"))?;
    answered(stream, request)
}

fn over_unix(path: &PathBuf, request: &str) -> Result<(), String> {
    let stream = UnixStream::connect(path).map_err(|error| format!("refused: {error}"))?;
    answered(stream, request)
}

fn address(daemon: &Daemon) -> String {
    daemon.url().trim_start_matches("http://").to_owned()
}

/// A client that sends lines to an echoing process throughout the test.
struct Attached {
    child: Child,
    over: Arc<AtomicBool>,
    writer: JoinHandle<usize>,
    received: Arc<Mutex<Vec<String>>>,
}

impl Attached {
    fn to(daemon: &Daemon, session: &str, process: &str) -> Self {
        let mut child = daemon
            .command(&["attach", session, process])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("boxwood runs");
        let mut stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let writer = std::thread::spawn(move || {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                // It ends early when the test does.
                if writeln!(stdin, "{count}").is_err() {
                    break;
                }
                count += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            count
        });
        let received = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&received);
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                recorded.lock().expect("a list").push(line);
            }
        });
        Self {
            child,
            over,
            writer,
            received,
        }
    }

    /// Every line that was sent came back once, in order.
    fn end(mut self) {
        self.over.store(true, Ordering::Relaxed);
        let sent = self.writer.join().expect("written");
        let count = || self.received.lock().expect("a list").len();
        wait_until("every line to come back", || count() >= sent);
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
        let received = self.received.lock().expect("a list").clone();
        let expected: Vec<_> = (0..sent).map(|count| format!("got {count}")).collect();
        let mut both = expected.iter().zip(&received);
        let differs = both.find(|(one, other)| one != other);
        assert_eq!(differs, None, "of {sent} sent and {} heard", received.len());
        assert_eq!(received.len(), sent);
    }
}

#[test]
fn three_takeovers_under_load_refuse_no_request() {
    let token = token("takeover");
    let mut daemon = Daemon::start();
    let (url, address) = (daemon.url().to_owned(), address(&daemon));
    let program = waiting(&token);
    daemon
        .run(&["start", "s", "--id", "p", "--", "sh", "-c", &program])
        .ok();
    daemon
        .run(&["start", "s", "--id", "echo", "--", "sh", "-c", ECHO])
        .ok();
    wait_until("the process to run", || pids(&token).len() == 1);
    let before = pids(&token);

    let mut load = Load::default();
    let over = address.clone();
    load.add(move || over_tcp(&over, &request("GET", "/v1/sessions", "")));
    let over = address.clone();
    let command = request("POST", "/v1/sessions/s/exec", r#"{"cmd":"true"}"#);
    load.add(move || over_tcp(&over, &command));
    let socket = daemon.directory().join("state/run/boxwood.sock");
    load.add(move || over_unix(&socket, &request("GET", "/v1/sessions/s", "")));
    let attached = Attached::to(&daemon, "s", "echo");

    let mut pid = daemon.pid();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(daemon.taken_over(&[]), Some(0), "the one before ends well");
        assert_eq!(daemon.url(), url);
        assert_eq!(
            daemon.next_line(),
            format!("boxwood: took over from pid {pid}")
        );
        assert_eq!(daemon.next_line(), "boxwood: 1 session adopted");
        pid = daemon.pid();
    }
    std::thread::sleep(Duration::from_millis(400));
    let (asked, failures) = load.end();
    assert_eq!(failures, [""; 0], "of {asked} requests");
    assert!(asked > 50, "only {asked} requests were made");
    attached.end();
    assert_eq!(pids(&token), before, "the process is the same");
    assert!(daemon.run(&["ps", "s"]).ok().contains("running"));
}

/// A request that is under way gets its answer from the daemon that it was sent to.
#[test]
fn a_running_request_ends_before_the_daemon_does() {
    let mut daemon = Daemon::start();
    daemon.run(&["create", "s"]).ok();
    let address = address(&daemon);
    let command = request("POST", "/v1/sessions/s/exec", r#"{"cmd":"sleep 6"}"#);
    let running = std::thread::spawn(move || over_tcp(&address, &command));
    wait_until("the command", || {
        let running = daemon.run(&["ps", "--execs", "s", "-o", "json"]).ok();
        running.contains("sleep 6")
    });
    assert_eq!(daemon.taken_over(&[]), Some(0));
    assert_eq!(running.join().expect("ended"), Ok(()));
}

#[test]
fn without_a_daemon_a_takeover_is_a_start() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut command = serve_command(directory.path());
    command.arg("--takeover");
    let daemon = Daemon::started_by(command, directory);
    daemon.run(&["exec", "s", "--", "true"]).ok();
}

#[test]
fn the_new_configuration_says_where_to_listen() {
    let mut daemon = Daemon::start();
    daemon
        .run(&["exec", "s", "--", "sh", "-c", "echo kept > f"])
        .ok();
    let before = address(&daemon);
    let old_socket = daemon.directory().join("state/run/boxwood.sock");
    let run_dir = daemon.directory().join("elsewhere");
    let settings = [
        ("BOXWOOD_RUN_DIR", run_dir.to_str().expect("text")),
        ("BOXWOOD_HTTP__UNIX_SOCKET", "true"),
    ];
    assert_eq!(daemon.taken_over_at("127.0.0.2:0", &settings), Some(0));
    assert!(
        daemon.url().starts_with("http://127.0.0.2:"),
        "{}",
        daemon.url()
    );
    assert_eq!(daemon.run(&["exec", "s", "--", "cat", "f"]).ok(), "kept\n");
    assert!(
        TcpStream::connect(before).is_err(),
        "nothing listens there any more"
    );
    assert!(!old_socket.exists());
    assert!(run_dir.join("boxwood.sock").exists());
}

#[test]
fn a_failed_takeover_leaves_the_old_daemon_running() {
    let daemon = Daemon::start();
    daemon.run(&["exec", "s", "--", "true"]).ok();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let taken = listener.local_addr().expect("an address").to_string();
    for (variable, value, word) in [
        ("BOXWOOD_LISTEN", taken.as_str(), "failed to listen"),
        ("BOXWOOD_BACKEND", "nonesuch", "nonesuch"),
    ] {
        let mut command = crate::support::command::boxwood();
        let output = command
            .args(["serve", "--takeover", "--state-dir"])
            .arg(daemon.directory().join("state"))
            .env("BOXWOOD_LISTEN", "127.0.0.1:0")
            .env(variable, value)
            .output()
            .expect("boxwood runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(word), "{stderr}");
        daemon.run(&["exec", "s", "--", "true"]).ok();
    }
    drop(listener);
}

#[test]
fn a_takeover_from_a_hanging_daemon_fails_and_names_its_pid() {
    let daemon = Daemon::start();
    daemon.run(&["exec", "s", "--", "true"]).ok();
    daemon.signal("STOP");
    let output = serve_command(daemon.directory())
        .arg("--takeover")
        .output()
        .expect("boxwood runs");
    daemon.signal("CONT");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains(&format!("pid {}", daemon.pid())),
        "{stderr}"
    );
    assert!(stderr.contains("hint: "), "{stderr}");
    // After it is resumed, the daemon notices that the new one has given up.
    daemon.run(&["exec", "s", "--", "true"]).ok();
}
