//! PID 1 of the box.

use std::time::{Duration, Instant};

use anyhow::ensure;
use boxwood_api::Mechanism;
use boxwood_policy::BoxUser;

use crate::escape::attack::attack;
use crate::harness::case::cases;
use crate::{BoxSpec, Fixture};

cases! { "init":
    cannot_stop_read_slow_or_speak_to_init needs HostKernel,
    cannot_stop_read_slow_or_speak_to_init_as_root_inside,
    cannot_starve_init,
    cannot_inherit_a_descriptor needs HostKernel,
    cannot_kill_the_supervisor_of_another_command,
}

async fn cannot_stop_read_slow_or_speak_to_init(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let separate = test_box.sandbox().label().has(Mechanism::SeparateInitUid);
    ensure!(separate == fixture.host().expects(Mechanism::SeparateInitUid));
    let args: &[&str] = if separate { &[] } else { &["same_uid"] };
    attack!("init", 45).assert_refused(&test_box, args).await?;
    test_box.assert_responsive().await
}

async fn cannot_stop_read_slow_or_speak_to_init_as_root_inside(
    fixture: &Fixture,
) -> anyhow::Result<()> {
    if !fixture.host().root_inside {
        return fixture.assert_no_root_inside().await;
    }
    let test_box = fixture.start(&BoxSpec::new().user(BoxUser::Root)).await?;
    // Root inside may have init's uid. Then signals are allowed, and must have no effect.
    let same = !test_box.sandbox().label().has(Mechanism::SeparateInitUid);
    let args: &[&str] = if same { &["same_uid"] } else { &[] };
    attack!("init", 45).assert_refused(&test_box, args).await?;
    test_box.assert_responsive().await
}

async fn cannot_starve_init(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new().pids(100)).await?;
    let spin = "
import os, threading
try: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
except OSError: pass
try: os.nice(-20)
except OSError: pass
for _ in range(60):
    threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()";
    let running = test_box
        .spawn(crate::harness::test_box::request(&["python3", "-c", spin]))
        .await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let began = Instant::now();
    test_box.assert_responsive().await?;
    ensure!(
        began.elapsed() < Duration::from_secs(10),
        "an exec took {:?}",
        began.elapsed()
    );
    running
        .control
        .signal(9, boxwood_backend::Scope::Tree)
        .await?;
    Ok(())
}

async fn cannot_inherit_a_descriptor(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    attack!("descriptors", 65)
        .assert_refused(&test_box, &[])
        .await?;
    // With other commands running, whose pipes the box's init may hold.
    let mut others = Vec::new();
    for _ in 0..5 {
        let mut spawn_request = crate::harness::test_box::request(&["sleep", "600"]);
        spawn_request.stdio = boxwood_backend::Stdio::Pipes;
        others.push(test_box.process(spawn_request).await?);
    }
    attack!("descriptors", 65)
        .assert_refused(&test_box, &[])
        .await?;
    Ok(())
}

async fn cannot_kill_the_supervisor_of_another_command(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let running = test_box
        .spawn(crate::harness::test_box::request(&["sleep", "600"]))
        .await?;
    test_box.assert_isolated().await?;
    // The command counts as started before it has its own uid; the signals would miss it until then. A loop without a
    // pause, because that would be a `sleep` too.
    test_box
        .sh("until grep -qsx sleep /proc/[0-9]*/comm; do :; done")
        .await?;
    // Everything that does not belong to the commands must survive signals of a command.
    test_box
        .sh("kill -9 -1; for p in /proc/[0-9]*; do kill -9 ${p#/proc/} 2>/dev/null; done")
        .await?;
    let ran = running.finish_within(Duration::from_secs(10)).await?;
    // A command may kill another one with the same uid; its end is still reported exactly.
    ensure!(
        ran.exit.status == boxwood_backend::ExitStatus::Signal(9),
        "{:?}",
        ran.exit
    );
    test_box.assert_responsive().await
}
