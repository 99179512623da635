//! PID 1 of the box.

use std::time::{Duration, Instant};

use anyhow::ensure;
use boxwood_api::Mechanism;
use boxwood_policy::BoxUser;

use crate::suite::attack::attack;
use crate::suite::case::cases;
use crate::suite::{Bench, Wish};

cases! { "init":
    cannot_stop_read_slow_or_speak_to_init needs HostsOwnKernel,
    cannot_stop_read_slow_or_speak_to_init_as_root_inside,
    cannot_starve_init,
    cannot_inherit_a_descriptor needs HostsOwnKernel,
    cannot_kill_the_supervisor_of_another_command,
}

async fn cannot_stop_read_slow_or_speak_to_init(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let separate = held.sandbox().label().has(Mechanism::SeparateInitUid);
    ensure!(separate == bench.host().expects(Mechanism::SeparateInitUid));
    let args: &[&str] = if separate { &[] } else { &["same_uid"] };
    attack!("init", 45).held(&held, args).await?;
    held.is_well().await
}

async fn cannot_stop_read_slow_or_speak_to_init_as_root_inside(
    bench: &Bench,
) -> anyhow::Result<()> {
    if !bench.host().root_inside {
        return bench.has_no_root_inside().await;
    }
    let held = bench.start(&Wish::new().user(BoxUser::Root)).await?;
    // Root inside may or may not be init's own uid; nothing but a signal without effect may pass.
    let same = !held.sandbox().label().has(Mechanism::SeparateInitUid);
    let args: &[&str] = if same { &["same_uid"] } else { &[] };
    attack!("init", 45).held(&held, args).await?;
    held.is_well().await
}

async fn cannot_starve_init(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new().pids(100)).await?;
    let spin = "
import os, threading
try: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
except OSError: pass
try: os.nice(-20)
except OSError: pass
for _ in range(60):
    threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()";
    let running = held
        .spawn(crate::suite::held::request(&["python3", "-c", spin]))
        .await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let began = Instant::now();
    held.is_well().await?;
    ensure!(
        began.elapsed() < Duration::from_secs(10),
        "an exec took {:?}",
        began.elapsed()
    );
    running.control.signal(9, crate::Scope::Tree).await?;
    Ok(())
}

async fn cannot_inherit_a_descriptor(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    attack!("descriptors", 65).held(&held, &[]).await?;
    // With other commands running, whose pipes the box's init may hold.
    let mut others = Vec::new();
    for _ in 0..5 {
        let mut asked = crate::suite::held::request(&["sleep", "600"]);
        asked.stdio = crate::Stdio::Pipes;
        others.push(held.process(asked).await?);
    }
    attack!("descriptors", 65).held(&held, &[]).await?;
    Ok(())
}

async fn cannot_kill_the_supervisor_of_another_command(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let running = held
        .spawn(crate::suite::held::request(&["sleep", "600"]))
        .await?;
    held.has_walls().await?;
    // Everything that is not the commands' own must survive the commands' worst.
    held.sh("kill -9 -1; for p in /proc/[0-9]*; do kill -9 ${p#/proc/} 2>/dev/null; done")
        .await?;
    let ran = running.finish_within(Duration::from_secs(10)).await?;
    // The sleeper is fair game for its own uid, but its end is still told exactly.
    ensure!(
        ran.exit.status == crate::ExitStatus::Signal(9),
        "{:?}",
        ran.exit
    );
    held.is_well().await
}
