//! Freezing and thawing: all processes of a box stop and continue, without a signal or other side effects.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::harness::case::cases;
use crate::harness::fork_tree::{GROWING, grows, grows_no_more};
use crate::harness::host_side::{host_pids_with, marker, wait_for_processes, wait_until_gone};
use crate::harness::test_box::request;
use crate::{BoxSpec, Fixture, TestBox};
use boxwood_backend::{ExitStatus, FileAnswer, FileCall, OpenFor, Scope};

cases! { "freeze":
    a_frozen_program_stops_and_continues needs Files,
    a_frozen_program_gets_no_signal needs Files,
    a_growing_tree_is_frozen_as_a_whole needs HostKernel,
    a_frozen_box_can_be_stopped needs HostKernel,
    a_frozen_tree_can_be_killed needs HostKernel,
    freezing_and_thawing_may_be_repeated,
    commands_after_a_thaw_run_as_before,
    other_boxes_are_not_frozen,
}

const FROZEN_FOR: Duration = Duration::from_millis(400);

/// Counts in a file, and records every signal that it gets.
const COUNTER: &str = "
import os, signal, time
seen = []
for number in range(1, 65):
    if number not in (signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP):
        try: signal.signal(number, lambda got, frame: seen.append(got))
        except (OSError, ValueError): pass
count = 0
while not os.path.exists('/workspace/enough'):
    count += 1
    with open('/workspace/next', 'w') as file: file.write('%d %r' % (count, seen))
    os.rename('/workspace/next', '/workspace/count')
    time.sleep(0.005)
print('signals', seen)";

/// Freezes the box. Returns false if it does not support that.
async fn freeze(test_box: &TestBox) -> anyhow::Result<bool> {
    tokio::time::timeout(Duration::from_secs(10), test_box.sandbox().freeze())
        .await
        .context("freezing does not end")?
        .context("freezing")
}

/// Returns true if the process is in a cgroup of its command. Only boxes with such cgroups can be frozen.
fn has_cgroup_of_its_command(pid: u32) -> anyhow::Result<bool> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let last = unified.and_then(|path| path.rsplit('/').next());
    let number = last.and_then(|name| name.strip_prefix('e'));
    Ok(number.is_some_and(|number| number.parse::<u64>().is_ok()))
}

async fn thaw(test_box: &TestBox) -> anyhow::Result<()> {
    tokio::time::timeout(Duration::from_secs(10), test_box.sandbox().thaw())
        .await
        .context("thawing does not end")?
        .context("thawing")
}

/// Reads the file through init, which is not frozen.
async fn count(test_box: &TestBox) -> anyhow::Result<u64> {
    let call = FileCall::Open {
        path: "/workspace/count".to_owned(),
        how: OpenFor::Read,
    };
    let FileAnswer::Opened { mut file, .. } = test_box.file(call).await? else {
        bail!("opening a file gave no file");
    };
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let number = text.split(' ').next().unwrap_or_default();
    number.parse().with_context(|| format!("{text:?}"))
}

async fn continues(test_box: &TestBox) -> anyhow::Result<()> {
    let before = count(test_box).await.unwrap_or(0);
    for _ in 0..500 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if count(test_box).await.is_ok_and(|now| now > before) {
            return Ok(());
        }
    }
    bail!("the program does not continue")
}

async fn a_frozen_program_stops_and_continues(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let running = test_box.spawn(request(&["python3", "-c", COUNTER])).await?;
    continues(&test_box).await?;
    for _ in 0..3 {
        if freeze(&test_box).await? {
            let before = count(&test_box).await?;
            tokio::time::sleep(FROZEN_FOR).await;
            let after = count(&test_box).await?;
            ensure!(before == after, "frozen, and {before} became {after}");
        } else {
            continues(&test_box).await?;
        }
        thaw(&test_box).await?;
        continues(&test_box).await?;
    }
    running.control.signal(9, Scope::Tree).await?;
    test_box.assert_responsive().await
}

async fn a_frozen_program_gets_no_signal(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let running = test_box.spawn(request(&["python3", "-c", COUNTER])).await?;
    continues(&test_box).await?;
    for _ in 0..5 {
        freeze(&test_box).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
        thaw(&test_box).await?;
        continues(&test_box).await?;
    }
    test_box.stdout_of("touch /workspace/enough").await?;
    let ran = running.finish_within(Duration::from_secs(10)).await?;
    ensure!(
        ran.code() == Some(0) && ran.out() == "signals []\n",
        "{:?} {:?}",
        ran.exit,
        ran.out()
    );
    Ok(())
}

async fn a_growing_tree_is_frozen_as_a_whole(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mark = marker("growing");
    let running = test_box
        .spawn(request(&["python3", "-c", GROWING, &mark]))
        .await?;
    grows(&test_box).await?;
    // The root of the tree sleeps; the other processes end after a moment.
    let pids = wait_for_processes(&mark, 1).await?;
    let mut results = pids
        .iter()
        .filter_map(|&pid| has_cgroup_of_its_command(pid).ok());
    let expected = results.next().context("no process was found")?;
    let frozen = freeze(&test_box).await?;
    ensure!(frozen == expected, "frozen: {frozen}, expected: {expected}");
    if frozen {
        let now = || host_pids_with(&mark).into_iter().collect::<BTreeSet<_>>();
        let before = now();
        // The root and at least one more process, which cannot fork the next.
        ensure!(before.len() >= 2, "the tree is not there: {before:?}");
        tokio::time::sleep(FROZEN_FOR).await;
        ensure!(now() == before, "{before:?} became {:?}", now());
        thaw(&test_box).await?;
        let changes = async {
            while now() == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), changes)
            .await
            .context("the tree does not continue")?;
    }
    running.control.signal(9, Scope::Tree).await?;
    wait_until_gone(&mark).await?;
    grows_no_more(&test_box).await?;
    test_box.assert_responsive().await
}

async fn a_frozen_box_can_be_stopped(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mark = marker("frozen");
    let running = test_box
        .spawn(request(&["python3", "-c", GROWING, &mark]))
        .await?;
    grows(&test_box).await?;
    wait_for_processes(&mark, 1).await?;
    freeze(&test_box).await?;
    test_box.stop().await?;
    wait_until_gone(&mark).await?;
    let ran = running.finish_within(Duration::from_secs(10)).await?;
    ensure!(
        matches!(ran.exit.status, ExitStatus::BoxGone | ExitStatus::Signal(9)),
        "{:?}",
        ran.exit
    );
    Ok(())
}

async fn a_frozen_tree_can_be_killed(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mark = marker("frozen-tree");
    let running = test_box
        .spawn(request(&["python3", "-c", GROWING, &mark]))
        .await?;
    grows(&test_box).await?;
    wait_for_processes(&mark, 1).await?;
    freeze(&test_box).await?;
    running.control.signal(9, Scope::Tree).await?;
    let exit = tokio::time::timeout(Duration::from_secs(10), running.control.wait())
        .await
        .context("a frozen program does not die")?;
    ensure!(exit.status == ExitStatus::Signal(9), "{exit:?}");
    wait_until_gone(&mark).await?;
    thaw(&test_box).await?;
    grows_no_more(&test_box).await?;
    test_box.assert_responsive().await
}

async fn freezing_and_thawing_may_be_repeated(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    thaw(&test_box).await?;
    let first = freeze(&test_box).await?;
    ensure!(
        first == freeze(&test_box).await?,
        "the second freeze has another result"
    );
    let both = tokio::join!(test_box.sandbox().thaw(), test_box.sandbox().thaw());
    both.0?;
    both.1?;
    test_box.assert_responsive().await?;
    test_box.stop().await?;
    // Thawing a stopped box may fail, but must return.
    test_box.sandbox().thaw().await.ok();
    Ok(())
}

/// What a backend reuses between commands, such as cgroups, must not stay frozen.
async fn commands_after_a_thaw_run_as_before(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    for round in 0..8 {
        let left = test_box.spawn(request(&["sleep", "600"])).await?;
        // A command that ends leaves its cgroup to the next one.
        test_box.assert_responsive().await?;
        freeze(&test_box).await?;
        if round % 2 == 0 {
            left.control.signal(9, Scope::Process).await?;
        }
        thaw(&test_box).await?;
        for _ in 0..3 {
            let ran = test_box.sh("echo after").await?;
            ensure!(
                ran.code() == Some(0) && ran.out() == "after\n",
                "round {round}: {:?}",
                ran.exit
            );
        }
        if round % 2 == 1 {
            left.control.signal(9, Scope::Tree).await?;
        }
        left.finish_within(Duration::from_secs(10)).await?;
    }
    Ok(())
}

async fn other_boxes_are_not_frozen(fixture: &Fixture) -> anyhow::Result<()> {
    let (test_box, other) = (
        fixture.start(&BoxSpec::new()).await?,
        fixture.start(&BoxSpec::new()).await?,
    );
    let running = test_box.spawn(request(&["sleep", "600"])).await?;
    freeze(&test_box).await?;
    other.assert_responsive().await?;
    thaw(&test_box).await?;
    running.control.signal(9, Scope::Tree).await?;
    test_box.assert_responsive().await
}
