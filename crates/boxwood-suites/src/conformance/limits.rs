//! Limits of memory, processes and processor time: they are enforced, and the exit reports them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use boxwood_api::Mechanism;

use crate::harness::case::cases;
use crate::harness::test_box::request;
use crate::{BoxSpec, Fixture, TestBox};
use boxwood_backend::{ExitStatus, SpawnError};

cases! { "limits":
    a_memory_limit_is_enforced_and_reported,
    filling_every_area_costs_the_writer_only,
    a_small_program_beside_the_hog_lives_on,
    a_process_limit_is_enforced_and_reported,
    an_ordinary_failure_is_no_limit,
    a_command_beyond_the_process_limit_is_refused,
    a_cpu_limit_is_enforced,
    limits_are_each_boxs_own,
}

/// Checks the label against the committed list. Returns true if the mechanism is in force.
fn expected(fixture: &Fixture, test_box: &TestBox, mechanism: Mechanism) -> anyhow::Result<bool> {
    let label = test_box.sandbox().label();
    let expects = fixture.host().expects(mechanism);
    ensure!(
        label.has(mechanism) == expects,
        "`{mechanism:?}` in force is {}, expected {expects}: {label:?}",
        label.has(mechanism)
    );
    if !expects {
        let text = label
            .missing
            .iter()
            .find(|missing| missing.mechanism == mechanism)
            .with_context(|| format!("the label does not list `{mechanism:?}`"))?;
        ensure!(
            !text.why.is_empty(),
            "the label gives no reason for `{mechanism:?}`"
        );
    }
    Ok(expects)
}

const HOG: &str = "
import time
held = []
while True:
    held.append(b'x' * (1 << 20))";

async fn a_memory_limit_is_enforced_and_reported(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new().memory_mb(64)).await?;
    if !expected(fixture, &test_box, Mechanism::MemoryLimit)? {
        return Ok(());
    }
    let ran = test_box.run(request(&["python3", "-c", HOG])).await?;
    ensure!(
        ran.exit.status == ExitStatus::Signal(9) || ran.code() == Some(1),
        "{:?}",
        ran.exit
    );
    ensure!(
        ran.exit.oom == fixture.host().counters,
        "the exit does not say oom: {:?}",
        ran.exit
    );
    ensure!(!ran.exit.pids_limit, "{:?}", ran.exit);
    // Init was not killed, and the next command is not reported as killed.
    test_box.assert_responsive().await?;
    let ran = test_box.sh("exit 3").await?;
    ensure!(ran.code() == Some(3) && !ran.exit.oom, "{:?}", ran.exit);
    Ok(())
}

/// With the default sizes: whether the area or the memory is full first, only the writing command fails, and the box
/// keeps running.
async fn filling_every_area_costs_the_writer_only(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new().memory_mb(128)).await?;
    if !expected(fixture, &test_box, Mechanism::MemoryLimit)? {
        return Ok(());
    }
    for directory in [
        "/dev/shm",
        "/tmp",
        "/workspace",
        "/home/box",
        "/opt",
        "/usr/local",
    ] {
        let ran = test_box
            .sh(&format!("head -c 300000000 /dev/zero > {directory}/big"))
            .await?;
        ensure!(
            ran.code() != Some(0),
            "{directory} took 300 MB in a box of 128 MiB"
        );
        ensure!(
            test_box.sandbox().is_alive(),
            "filling {directory} after the others killed the box"
        );
    }
    for directory in [
        "/dev/shm",
        "/tmp",
        "/workspace",
        "/home/box",
        "/opt",
        "/usr/local",
    ] {
        test_box
            .file(boxwood_backend::FileCall::Remove {
                path: format!("{directory}/big"),
                recursive: false,
            })
            .await
            .ok();
    }
    test_box.assert_responsive().await
}

async fn a_small_program_beside_the_hog_lives_on(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new().memory_mb(96)).await?;
    if !expected(fixture, &test_box, Mechanism::MemoryLimit)? {
        return Ok(());
    }
    let small = test_box.spawn(request(&["sleep", "600"])).await?;
    for _ in 0..3 {
        let ran = test_box.run(request(&["python3", "-c", HOG])).await?;
        ensure!(ran.exit.oom == fixture.host().counters, "{:?}", ran.exit);
    }
    ensure!(
        tokio::time::timeout(Duration::from_millis(200), small.control.wait())
            .await
            .is_err(),
        "the kernel killed another program than the one that used the memory"
    );
    Ok(())
}

/// Forks until a fork fails, kills its children, and prints their number.
const FORKS: &str = "
import os, signal, sys, time
children = []
status = 0
try:
    while len(children) < 4000:
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        children.append(child)
except OSError as fault:
    status = 11
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(len(children))
sys.exit(status)";

async fn a_process_limit_is_enforced_and_reported(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new().pids(32)).await?;
    if !expected(fixture, &test_box, Mechanism::PidsLimit)? {
        return Ok(());
    }
    let ran = test_box.run(request(&["python3", "-c", FORKS])).await?;
    ensure!(
        ran.exit.status == ExitStatus::Code(11),
        "{:?} {:?}",
        ran.exit,
        ran.out()
    );
    let children: u64 = ran.out().trim().parse().context("no count")?;
    ensure!(
        (8..=32).contains(&children),
        "{children} children under a limit of 32"
    );
    ensure!(
        ran.exit.pids_limit == fixture.host().counters,
        "pids_limit in the exit, with counters {}: {:?}",
        fixture.host().counters,
        ran.exit
    );
    ensure!(!ran.exit.oom, "{:?}", ran.exit);
    test_box.assert_responsive().await
}

async fn an_ordinary_failure_is_no_limit(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    for script in ["exit 1", "kill -9 $$", "ls /nowhere", "sleep 0.1; exit 137"] {
        let ran = test_box.sh(script).await?;
        ensure!(
            !ran.exit.oom && !ran.exit.pids_limit && !ran.exit.disk_full,
            "{script}: {:?}",
            ran.exit
        );
    }
    Ok(())
}

async fn a_command_beyond_the_process_limit_is_refused(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new().pids(24)).await?;
    if !expected(fixture, &test_box, Mechanism::PidsLimit)? {
        return Ok(());
    }
    let mut sleepers = Vec::new();
    let mut refusal = None;
    for _ in 0..40 {
        match test_box.sandbox().spawn(request(&["sleep", "600"])).await {
            Ok(process) => sleepers.push(process),
            Err(error) => {
                refusal = Some(error);
                break;
            }
        }
    }
    ensure!(
        matches!(refusal, Some(SpawnError::PidsLimit)),
        "after {} processes of 24: {refusal:?}",
        sleepers.len()
    );
    // After some of them have ended, the box accepts commands again.
    for sleeper in sleepers.drain(..4) {
        sleeper
            .control
            .signal(9, boxwood_backend::Scope::Tree)
            .await?;
        sleeper.control.wait().await;
    }
    test_box.assert_responsive().await
}

/// Prints the share of a processor that a loop gets. It uses the CPU time of the process, so a busy machine can only
/// reduce it.
const WORK: &str = "
import time
began, used = time.monotonic(), time.process_time()
while time.monotonic() < began + 1.5:
    for _ in range(2000): pass
print((time.process_time() - used) / (time.monotonic() - began))";

async fn a_cpu_limit_is_enforced(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new().cpus(0.1)).await?;
    if !expected(fixture, &test_box, Mechanism::CpuLimit)? {
        return Ok(());
    }
    let ran = test_box.run(request(&["python3", "-c", WORK])).await?;
    let share: f64 = ran.text()?.trim().parse()?;
    ensure!(
        share < 0.25,
        "{share} of a processor where a tenth is allowed"
    );
    Ok(())
}

async fn limits_are_each_boxs_own(fixture: &Fixture) -> anyhow::Result<()> {
    let small = fixture.start(&BoxSpec::new().memory_mb(48)).await?;
    let large = fixture.start(&BoxSpec::new().memory_mb(512)).await?;
    if !expected(fixture, &small, Mechanism::MemoryLimit)? {
        return Ok(());
    }
    let eat = "x = b'x' * (200 << 20); print(len(x))";
    let ran = large.run(request(&["python3", "-c", eat])).await?;
    ensure!(
        ran.code() == Some(0),
        "200 MiB in a box of 512: {:?}",
        ran.exit
    );
    let ran = small.run(request(&["python3", "-c", eat])).await?;
    ensure!(
        ran.exit.oom == fixture.host().counters && ran.code() != Some(0),
        "200 MiB in a box of 48: {:?}",
        ran.exit
    );
    Ok(())
}
