//! Sessions above a backend without isolation: everything but the walls.

mod backends;
mod commands;
mod creation;
mod drift;
mod endings;
mod frozen;
mod hosted;
mod live;
mod machine;
mod mounts;
mod processes;
mod quota;
mod recovery;
mod relay;
mod resuming;
mod warm;

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{ProcessId, ProcessSpec, SessionId, SpecRequest};
use boxwood_policy::Admission;
use boxwood_session::{Backends, Sessions, Settings};
use boxwood_test_support::{FakeBackend, admission};

/// No step of a test takes longer, unless it hangs.
const HANG: Duration = Duration::from_secs(30);

struct House {
    backend: Arc<FakeBackend>,
    sessions: Sessions,
}

fn house() -> House {
    house_with(|_| {})
}

fn house_with(change: impl FnOnce(&mut Settings)) -> House {
    house_of(FakeBackend::new(), change)
}

fn house_of(backend: Arc<FakeBackend>, change: impl FnOnce(&mut Settings)) -> House {
    let mut settings = Settings::default();
    change(&mut settings);
    House {
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

fn asked(session: &str, cmd: &str) -> Admission {
    asked_with(session, cmd, |_| {})
}

fn asked_with(session: &str, cmd: &str, change: impl FnOnce(&mut SpecRequest)) -> Admission {
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

/// Looks again and again, because nothing announces what is waited for.
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

/// Whether a process is there whose command line has this in it. A shell that is going to start the
/// program is one already.
fn is_running(needle: &str) -> bool {
    let shown = |line: &[u8]| String::from_utf8_lossy(line).contains(needle);
    command_lines().any(|line| shown(&line))
}

/// Whether the `sleep` itself is there, and not only whoever is going to start it.
fn is_asleep(nap: &str) -> bool {
    let wanted = format!("sleep\0{nap}\0");
    command_lines().any(|line| line == wanted.as_bytes())
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
