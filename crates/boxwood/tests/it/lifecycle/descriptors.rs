//! A daemon without free descriptors logs it, does not spin, and serves requests again when it has some.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use boxwood_test_support::daemon::ChildDaemon;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

fn ask(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the kernel takes it");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout");
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    // A connection that is cut after its answer has answered.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Processor time so far, in clock ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, rest) = stat.rsplit_once(')').expect("a name in brackets");
    let fields: Vec<_> = rest.split_whitespace().collect();
    let field = |at: usize| fields[at].parse::<u64>().expect("a number");
    field(11) + field(12)
}

/// The largest number of a descriptor that a process has.
fn highest(pid: u32) -> u64 {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let numbers = entries.flatten().filter_map(number);
    numbers.max().expect("it has some")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_without_descriptors_says_so_and_recovers() {
    let program = Path::new(env!("CARGO_BIN_EXE_boxwood"));
    let daemon = ChildDaemon::start(program, &["--backend", "native"]).await;
    let address = daemon.url().trim_start_matches("http://").to_owned();
    assert!(ask(&address).starts_with("HTTP/1.1 200"));

    let pid = daemon.pid().expect("it runs");
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // The limit leaves room for the open descriptors, the reserve and a few more.
    let few = Rlimit {
        current: Some(highest(pid) + 4),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    let before = prlimit(raw, Resource::Nofile, few).expect("the limit can be lowered");
    // The few that are free are taken first.
    let mut held: Vec<_> = (0..256)
        .filter_map(|_| TcpStream::connect(&address).ok())
        .collect();
    let mut answer = String::new();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        answer = tokio::task::block_in_place(|| ask(&address));
        if !answer.starts_with("HTTP/1.1 200") {
            break;
        }
        // The daemon has closed a descriptor of its own, so one more connection fits.
        held.extend(TcpStream::connect(&address));
    }
    assert!(answer.starts_with("HTTP/1.1 503"), "`{answer}`");
    assert!(answer.contains("\"capacity\""), "{answer}");
    assert!(answer.contains("retry-after"), "{answer}");

    let used = ticks(pid);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = ticks(pid) - used;
    assert!(used < 30, "{used} of a hundred ticks were spent on waiting");

    drop(held);
    prlimit(raw, Resource::Nofile, before).expect("the limit can be raised");
    let mut answer = String::new();
    for _ in 0..100 {
        answer = tokio::task::block_in_place(|| ask(&address));
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(answer.starts_with("HTTP/1.1 200"), "`{answer}`");
    assert!(daemon.terminate().await.success());
}
