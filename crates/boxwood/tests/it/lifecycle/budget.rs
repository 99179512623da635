//! Limits of the system calls of a command and of a new box, and of the memory of an idle daemon. A change that needs more
//! raises the number here, where reviewers see it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::daemon::Daemon;

/// System calls of the daemon for one command in a box that is there: 33 were counted.
const EXEC_CALLS: usize = 35;
/// The same for one box that is made and removed: 152 were counted.
const CREATE_CALLS: usize = 165;
/// Memory of a daemon without boxes that is backed by no file: 4,616 were counted.
const IDLE_KIB: u64 = 6 * 1024;

/// The number of waits depends on how busy the machine is, and builds with debug assertions call `fcntl` for every
/// closed descriptor.
const NOT_COUNTED: [&str; 6] = [
    "epoll_pwait",
    "epoll_wait",
    "fcntl",
    "futex",
    "restart_syscall",
    "sched_yield",
];
const TIMES: usize = 20;

/// One connection that stays open, as clients have it.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(daemon: &Daemon) -> Self {
        let address = daemon.url().strip_prefix("http://").expect("an address");
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        let timeout = Some(Duration::from_mins(1));
        stream.set_read_timeout(timeout).expect("a timeout");
        Self(BufReader::new(stream))
    }

    fn call(&mut self, method: &str, path: &str, body: &str) -> String {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        let stream = self.0.get_mut();
        stream.write_all(request.as_bytes()).expect("sent");
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("an answer");
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().expect("a length");
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body");
        String::from_utf8(body).expect("text")
    }
}

/// `strace` on a daemon.
struct Trace(Child);

impl Trace {
    fn begin(pid: u32, into: &Path) -> Self {
        let mut child = Command::new("/usr/bin/strace")
            .args(["-f", "-p", &pid.to_string(), "-o"])
            .arg(into)
            .stderr(Stdio::piped())
            .spawn()
            .expect("strace is installed (`cargo xtask test needs`)");
        let stderr = child.stderr.take().expect("piped");
        let trace = Self(child);
        // Printed once for all threads that are there.
        let mut line = String::new();
        let read = BufReader::new(stderr).read_line(&mut line);
        read.expect("a line of strace");
        let hint = "an ordinary user needs kernel.yama.ptrace_scope=0";
        assert!(line.contains("attached"), "{line} ({hint})");
        trace
    }
}

impl Drop for Trace {
    /// It writes what it has and detaches.
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-INT", &pid]).status();
        let _ = self.0.wait();
    }
}

/// How many system calls the daemon makes for one `work`. A thread that starts or ends beside it makes
/// some too, so the fewest of three rounds count.
fn calls_of(daemon: &Daemon, mut work: impl FnMut(usize)) -> usize {
    // The first ones open files and start threads that stay.
    for number in 0..5 {
        work(number);
    }
    let mut round = || {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("trace");
        let trace = Trace::begin(daemon.pid(), &file);
        for number in 0..TIMES {
            work(number);
        }
        drop(trace);
        count(&fs::read_to_string(file).expect("a trace"))
    };
    (0..3).map(|_| round()).min().expect("three rounds")
}

fn count(trace: &str) -> usize {
    let mut counts = BTreeMap::<&str, usize>::new();
    for line in trace.lines().filter(|line| !line.contains("resumed>")) {
        let call = line.split_whitespace().nth(1).unwrap_or_default();
        let name = call.split('(').next().unwrap_or_default();
        if call.contains('(') && !NOT_COUNTED.contains(&name) {
            *counts.entry(name).or_default() += 1;
        }
    }
    let each = counts.values().sum::<usize>() / TIMES;
    println!("{each} system calls each; of {TIMES}: {counts:?}");
    each
}

/// A daemon with as many threads on every machine.
fn daemon() -> Daemon {
    let directory = tempfile::tempdir().expect("a temporary directory");
    Daemon::start_with(directory, &[("TOKIO_WORKER_THREADS", "2")])
}

#[test]
fn a_warm_command_makes_few_system_calls() {
    let daemon = daemon();
    let mut connection = Connection::open(&daemon);
    connection.call("POST", "/v1/sessions/budget", "{}");
    let calls = calls_of(&daemon, |_| {
        let answer = connection.call("POST", "/v1/sessions/budget/exec", r#"{"cmd":"true"}"#);
        assert!(answer.contains(r#""exit_code":0"#), "{answer}");
    });
    assert!(calls <= EXEC_CALLS, "{calls} system calls");
}

#[test]
fn a_new_box_makes_few_system_calls() {
    let daemon = daemon();
    let mut connection = Connection::open(&daemon);
    let calls = calls_of(&daemon, |number| {
        let session = format!("/v1/sessions/budget-{number}");
        let answer = connection.call("POST", &session, "{}");
        assert!(answer.contains("session_id"), "{answer}");
        let answer = connection.call("DELETE", &session, "");
        assert!(answer.contains("deleted"), "{answer}");
    });
    assert!(calls <= CREATE_CALLS, "{calls} system calls");
}

#[test]
fn an_idle_daemon_holds_little_memory() {
    let daemon = daemon();
    let anonymous = || {
        let path = format!("/proc/{}/smaps_rollup", daemon.pid());
        let text = fs::read_to_string(path).expect("it runs");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Anonymous:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number
            .and_then(|kib| kib.parse::<u64>().ok())
            .expect("a number")
    };
    // What only the start needed is given back right before the daemon says that it is ready; what
    // still runs then ends soon.
    let began = Instant::now();
    while anonymous() > IDLE_KIB && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let kib = anonymous();
    println!("{kib} KiB");
    assert!(kib <= IDLE_KIB, "{kib} KiB");
}
