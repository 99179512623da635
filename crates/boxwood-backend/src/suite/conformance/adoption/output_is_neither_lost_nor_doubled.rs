//! Output that one daemon reads the beginning of, and another the end.

use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::io::AsyncReadExt as _;

use super::{adopt_one, end_of, kept, remember, rest};
use crate::suite::held::shell;
use crate::suite::{Bench, Wish};
use crate::{ExitStatus, Process};

const COUNT: usize = 60_000;
const READ: usize = 100_001;

/// What `seq` prints.
fn sequence(count: usize) -> Vec<u8> {
    let lines: Vec<String> = (1..=count).map(|number| format!("{number}\n")).collect();
    lines.concat().into_bytes()
}

pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    let held = bench.start(&Wish::new()).await?;
    let script = format!("seq {COUNT}; echo end >&2; exit 5");
    let mut process = held.process(kept(shell(&script), "seq")).await?;
    let mut first = vec![0; READ];
    process.stdout.read_exact(&mut first).await?;
    ensure!(first == sequence(COUNT)[..READ], "the first part is wrong");
    // As much as a pipe holds, and its writer long gone.
    let unread = held
        .process(kept(shell("seq 5000; echo more >&2"), "unread"))
        .await?;
    end_of(&unread.control).await?;
    remember(&held, &json!({})).await?;
    Ok(vec![process, unread])
}

pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
    let mut found = adopt_one(bench).await?;
    let mut process = found.take("seq")?.process;
    let got = rest(&mut process).await?;
    ensure!(
        got == sequence(COUNT)[READ..],
        "{} bytes are left, and not the right ones",
        got.len()
    );
    ensure!(end_of(&process.control).await?.status == ExitStatus::Code(5));
    let mut unread = found.take("unread")?.process;
    let got = rest(&mut unread).await?;
    ensure!(got == sequence(5000), "{} bytes were unread", got.len());
    let mut said = String::new();
    let mut stderr = unread.stderr.take().context("no stderr")?;
    stderr.read_to_string(&mut said).await?;
    ensure!(said == "more\n", "{said:?}");
    Ok(())
}
