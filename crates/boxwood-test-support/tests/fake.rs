//! Behaviour of fake boxes that other tests rely on and that no suite checks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{MountMode, SpecRequest};
use boxwood_backend::{
    Backend as _, Process, Progress, Sandbox, SpawnRequest, StartRecorder, Stdio,
};
use boxwood_test_support::{FakeBackend, admission};
use tokio::io::AsyncReadExt as _;

async fn started(change: impl FnOnce(&mut SpecRequest)) -> Arc<dyn Sandbox> {
    let admitted = admission("s", "true", change).expect("policy allows it");
    let (backend, progress, recorder) = (
        FakeBackend::new(),
        Progress::silent(),
        StartRecorder::none(),
    );
    let starting = backend.start(&admitted.spec, &progress, &recorder);
    starting.await.expect("the box starts")
}

/// Prints its pid, then waits.
fn request() -> SpawnRequest {
    let argv = ["sh", "-c", "echo $$; exec sleep 600"];
    SpawnRequest {
        argv: argv.map(str::to_owned).to_vec(),
        env: BTreeMap::default(),
        cwd: "/workspace".to_owned(),
        stdio: Stdio::Pipes,
        keep: None,
    }
}

async fn pid_of(process: &mut Process) -> u32 {
    let mut text = String::new();
    while !text.ends_with('\n') {
        let byte = process.stdout.read_u8().await.expect("a pid");
        text.push(byte.into());
    }
    text.trim().parse().expect("a number")
}

fn is_stopped(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    status.contains("State:\tT")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_freeze_does_not_overtake_the_thaw() {
    let sandbox = started(|_| {}).await;
    let mut process = sandbox.spawn(request()).await.expect("it starts");
    let pid = pid_of(&mut process).await;
    assert!(sandbox.freeze().await.expect("frozen") && is_stopped(pid));
    sandbox.thaw().await.expect("thawed");
    assert!(!is_stopped(pid));
    for wait in (0..40).map(Duration::from_millis) {
        let given_up = tokio::time::timeout(wait / 4, sandbox.freeze()).await;
        drop(given_up);
        sandbox.thaw().await.expect("thawed");
        assert!(!is_stopped(pid), "after {wait:?}");
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!is_stopped(pid), "a process was stopped late");
    sandbox.stop().await.expect("stopped");
}

#[tokio::test]
async fn a_command_does_not_bring_a_directory_of_the_host_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_owned();
    let sandbox = started(|request| {
        request.host_path = Some(path.display().to_string());
        request.host_path_mode = Some(MountMode::Rw);
    })
    .await;
    drop(directory);
    let spawned = sandbox.spawn(request()).await;
    assert!(spawned.is_err(), "there is nowhere to run it");
    assert!(!path.exists());
    sandbox.stop().await.expect("stopped");
}
