//! Ending a command and everything it started, and nothing else.

use std::time::{Duration, Instant};

use anyhow::ensure;
use boxwood_api::Mechanism;

use crate::harness::case::cases;
use crate::harness::fork_tree::{GROWING, grows, grows_no_more};
use crate::harness::host_side::{host_pids_with, marker, wait_for_processes, wait_until_gone};
use crate::harness::test_box::{request, shell};
use crate::{BoxSpec, Fixture, TestBox};
use boxwood_backend::{ExitStatus, ProcessControl, Scope};

cases! { "kill":
    a_plain_tree_dies needs HostKernel,
    a_new_session_dies needs HostKernel,
    a_double_fork_dies needs HostKernel,
    a_stopped_process_dies needs HostKernel,
    one_that_ignores_signals_dies needs HostKernel,
    one_that_resets_its_parent_death_signal_dies needs HostKernel,
    a_subreaper_dies_with_its_children needs HostKernel,
    a_growing_tree_dies needs HostKernel,
    a_tree_whose_root_has_ended_dies needs HostKernel,
    the_other_programs_of_the_box_live_on needs HostKernel,
    commands_after_a_kill_run_as_before,
    stop_takes_everything_however_hidden needs HostKernel,
}

// Python programs with descendants that are hard to find or to kill. Each process has the marker in its arguments.

const DOUBLE_FORK: &str = "
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        os.chdir('/')
        while True: time.sleep(1)
    os._exit(0)
time.sleep(600)";

const IGNORING: &str = "
import os, signal, sys, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
os.fork(); os.fork()
while True: time.sleep(1)";

const STOPPED: &str = "
import os, signal, time
if os.fork() == 0:
    os.setsid()
    os.kill(os.getpid(), signal.SIGSTOP)
if os.fork() == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(600)";

const NO_PARENT_DEATH: &str = "
import ctypes, os, time
libc = ctypes.CDLL(None)
if os.fork() == 0:
    libc.prctl(1, 0, 0, 0, 0)
    os.setsid()
    if os.fork() == 0:
        libc.prctl(1, 0, 0, 0, 0)
        while True: time.sleep(1)
    os._exit(0)
time.sleep(600)";

const SUBREAPER: &str = "
import ctypes, os, time
libc = ctypes.CDLL(None)
if os.fork() == 0:
    libc.prctl(36, 1, 0, 0, 0)
    os.setsid()
    for _ in range(8):
        if os.fork() == 0:
            if os.fork() == 0:
                os.setsid()
                while True: time.sleep(1)
            os._exit(0)
    while True: time.sleep(1)
time.sleep(600)";

const ROOT_ENDS: &str = "
import os, time
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        for fd in range(3): os.close(fd)
        while True: time.sleep(1)
time.sleep(0.5)";

fn marked(program: &str, mark: &str) -> boxwood_backend::SpawnRequest {
    request(&["python3", "-c", program, mark])
}

/// Waits until the host sees `count` processes of the program, and then for their steps after the last fork.
async fn wait_until_started(mark: &str, count: usize) -> anyhow::Result<()> {
    wait_for_processes(mark, count).await?;
    tokio::time::sleep(Duration::from_millis(150)).await;
    Ok(())
}

/// Starts the program in a box and kills it when all its processes exist. None of them may be left, and other programs
/// in the box must not be affected.
async fn dies(fixture: &Fixture, program: &str, count: usize) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mark = marker("tree");
    let running = test_box.spawn(marked(program, &mark)).await?;
    wait_until_started(&mark, count).await?;
    dies_alone(fixture, &test_box, running.control.as_ref(), &mark).await?;
    test_box.assert_responsive().await
}

async fn dies_alone(
    fixture: &Fixture,
    test_box: &TestBox,
    control: &dyn ProcessControl,
    mark: &str,
) -> anyhow::Result<()> {
    let bystander = marker("bystander");
    let other = test_box
        .spawn(request(&[
            "/bin/sh",
            "-c",
            "while :; do sleep 1; done",
            &bystander,
        ]))
        .await?;
    wait_for_processes(&bystander, 1).await?;
    let began = Instant::now();
    control.signal(9, Scope::Tree).await?;
    let exit = control.wait().await;
    ensure!(exit.status == ExitStatus::Signal(9), "{exit:?}");
    wait_until_gone(mark).await?;
    ensure!(
        began.elapsed() < Duration::from_secs(5),
        "took {:?}",
        began.elapsed()
    );
    // The shell, and for a moment its fork that has not executed `sleep` yet.
    ensure!(
        !host_pids_with(&bystander).is_empty(),
        "another program of the box was killed"
    );
    other.control.signal(9, Scope::Tree).await?;
    label_agrees(fixture, test_box)
}

fn label_agrees(fixture: &Fixture, test_box: &TestBox) -> anyhow::Result<()> {
    let label = test_box.sandbox().label();
    ensure!(
        fixture.host().expects(Mechanism::TreeKill) == label.has(Mechanism::TreeKill),
        "{label:?}"
    );
    Ok(())
}

async fn a_plain_tree_dies(fixture: &Fixture) -> anyhow::Result<()> {
    dies(
        fixture,
        "import os, time\nfor _ in range(3): os.fork()\ntime.sleep(600)",
        8,
    )
    .await
}

async fn a_new_session_dies(fixture: &Fixture) -> anyhow::Result<()> {
    dies(
        fixture,
        "import os, time\nif os.fork() == 0: os.setsid()\ntime.sleep(600)",
        2,
    )
    .await
}

async fn a_double_fork_dies(fixture: &Fixture) -> anyhow::Result<()> {
    dies(fixture, DOUBLE_FORK, 2).await
}

async fn a_stopped_process_dies(fixture: &Fixture) -> anyhow::Result<()> {
    dies(fixture, STOPPED, 3).await
}

async fn one_that_ignores_signals_dies(fixture: &Fixture) -> anyhow::Result<()> {
    dies(fixture, IGNORING, 4).await
}

async fn one_that_resets_its_parent_death_signal_dies(fixture: &Fixture) -> anyhow::Result<()> {
    dies(fixture, NO_PARENT_DEATH, 2).await
}

async fn a_subreaper_dies_with_its_children(fixture: &Fixture) -> anyhow::Result<()> {
    dies(fixture, SUBREAPER, 10).await
}

async fn a_growing_tree_dies(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mark = marker("growing");
    let running = test_box.spawn(marked(GROWING, &mark)).await?;
    grows(&test_box).await?;
    dies_alone(fixture, &test_box, running.control.as_ref(), &mark).await?;
    grows_no_more(&test_box).await?;
    test_box.assert_responsive().await
}

async fn a_tree_whose_root_has_ended_dies(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mark = marker("orphans");
    let running = test_box.spawn(marked(ROOT_ENDS, &mark)).await?;
    wait_until_started(&mark, 4).await?;
    let exit = running.control.wait().await;
    ensure!(exit.status == ExitStatus::Code(0), "{exit:?}");
    // The rest of the tree can be killed through the handle. A backend may also report that the program has ended; then
    // the rest of the tree ends with the box.
    match running.control.signal(9, Scope::Tree).await {
        Ok(()) => wait_until_gone(&mark).await?,
        Err(boxwood_backend::ControlError::Ended) => {
            test_box.stop().await?;
            return wait_until_gone(&mark).await;
        }
        Err(other) => return Err(other.into()),
    }
    test_box.assert_responsive().await
}

async fn the_other_programs_of_the_box_live_on(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let first = marker("first");
    let second = marker("second");
    let one = test_box.spawn(marked(DOUBLE_FORK, &first)).await?;
    let two = test_box.spawn(marked(DOUBLE_FORK, &second)).await?;
    wait_until_started(&first, 2).await?;
    wait_until_started(&second, 2).await?;
    one.control.signal(9, Scope::Tree).await?;
    wait_until_gone(&first).await?;
    ensure!(
        host_pids_with(&second).len() == 2,
        "another command was killed"
    );
    test_box.stdout_of("echo kept > /workspace/kept").await?;
    two.control.signal(9, Scope::Tree).await?;
    wait_until_gone(&second).await?;
    ensure!(test_box.stdout_of("cat /workspace/kept").await? == "kept\n");
    Ok(())
}

/// What a backend reuses between commands, such as cgroups, must not kill the next command.
async fn commands_after_a_kill_run_as_before(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    for round in 0..10 {
        let running = test_box.spawn(request(&["sleep", "600"])).await?;
        running.control.signal(9, Scope::Tree).await?;
        let exit = running.control.wait().await;
        ensure!(exit.status == ExitStatus::Signal(9), "{exit:?}");
        for _ in 0..3 {
            let ran = test_box.sh("echo after").await?;
            ensure!(
                ran.code() == Some(0) && ran.out() == "after\n",
                "round {round}: {:?}",
                ran.exit
            );
        }
    }
    Ok(())
}

async fn stop_takes_everything_however_hidden(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mark = marker("hidden");
    let mut expected = 0;
    for (program, count) in [
        (DOUBLE_FORK, 2),
        (IGNORING, 4),
        (STOPPED, 3),
        (SUBREAPER, 10),
    ] {
        drop(test_box.process(marked(program, &mark)).await?);
        expected += count;
    }
    drop(
        test_box
            .process(shell(&format!(
                "nohup sh -c 'while :; do sleep 1; done' {mark} & "
            )))
            .await?,
    );
    wait_until_started(&mark, expected).await?;
    test_box.stop().await?;
    ensure!(
        host_pids_with(&mark).is_empty(),
        "after stop: {:?}",
        host_pids_with(&mark)
    );
    Ok(())
}
