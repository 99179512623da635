//! Programs that run on, and how those ended that did not.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::json;

use super::{COMMANDS, adopt_one, end_of, facts, kept, line, remember};
use crate::suite::held::{request, shell};
use crate::suite::{Bench, Wish};
use crate::{ExitStatus, Process, Scope};

pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    let held = bench.start(&Wish::new()).await?;
    let mut lasting = held
        .process(kept(shell("echo $$; exec sleep 3001"), "lasting"))
        .await?;
    let pid = line(&mut lasting).await?;
    let ended = held.process(kept(shell("exit 3"), "ended")).await?;
    ensure!(end_of(&ended.control).await?.status == ExitStatus::Code(3));
    let ending = held
        .process(kept(shell("sleep 0.5; exit 7"), "ending"))
        .await?;
    let killed = held
        .process(kept(shell("sleep 0.5; kill -9 $$"), "killed"))
        .await?;
    // Dropped, so nobody asks for it again.
    drop(held.process(kept(shell("true"), "forgotten")).await?);
    let unkept = held.process(request(&["sleep", "3002"])).await?;
    remember(&held, &json!({ "pid": pid })).await?;
    Ok(vec![lasting, ended, ending, killed, unkept])
}

pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
    let mut found = adopt_one(bench).await?;
    let pid = facts(&found)?["pid"].as_str().context("no pid")?.to_owned();
    for (note, status) in [
        ("ended", ExitStatus::Code(3)),
        ("ending", ExitStatus::Code(7)),
        ("killed", ExitStatus::Signal(9)),
    ] {
        let exit = end_of(&found.take(note)?.process.control).await?;
        ensure!(exit.status == status, "{note}: {exit:?}");
    }
    let lasting = found.take("lasting")?.process;
    ensure!(found.processes.is_empty(), "more was kept than was asked");
    let running = found.held.says(&format!("cat /proc/{pid}/cmdline")).await?;
    ensure!(running == "sleep\u{0}3001\u{0}", "{pid} is {running:?}");
    let all = found.held.says(COMMANDS).await?;
    ensure!(!all.contains("sleep 3002"), "{all:?} has what nobody kept");
    lasting.control.signal(15, Scope::Process).await?;
    let exit = end_of(&lasting.control).await?;
    ensure!(exit.status == ExitStatus::Signal(15), "{exit:?}");
    // A tree started now is held together as ever.
    let tree = found
        .held
        .process(kept(shell("sleep 3003 & sleep 3003"), "tree"))
        .await?;
    tree.control.signal(9, Scope::Tree).await?;
    end_of(&tree.control).await?;
    for _ in 0..100 {
        if !found.held.says(COMMANDS).await?.contains("sleep 3003") {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("half a tree lives on")
}
