//! Sessions with a backend that runs programs without isolation.

mod backends;
mod commands;
mod creation;
mod drift;
mod endings;
mod frozen;
mod hosted;
mod live;
mod mounts;
mod processes;
mod quota;
mod relay;
mod restart {
    pub(crate) mod machine;
    mod recovery;
    mod resuming;
}
mod warm;

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{ProcessId, ProcessSpec, SessionId, SpecRequest};
use boxwood_policy::Admission;
use boxwood_session::{Backends, Sessions, Settings};
use boxwood_test_support::{FakeBackend, admission};

/// A step of a test that takes longer hangs.
const HANG: Duration = Duration::from_secs(30);

struct TestDaemon {
    backend: Arc<FakeBackend>,
    sessions: Sessions,
}

fn daemon() -> TestDaemon {
    daemon_with(|_| {})
}

fn daemon_with(change: impl FnOnce(&mut Settings)) -> TestDaemon {
    daemon_of(FakeBackend::new(), change)
}

fn daemon_of(backend: Arc<FakeBackend>, change: impl FnOnce(&mut Settings)) -> TestDaemon {
    let mut settings = Settings::default();
    // The result of a test does not depend on the free disk space of the machine.
    settings.load.min_free_bytes = Some(0);
    change(&mut settings);
    TestDaemon {
        backend: Arc::clone(&backend) as _,
        sessions: Sessions::new(Backends::only(backend), settings),
    }
}

fn id(text: &str) -> SessionId {
    SessionId::new(text).expect("a legal session id")
}

fn process_id(text: &str) -> ProcessId {
    ProcessId::new(text).expect("a legal process id")
}

fn request(session: &str, cmd: &str) -> Admission {
    request_with(session, cmd, |_| {})
}

fn request_with(session: &str, cmd: &str, change: impl FnOnce(&mut SpecRequest)) -> Admission {
    admission(session, cmd, change).expect("policy allows the test's request")
}

/// A managed process that is a shell script.
fn script(process: &str, text: &str) -> ProcessSpec {
    ProcessSpec {
        process_id: process_id(process),
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), text.to_owned()],
        env: std::collections::BTreeMap::default(),
        cwd: "/workspace".to_owned(),
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, work)
        .await
        .expect("it does not hang")
}

/// Polls, because there is no event for the condition.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = tokio::time::Instant::now() + HANG;
    while !holds() {
        assert!(
            tokio::time::Instant::now() < until,
            "never happened: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns true if a process has this in its command line, such as the shell that starts it.
fn is_running(needle: &str) -> bool {
    let shown = |line: &[u8]| String::from_utf8_lossy(line).contains(needle);
    command_lines().any(|line| shown(&line))
}

/// Returns true if the `sleep` itself is running, and not only the shell that starts it.
fn is_asleep(nap: &str) -> bool {
    let command_line = format!("sleep\0{nap}\0");
    command_lines().any(|line| line == command_line.as_bytes())
}

fn command_lines() -> impl Iterator<Item = Vec<u8>> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default())
}

/// A number of seconds for `sleep` that no other test uses, so that the process can be found.
fn unique_nap() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NAPS: AtomicU32 = AtomicU32::new(0);
    let number = NAPS.fetch_add(1, Ordering::Relaxed);
    format!("{}.{number:03}", 100_000 + std::process::id())
}
