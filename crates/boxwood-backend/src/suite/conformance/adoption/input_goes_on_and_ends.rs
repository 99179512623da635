//! Input that comes from two daemons, and its end.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::{adopt_one, end_of, kept, line, remember, with_pipes};
use crate::suite::held::{request, shell};
use crate::suite::{Bench, Wish};
use crate::{ExitStatus, Process};

pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    let held = bench.start(&Wish::new()).await?;
    let mut echo = held
        .process(kept(with_pipes(request(&["cat"])), "echo"))
        .await?;
    let stdin = echo.stdin.as_mut().context("no stdin")?;
    stdin.write_all(b"one\n").await?;
    ensure!(line(&mut echo).await? == "one");
    let script = "cat >/dev/null; echo over";
    let mut closed = held
        .process(kept(with_pipes(shell(script)), "closed"))
        .await?;
    drop(closed.stdin.take());
    remember(&held, &json!({})).await?;
    Ok(vec![echo, closed])
}

pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
    let mut found = adopt_one(bench).await?;
    let mut closed = found.take("closed")?.process;
    ensure!(closed.stdin.is_none(), "a stdin that was closed");
    ensure!(line(&mut closed).await? == "over");
    let mut echo = found.take("echo")?.process;
    for word in ["two", "three"] {
        let stdin = echo.stdin.as_mut().context("no stdin")?;
        stdin.write_all(format!("{word}\n").as_bytes()).await?;
        ensure!(line(&mut echo).await? == word);
    }
    drop(echo.stdin.take());
    ensure!(end_of(&echo.control).await?.status == ExitStatus::Code(0));
    // Nobody reads what it writes: it is told, although init held the pipe too.
    let yes = found.held.process(kept(request(&["yes"]), "yes")).await?;
    let control = Arc::clone(&yes.control);
    drop(yes);
    let exit = end_of(&control).await?;
    ensure!(exit.status != ExitStatus::Code(0), "{exit:?}");
    Ok(())
}
