//! Files that whoever started a program wants to survive with it, and where each stands.

use std::future::poll_fn;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::json;

use super::{adopt_one, end_of, remember, with_pipes};
use crate::suite::held::request;
use crate::suite::{Bench, Wish};
use crate::{ExitStatus, Keep, Process};

fn content(file: &OwnedFd) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0; 64];
    let read = rustix::io::pread(file, &mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
    let held = bench.start(&Wish::new()).await?;
    let taken_in = Arc::new(memfd_create("out", MemfdFlags::CLOEXEC)?);
    let to_give = Arc::new(memfd_create("in", MemfdFlags::CLOEXEC)?);
    rustix::io::pwrite(&*to_give, b"first second ", 0)?;
    let mut asked = with_pipes(request(&["cat"]));
    asked.keep = Some(Keep {
        note: b"cat".to_vec(),
        files: vec![Arc::clone(&taken_in), Arc::clone(&to_give)],
    });
    let mut cat = held.process(asked).await?;
    let stdin = cat.stdin.as_mut().context("no stdin")?;
    let feed = poll_fn(|context| Pin::new(&mut **stdin).poll_feed(context, to_give.as_fd(), 6));
    ensure!(feed.await? == 6);
    let stdout = &mut cat.stdout;
    let moved = poll_fn(|context| Pin::new(&mut **stdout).poll_move(context, taken_in.as_fd(), 99));
    ensure!(moved.await? == 6);
    remember(&held, &json!({})).await?;
    Ok(vec![cat])
}

pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
    let mut found = adopt_one(bench).await?;
    let cat = found.take("cat")?;
    let [taken_in, to_give]: [OwnedFd; 2] = cat
        .files
        .try_into()
        .map_err(|files: Vec<_>| anyhow::anyhow!("{} files", files.len()))?;
    ensure!(content(&taken_in)? == b"first ");
    // Where each stood is known by the files alone.
    ensure!(rustix::fs::tell(&taken_in)? == 6 && rustix::fs::tell(&to_give)? == 6);
    let mut process = cat.process;
    let mut stdin = process.stdin.take().context("no stdin")?;
    let feed = poll_fn(|context| Pin::new(&mut *stdin).poll_feed(context, to_give.as_fd(), 99));
    ensure!(feed.await? == 7);
    let stdout = &mut process.stdout;
    let moved = poll_fn(|context| Pin::new(&mut **stdout).poll_move(context, taken_in.as_fd(), 99));
    ensure!(moved.await? == 7);
    ensure!(content(&taken_in)? == b"first second ");
    drop(stdin);
    ensure!(end_of(&process.control).await?.status == ExitStatus::Code(0));
    Ok(())
}
