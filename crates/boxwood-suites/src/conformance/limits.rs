//! Memory, processes, processor time: that the limits bite, and that the exit says so.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use boxwood_api::Mechanism;

use crate::harness::case::cases;
use crate::harness::test_box::request;
use crate::{BoxSpec, Fixture, TestBox};
use boxwood_backend::{ExitStatus, SpawnError};

cases! { "limits":
    memory_bites_and_the_exit_says_so,
    filling_every_area_costs_the_writer_only,
    a_small_program_beside_the_hog_lives_on,
    processes_bite_and_the_exit_says_so,
    an_ordinary_failure_is_no_limit,
    a_full_box_says_that_it_is_full,
    processor_time_bites,
    limits_are_each_boxs_own,
}

/// Holds the label to the committed list; says whether the mechanism is there to be tried.
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
            .with_context(|| format!("the label is silent about `{mechanism:?}`"))?;
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

async fn memory_bites_and_the_exit_says_so(fixture: &Fixture) -> anyhow::Result<()> {
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
        "the kernel took a bystander instead of the hog"
    );
    Ok(())
}

/// Forks until it is refused, says how far it came, and takes its children with it.
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

async fn processes_bite_and_the_exit_says_so(fixture: &Fixture) -> anyhow::Result<()> {
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

async fn a_full_box_says_that_it_is_full(fixture: &Fixture) -> anyhow::Result<()> {
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
    // Ending one makes room, so a full box can be saved.
    for sleeper in sleepers.drain(..4) {
        sleeper
            .control
            .signal(9, boxwood_backend::Scope::Tree)
            .await?;
        sleeper.control.wait().await;
    }
    test_box.assert_responsive().await
}

/// Which part of a processor a loop without an end gets. Its own time is counted, so that a machine that
/// is busy with something else can only make it less.
const WORK: &str = "
import time
began, used = time.monotonic(), time.process_time()
while time.monotonic() < began + 1.5:
    for _ in range(2000): pass
print((time.process_time() - used) / (time.monotonic() - began))";

async fn processor_time_bites(fixture: &Fixture) -> anyhow::Result<()> {
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
