//! A shell on a terminal, with what was typed there.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{adopt_one, end_of, kept, remember};
use crate::suite::held::request;
use crate::suite::{Bench, Wish};
use crate::{ExitStatus, Process, Stdio, TerminalSize};

async fn until(process: &mut Process, word: &str) -> anyhow::Result<()> {
    let mut seen = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&seen).contains(word) {
            seen.push(process.stdout.read_u8().await?);
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(20), reading)
        .await
        .with_context(|| format!("{word:?} never came"))?
}

pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    let held = bench.start(&Wish::new()).await?;
    let mut asked = kept(request(&["/bin/sh"]), "shell");
    asked.stdio = Stdio::Terminal(TerminalSize { rows: 24, cols: 80 });
    let mut process = held.process(asked).await?;
    let stdin = process.stdin.as_mut().context("no stdin")?;
    stdin.write_all(b"word=remembered; echo be''fore\n").await?;
    until(&mut process, "before").await?;
    remember(&held, &json!({})).await?;
    Ok(vec![process])
}

pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
    let mut found = adopt_one(bench).await?;
    let mut process = found.take("shell")?.process;
    process
        .control
        .resize(TerminalSize { rows: 11, cols: 22 })?;
    let stdin = process.stdin.as_mut().context("no stdin")?;
    stdin.write_all(b"echo $word$word; stty size\n").await?;
    until(&mut process, "rememberedremembered").await?;
    until(&mut process, "11 22").await?;
    let stdin = process.stdin.as_mut().context("no stdin")?;
    stdin.write_all(b"exit 4\n").await?;
    ensure!(end_of(&process.control).await?.status == ExitStatus::Code(4));
    Ok(())
}
