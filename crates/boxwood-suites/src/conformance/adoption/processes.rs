//! Processes of an adopted box: their output, input, exits and kept files.

use super::{COMMANDS, adopt_one, end_of, facts, kept, line, remember, rest, with_pipes};
use crate::harness::test_box::{request, shell};
use crate::{BoxSpec, Fixture};
use anyhow::{Context as _, bail, ensure};
use boxwood_backend::{ExitStatus, Keep, Process, Scope, Stdio, TerminalSize};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::json;
use std::future::poll_fn;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(super) async fn processes_before(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut lasting = test_box
        .process(kept(shell("echo $$; exec sleep 3001"), "lasting"))
        .await?;
    let pid = line(&mut lasting).await?;
    let ended = test_box.process(kept(shell("exit 3"), "ended")).await?;
    ensure!(end_of(&ended.control).await?.status == ExitStatus::Code(3));
    let ending = test_box
        .process(kept(shell("sleep 0.5; exit 7"), "ending"))
        .await?;
    let killed = test_box
        .process(kept(shell("sleep 0.5; kill -9 $$"), "killed"))
        .await?;
    // Dropped, so it is not requested again.
    drop(test_box.process(kept(shell("true"), "forgotten")).await?);
    let unkept = test_box.process(request(&["sleep", "3002"])).await?;
    remember(&test_box, &json!({ "pid": pid })).await?;
    Ok(vec![lasting, ended, ending, killed, unkept])
}

pub(super) async fn processes_after(fixture: &Fixture) -> anyhow::Result<()> {
    let mut found = adopt_one(fixture).await?;
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
    ensure!(
        found.processes.is_empty(),
        "the box has kept processes that were not requested"
    );
    let running = found
        .test_box
        .stdout_of(&format!("cat /proc/{pid}/cmdline"))
        .await?;
    ensure!(running == "sleep\u{0}3001\u{0}", "{pid} is {running:?}");
    let all = found.test_box.stdout_of(COMMANDS).await?;
    ensure!(
        !all.contains("sleep 3002"),
        "{all:?} has a process that was not kept"
    );
    lasting.control.signal(15, Scope::Process).await?;
    let exit = end_of(&lasting.control).await?;
    ensure!(exit.status == ExitStatus::Signal(15), "{exit:?}");
    // The whole tree of a command started by this daemon is signalled.
    let tree = found
        .test_box
        .process(kept(shell("sleep 3003 & sleep 3003"), "tree"))
        .await?;
    tree.control.signal(9, Scope::Tree).await?;
    end_of(&tree.control).await?;
    for _ in 0..100 {
        if !found
            .test_box
            .stdout_of(COMMANDS)
            .await?
            .contains("sleep 3003")
        {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("processes of the killed tree are still running")
}

const COUNT: usize = 60_000;
const READ: usize = 100_001;
/// 3,893 bytes, less than a page.
const UNREAD_COUNT: usize = 1000;

/// What `seq` prints.
fn sequence(count: usize) -> Vec<u8> {
    let lines: Vec<String> = (1..=count).map(|number| format!("{number}\n")).collect();
    lines.concat().into_bytes()
}

pub(super) async fn output_before(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let script = format!("seq {COUNT}; echo end >&2; exit 5");
    let mut process = test_box.process(kept(shell(&script), "seq")).await?;
    let mut first = vec![0; READ];
    process.stdout.read_exact(&mut first).await?;
    ensure!(first == sequence(COUNT)[..READ], "the first part is wrong");
    // The writer has exited and its output is still in the pipe. A pipe holds only one or two pages once all pipes of a
    // user have `pipe-user-pages-soft` pages, for example while another test exhausts kernel memory with pipes.
    let script = format!("seq {UNREAD_COUNT}; echo more >&2");
    let unread = test_box.process(kept(shell(&script), "unread")).await?;
    end_of(&unread.control).await?;
    remember(&test_box, &json!({})).await?;
    Ok(vec![process, unread])
}

pub(super) async fn output_after(fixture: &Fixture) -> anyhow::Result<()> {
    let mut found = adopt_one(fixture).await?;
    let mut process = found.take("seq")?.process;
    let got = rest(&mut process).await?;
    ensure!(
        got == sequence(COUNT)[READ..],
        "the {} bytes that were not yet read have the wrong content",
        got.len()
    );
    ensure!(end_of(&process.control).await?.status == ExitStatus::Code(5));
    let mut unread = found.take("unread")?.process;
    let got = rest(&mut unread).await?;
    ensure!(
        got == sequence(UNREAD_COUNT),
        "{} bytes were unread",
        got.len()
    );
    let mut text = String::new();
    let mut stderr = unread.stderr.take().context("no stderr")?;
    stderr.read_to_string(&mut text).await?;
    ensure!(text == "more\n", "{text:?}");
    Ok(())
}

pub(super) async fn stdin_before(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut echo = test_box
        .process(kept(with_pipes(request(&["cat"])), "echo"))
        .await?;
    let stdin = echo.stdin.as_mut().context("no stdin")?;
    stdin.write_all(b"one\n").await?;
    ensure!(line(&mut echo).await? == "one");
    let script = "cat >/dev/null; echo over";
    let mut closed = test_box
        .process(kept(with_pipes(shell(script)), "closed"))
        .await?;
    drop(closed.stdin.take());
    remember(&test_box, &json!({})).await?;
    Ok(vec![echo, closed])
}

pub(super) async fn stdin_after(fixture: &Fixture) -> anyhow::Result<()> {
    let mut found = adopt_one(fixture).await?;
    let mut closed = found.take("closed")?.process;
    ensure!(closed.stdin.is_none(), "a closed stdin is open again");
    ensure!(line(&mut closed).await? == "over");
    let mut echo = found.take("echo")?.process;
    for word in ["two", "three"] {
        let stdin = echo.stdin.as_mut().context("no stdin")?;
        stdin.write_all(format!("{word}\n").as_bytes()).await?;
        ensure!(line(&mut echo).await? == word);
    }
    drop(echo.stdin.take());
    ensure!(end_of(&echo.control).await?.status == ExitStatus::Code(0));
    // The pipe has no reader: the program gets SIGPIPE, although init held the pipe too.
    let yes = found
        .test_box
        .process(kept(request(&["yes"]), "yes"))
        .await?;
    let control = Arc::clone(&yes.control);
    drop(yes);
    let exit = end_of(&control).await?;
    ensure!(exit.status != ExitStatus::Code(0), "{exit:?}");
    Ok(())
}

fn content(file: &OwnedFd) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0; 64];
    let read = rustix::io::pread(file, &mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

pub(super) async fn kept_files_before(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let taken_in = Arc::new(memfd_create("out", MemfdFlags::CLOEXEC)?);
    let to_give = Arc::new(memfd_create("in", MemfdFlags::CLOEXEC)?);
    rustix::io::pwrite(&*to_give, b"first second ", 0)?;
    let mut spawn_request = with_pipes(request(&["cat"]));
    spawn_request.keep = Some(Keep {
        note: b"cat".to_vec(),
        files: vec![Arc::clone(&taken_in), Arc::clone(&to_give)],
    });
    let mut cat = test_box.process(spawn_request).await?;
    let stdin = cat.stdin.as_mut().context("no stdin")?;
    let feed = poll_fn(|context| Pin::new(&mut **stdin).poll_feed(context, to_give.as_fd(), 6));
    ensure!(feed.await? == 6);
    let stdout = &mut cat.stdout;
    let moved = poll_fn(|context| Pin::new(&mut **stdout).poll_move(context, taken_in.as_fd(), 99));
    ensure!(moved.await? == 6);
    remember(&test_box, &json!({})).await?;
    Ok(vec![cat])
}

pub(super) async fn kept_files_after(fixture: &Fixture) -> anyhow::Result<()> {
    let mut found = adopt_one(fixture).await?;
    let cat = found.take("cat")?;
    let [taken_in, to_give]: [OwnedFd; 2] = cat
        .files
        .try_into()
        .map_err(|files: Vec<_>| anyhow::anyhow!("{} files", files.len()))?;
    ensure!(content(&taken_in)? == b"first ");
    // The positions are those of the files.
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

async fn read_until(process: &mut Process, expected: &str) -> anyhow::Result<()> {
    let mut output = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&output).contains(expected) {
            output.push(process.stdout.read_u8().await?);
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(20), reading)
        .await
        .with_context(|| format!("the program did not print {expected:?}"))?
}

pub(super) async fn terminal_before(fixture: &Fixture) -> anyhow::Result<Vec<Process>> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut spawn_request = kept(request(&["/bin/sh"]), "shell");
    spawn_request.stdio = Stdio::Terminal(TerminalSize { rows: 24, cols: 80 });
    let mut process = test_box.process(spawn_request).await?;
    let stdin = process.stdin.as_mut().context("no stdin")?;
    stdin.write_all(b"word=remembered; echo be''fore\n").await?;
    read_until(&mut process, "before").await?;
    remember(&test_box, &json!({})).await?;
    Ok(vec![process])
}

pub(super) async fn terminal_after(fixture: &Fixture) -> anyhow::Result<()> {
    let mut found = adopt_one(fixture).await?;
    let mut process = found.take("shell")?.process;
    process
        .control
        .resize(TerminalSize { rows: 11, cols: 22 })?;
    let stdin = process.stdin.as_mut().context("no stdin")?;
    stdin.write_all(b"echo $word$word; stty size\n").await?;
    read_until(&mut process, "rememberedremembered").await?;
    read_until(&mut process, "11 22").await?;
    let stdin = process.stdin.as_mut().context("no stdin")?;
    stdin.write_all(b"exit 4\n").await?;
    ensure!(end_of(&process.control).await?.status == ExitStatus::Code(4));
    Ok(())
}
