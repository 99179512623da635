//! Start and stop of a box, and errors of a box that is gone.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use boxwood_api::{MountMode, ReadTextRequest};

use crate::harness::case::cases;
use crate::harness::host_side::{host_pids_with, marker, wait_for_processes, wait_until_gone};
use crate::harness::test_box::{request, shell};
use crate::{BoxSpec, Fixture, Host, Privilege, TestBox};
use boxwood_backend::{
    ControlError, ExitStatus, FileCall, FileError, FileTool, Progress, Scope, SpawnError,
};

cases! { "life":
    stop_ends_everything needs HostKernel,
    stop_may_be_called_twice,
    a_stopped_box_says_gone,
    programs_in_a_box_that_ends_fail_with_gone needs HostMounts,
    file_calls_in_a_box_that_ends_fail_with_gone needs Files,
    a_running_program_learns_that_its_box_is_gone,
    gone_resolves_when_init_is_killed needs HostKernel,
    a_dropped_start_leaves_nothing,
    boxes_start_and_stop_at_the_same_time,
}

async fn wait_until_box_gone(test_box: &TestBox) -> anyhow::Result<()> {
    tokio::time::timeout(Duration::from_secs(10), test_box.sandbox().gone())
        .await
        .context("gone() does not resolve")?;
    ensure!(
        !test_box.sandbox().is_alive(),
        "the box is alive after gone() has resolved"
    );
    Ok(())
}

async fn stop_ends_everything(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    ensure!(test_box.sandbox().is_alive());
    let mark = marker("living");
    let running = test_box
        .spawn(request(&[
            "/bin/sh",
            "-c",
            "while :; do sleep 1; done",
            &mark,
        ]))
        .await?;
    wait_for_processes(&mark, 1).await?;
    test_box.stop().await?;
    ensure!(host_pids_with(&mark).is_empty(), "alive after stop");
    wait_until_box_gone(&test_box).await?;
    drop(running);
    Ok(())
}

async fn stop_may_be_called_twice(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let (one, two) = tokio::join!(test_box.stop(), test_box.stop());
    one.context("the first of two stops at once")?;
    two.context("the second of two stops at once")?;
    test_box.stop().await.context("a stop after the stop")
}

async fn a_stopped_box_says_gone(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let running = test_box.spawn(request(&["sleep", "600"])).await?;
    test_box.stop().await?;
    let spawned = test_box.sandbox().spawn(shell("true")).await;
    ensure!(matches!(spawned, Err(SpawnError::Gone)), "spawn after stop");
    let call = FileCall::Stat {
        path: "/".to_owned(),
        follow: true,
    };
    let stat = test_box.sandbox().file(call).await;
    ensure!(matches!(stat, Err(FileError::Gone)), "{stat:?}");
    let signal = running.control.signal(15, Scope::Process).await;
    ensure!(
        matches!(signal, Err(ControlError::Gone | ControlError::Ended)),
        "{signal:?}"
    );
    Ok(())
}

/// The error is always `Gone`, not one about a part that is already removed: callers then run the command in a new box,
/// so it must not have run in this one.
async fn programs_in_a_box_that_ends_fail_with_gone(fixture: &Fixture) -> anyhow::Result<()> {
    for round in 0..5 {
        let directory = fixture.host_dir(&format!("going{round}"))?;
        let spec = BoxSpec::new().workspace(&directory, MountMode::Rw);
        let test_box = fixture.start(&spec).await?;
        let (some, more, stopped) = tokio::join!(
            spawn_until_gone(&test_box),
            spawn_until_gone(&test_box),
            soon_stopped(&test_box)
        );
        stopped?;
        let started = some? + more?;
        let ran = std::fs::read_to_string(directory.join("ran")).unwrap_or_default();
        let ran = ran.lines().count();
        ensure!(
            ran <= started,
            "{ran} commands ran, {started} were accepted"
        );
    }
    Ok(())
}

/// The number of commands that the box accepted until it was gone.
async fn spawn_until_gone(test_box: &TestBox) -> anyhow::Result<usize> {
    let mut started = 0;
    loop {
        match test_box.sandbox().spawn(shell("echo x >> ran")).await {
            Ok(_process) => started += 1,
            Err(SpawnError::Gone) => return Ok(started),
            // On a busy machine, commands start faster than they end.
            Err(SpawnError::PidsLimit) => tokio::task::yield_now().await,
            Err(error) => return Err(error).context("a command while the box stops"),
        }
    }
}

async fn soon_stopped(test_box: &TestBox) -> anyhow::Result<()> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    test_box.stop().await
}

async fn file_calls_in_a_box_that_ends_fail_with_gone(fixture: &Fixture) -> anyhow::Result<()> {
    let stat = || FileCall::Stat {
        path: "/".to_owned(),
        follow: true,
    };
    let list = || {
        FileCall::Tool(FileTool::Read(ReadTextRequest {
            path: "/".to_owned(),
            ..ReadTextRequest::default()
        }))
    };
    for _ in 0..5 {
        let test_box = fixture.start(&BoxSpec::new()).await?;
        let (calls, tools, stopped) = tokio::join!(
            call_until_gone(&test_box, stat),
            call_until_gone(&test_box, list),
            soon_stopped(&test_box)
        );
        calls.and(tools).and(stopped)?;
    }
    Ok(())
}

async fn call_until_gone(test_box: &TestBox, call: impl Fn() -> FileCall) -> anyhow::Result<()> {
    loop {
        match test_box.sandbox().file(call()).await {
            Ok(_answer) => {}
            Err(FileError::Gone) => return Ok(()),
            Err(error) => return Err(error).context("a file call while the box stops"),
        }
    }
}

async fn a_running_program_learns_that_its_box_is_gone(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let running = test_box
        .spawn(shell("echo before; touch said; sleep 600"))
        .await?;
    test_box
        .stdout_of("until [ -e said ]; do sleep 0.05; done")
        .await?;
    test_box.stop().await?;
    let ran = running.finish_within(Duration::from_secs(10)).await?;
    ensure!(
        matches!(ran.exit.status, ExitStatus::BoxGone | ExitStatus::Signal(9)),
        "{:?}",
        ran.exit
    );
    ensure!(
        ran.out() == "before\n",
        "output before the end was lost: {:?}",
        ran.out()
    );
    Ok(())
}

async fn gone_resolves_when_init_is_killed(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mark = marker("orphaned");
    let running = test_box
        .spawn(request(&[
            "/bin/sh",
            "-c",
            "while :; do sleep 1; done",
            &mark,
        ]))
        .await?;
    let pid = *wait_for_processes(&mark, 1)
        .await?
        .first()
        .context("no process")?;
    kill_from_the_host(fixture.host(), init_of(pid)?).await?;
    wait_until_box_gone(&test_box).await?;
    let ran = running.finish_within(Duration::from_secs(10)).await?;
    ensure!(
        matches!(ran.exit.status, ExitStatus::BoxGone | ExitStatus::Signal(9)),
        "{:?}",
        ran.exit
    );
    wait_until_gone(&mark).await?;
    let spawned = test_box.sandbox().spawn(shell("true")).await;
    ensure!(
        matches!(spawned, Err(SpawnError::Gone)),
        "a dead box accepted a command"
    );
    test_box.stop().await.context("stopping a box that died")?;
    // The backend still works.
    fixture
        .start(&BoxSpec::new())
        .await?
        .assert_responsive()
        .await
}

/// Walks up from a process of a box to its PID 1, in the host's numbers.
fn init_of(pid: u32) -> anyhow::Result<u32> {
    let mut current = pid;
    for _ in 0..64 {
        let status = std::fs::read_to_string(format!("/proc/{current}/status"))?;
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default()
                .to_owned()
        };
        let inside = field("NSpid:");
        if inside.split_whitespace().count() > 1 && inside.split_whitespace().last() == Some("1") {
            return Ok(current);
        }
        current = field("PPid:").trim().parse()?;
        ensure!(current > 1, "process {pid} has no init of its own above it");
    }
    bail!("process {pid} has no init among its 64 nearest ancestors")
}

/// If init runs with a subordinate uid, the user can signal it only as that uid.
const AS_SUBUID: &str = "
import os, sys
pid, uid = int(sys.argv[1]), int(sys.argv[2])
for line in open('/proc/self/uid_map'):
    inside, outside, count = map(int, line.split())
    if outside <= uid < outside + count:
        os.setresuid(*[inside + uid - outside] * 3)
        os.kill(pid, 9)
        sys.exit(0)
sys.exit('uid %d is not mapped' % uid)";

async fn kill_from_the_host(host: &Host, pid: u32) -> anyhow::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let mut command = match host.privilege {
        Privilege::Root | Privilege::Rootless { subuids: false } => {
            let mut kill = tokio::process::Command::new("/bin/kill");
            kill.args(["-9", &pid.to_string()]);
            kill
        }
        Privilege::Rootless { subuids: true } => {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
            let uid = status
                .lines()
                .find_map(|line| line.strip_prefix("Uid:"))
                .and_then(|ids| ids.split_whitespace().next())
                .map_or_else(
                    || std::fs::metadata(format!("/proc/{pid}")).map(|info| info.uid().to_string()),
                    |uid| Ok(uid.to_owned()),
                )?;
            let mut unshare = tokio::process::Command::new("/usr/bin/unshare");
            unshare.args([
                "--user",
                "--map-root-user",
                "--map-auto",
                "/usr/bin/python3",
                "-c",
            ]);
            unshare.args([AS_SUBUID, &pid.to_string(), &uid]);
            unshare
        }
    };
    let done = command.output().await?;
    ensure!(
        done.status.success(),
        "killing init from the host: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(())
}

async fn a_dropped_start_leaves_nothing(fixture: &Fixture) -> anyhow::Result<()> {
    let (spec, silent) = (BoxSpec::new().admit("dropped")?, Progress::silent());
    for micros in [0, 50, 200, 1_000, 3_000, 10_000, 30_000] {
        let recorder = boxwood_backend::StartRecorder::none();
        let starting = fixture.backend().start(&spec, &silent, &recorder);
        if let Ok(Ok(sandbox)) = tokio::time::timeout(Duration::from_micros(micros), starting).await
        {
            sandbox.stop().await?;
        }
    }
    // An unfinished box is removed in the background; the backend continues.
    fixture
        .start(&BoxSpec::new())
        .await?
        .assert_responsive()
        .await
}

async fn boxes_start_and_stop_at_the_same_time(fixture: &Fixture) -> anyhow::Result<()> {
    let (spec, silent) = (BoxSpec::new().admit("at-once")?, Progress::silent());
    let starts = (0..fixture.host().crowd.min(24)).map(|_| async {
        let sandbox = fixture
            .backend()
            .start(&spec, &silent, &boxwood_backend::StartRecorder::none())
            .await?;
        let test_box = TestBox::new(sandbox);
        test_box.assert_responsive().await?;
        test_box.stop().await
    });
    for outcome in futures_util::future::join_all(starts).await {
        outcome?;
    }
    Ok(())
}
