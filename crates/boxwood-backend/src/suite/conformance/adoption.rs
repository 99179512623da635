//! A box after its daemon has gone and another has come: as if nothing had been.

use std::future::poll_fn;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use boxwood_api::{MountMode, Network};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::suite::held::{request, shell};
use crate::suite::succession::{Found, Scenario, adopt_all, adopt_one};
use crate::suite::{Bench, HeldBox, Offer, Wish};
use crate::{
    AdoptError, Exit, ExitStatus, Keep, Process, ProcessControl, Scope, SpawnRequest, Stdio,
    TerminalSize,
};

/// Each name is a module with the two halves.
macro_rules! scenarios {
    ($($name:ident $(needs $($need:ident)+)? $(; $by_hand:ident)?),+ $(,)?) => {
        pub(super) fn scenarios() -> Vec<Scenario> {
            vec![$(Scenario {
                name: stringify!($name),
                needs: &[$($(Offer::$need),+)?],
                may_pass_on: !matches!(stringify!($($by_hand)?), "by_hand"),
                before: |bench| Box::pin($name::before(bench)),
                after: |bench| Box::pin($name::after(bench)),
            }),+]
        }
    };
}

scenarios! {
    programs_go_on_and_their_ends_are_told,
    output_is_neither_lost_nor_doubled,
    input_goes_on_and_ends,
    files_of_a_program_survive_with_it,
    the_box_is_as_it_was needs Files,
    mounts_join_as_before needs LiveMounts,
    networks_stay_up,
    terminals_stay_open needs Terminal,
    an_adopted_box_stops_like_any_other,
    what_nobody_adopts_goes; by_hand,
    a_box_without_a_record_is_unfinished; by_hand,
}

fn kept(mut request: SpawnRequest, note: &str) -> SpawnRequest {
    request.keep = Some(Keep {
        note: note.as_bytes().to_vec(),
        files: Vec::new(),
    });
    request
}

fn with_pipes(mut request: SpawnRequest) -> SpawnRequest {
    request.stdio = Stdio::Pipes;
    request
}

async fn remember(held: &HeldBox, facts: &Value) -> anyhow::Result<()> {
    let record = facts.to_string();
    Ok(held.sandbox().remember(record.as_bytes()).await?)
}

fn facts(found: &Found) -> anyhow::Result<Value> {
    serde_json::from_slice(&found.record).context("the record is not what was remembered")
}

async fn end_of(control: &Arc<dyn ProcessControl>) -> anyhow::Result<Exit> {
    tokio::time::timeout(Duration::from_secs(20), control.wait())
        .await
        .context("the program does not end")
}

async fn line(process: &mut Process) -> anyhow::Result<String> {
    let mut line = Vec::new();
    let reading = async {
        while line.last() != Some(&b'\n') {
            line.push(process.stdout.read_u8().await?);
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(20), reading)
        .await
        .context("no line came")??;
    Ok(String::from_utf8(line)?.trim().to_owned())
}

async fn rest(process: &mut Process) -> anyhow::Result<Vec<u8>> {
    let mut rest = Vec::new();
    tokio::time::timeout(
        Duration::from_secs(30),
        process.stdout.read_to_end(&mut rest),
    )
    .await
    .context("no end of its output")??;
    Ok(rest)
}

const COMMANDS: &str = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '";

mod programs_go_on_and_their_ends_are_told {
    use super::*;

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
}

mod output_is_neither_lost_nor_doubled {
    use super::*;

    const COUNT: usize = 60_000;
    const READ: usize = 100_001;

    fn whole() -> Vec<u8> {
        let lines: Vec<String> = (1..=COUNT).map(|number| format!("{number}\n")).collect();
        lines.concat().into_bytes()
    }

    pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
        let held = bench.start(&Wish::new()).await?;
        let script = format!("seq {COUNT}; echo end >&2; exit 5");
        let mut process = held.process(kept(shell(&script), "seq")).await?;
        let mut first = vec![0; READ];
        process.stdout.read_exact(&mut first).await?;
        ensure!(first == whole()[..READ], "the first part is wrong");
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
            got == whole()[READ..],
            "{} bytes are left, and not the right ones",
            got.len()
        );
        ensure!(end_of(&process.control).await?.status == ExitStatus::Code(5));
        let mut unread = found.take("unread")?.process;
        let got = rest(&mut unread).await?;
        let expected: String = (1..=5000).map(|number| format!("{number}\n")).collect();
        ensure!(
            got == expected.as_bytes(),
            "{} bytes were unread",
            got.len()
        );
        let mut said = String::new();
        let mut stderr = unread.stderr.take().context("no stderr")?;
        stderr.read_to_string(&mut said).await?;
        ensure!(said == "more\n", "{said:?}");
        Ok(())
    }
}

mod input_goes_on_and_ends {
    use super::*;

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
}

mod files_of_a_program_survive_with_it {
    use super::*;

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
        let moved =
            poll_fn(|context| Pin::new(&mut **stdout).poll_move(context, taken_in.as_fd(), 99));
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
        let moved =
            poll_fn(|context| Pin::new(&mut **stdout).poll_move(context, taken_in.as_fd(), 99));
        ensure!(moved.await? == 7);
        ensure!(content(&taken_in)? == b"first second ");
        drop(stdin);
        ensure!(end_of(&process.control).await?.status == ExitStatus::Code(0));
        Ok(())
    }
}

mod the_box_is_as_it_was {
    use super::*;

    pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
        let held = bench.start(&Wish::new()).await?;
        held.write("/workspace/file", b"before").await?;
        // A sub-group of its own that stays, and some that were used and are empty.
        held.says("(sleep 3004 &) >/dev/null 2>&1").await?;
        for _ in 0..3 {
            held.is_well().await?;
        }
        let label = serde_json::to_value(held.sandbox().label())?;
        let facts = json!({ "id": held.sandbox().id(), "label": label });
        remember(&held, &json!({ "stale": true })).await?;
        remember(&held, &facts).await?;
        Ok(Vec::new())
    }

    pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
        let found = adopt_one(bench).await?;
        let facts = facts(&found)?;
        let held = &found.held;
        ensure!(facts["id"] == held.sandbox().id(), "another name");
        let label = serde_json::to_value(held.sandbox().label())?;
        ensure!(facts["label"] == label, "another label: {label}");
        ensure!(held.read("/workspace/file").await? == b"before");
        ensure!(held.says(COMMANDS).await?.contains("sleep 3004"));
        held.has_walls().await?;
        for _ in 0..20 {
            held.is_well().await?;
        }
        if bench.host().counters {
            let hog = "import sys; x = bytearray(600 << 20); sys.exit(0)";
            let ran = held.run(request(&["python3", "-c", hog])).await?;
            ensure!(ran.exit.oom, "the memory limit is gone: {:?}", ran.exit);
        }
        // A neighbour that is started now shares nothing with it.
        let neighbour = bench.start(&Wish::new()).await?;
        neighbour.has_walls().await?;
        held.stop().await?;
        neighbour.is_well().await
    }
}

mod mounts_join_as_before {
    use super::*;

    pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
        let held = bench.start(&Wish::new()).await?;
        let source = bench.host_dir("early")?;
        std::fs::write(source.join("file"), "early")?;
        held.join(&source, "/workspace/early", MountMode::Ro)
            .await?;
        remember(&held, &json!({})).await?;
        Ok(Vec::new())
    }

    pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
        let found = adopt_one(bench).await?;
        let source = bench.host_dir("late")?;
        std::fs::write(source.join("file"), "late")?;
        found
            .held
            .join(&source, "/workspace/late", MountMode::Ro)
            .await?;
        let said = found.held.says("cat late/file; ls -d early").await?;
        ensure!(said == "lateearly\n", "{said:?}");
        Ok(())
    }
}

mod networks_stay_up {
    use super::*;

    const ROUTES: &str = "cut -f2 /proc/net/route | grep -c 00000000";
    /// Sends a question to the first name server, and tells whether the way there is open.
    const ASK: &str = "import socket
server = [l.split()[1] for l in open('/etc/resolv.conf') if l.startswith('nameserver')][0]
try:
    socket.create_connection((server, 53), 4)
    print('connected')
except ConnectionRefusedError:
    print('refused')
except OSError as fault:
    print(fault)";

    async fn asked(held: &HeldBox) -> anyhow::Result<String> {
        held.run(request(&["python3", "-c", ASK])).await?.text()
    }

    pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
        if !bench.host().network {
            return Ok(Vec::new());
        }
        for _ in 0..2 {
            let held = bench.start(&Wish::new().network(Network::On)).await?;
            let facts = json!({ "answer": asked(&held).await? });
            remember(&held, &facts).await?;
        }
        Ok(Vec::new())
    }

    pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
        if !bench.host().network {
            return Ok(());
        }
        let found = adopt_all(bench).await?;
        ensure!(found.len() == 2, "{} boxes were left", found.len());
        let next = bench.start(&Wish::new().network(Network::On)).await?;
        for one in &found {
            ensure!(one.held.says(ROUTES).await? == "1\n");
            let (then, now) = (facts(one)?["answer"].clone(), asked(&one.held).await?);
            ensure!(then == now, "it was {then}, and is {now:?}");
        }
        ensure!(next.says(ROUTES).await? == "1\n");
        found[0].held.stop().await?;
        let then = facts(&found[1])?["answer"].clone();
        ensure!(
            then == asked(&found[1].held).await?,
            "it went with another box's"
        );
        Ok(())
    }
}

mod terminals_stay_open {
    use super::*;

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
}

mod an_adopted_box_stops_like_any_other {
    use super::*;

    pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
        let held = bench.start(&Wish::new()).await?;
        let process = held
            .process(kept(request(&["sleep", "3005"]), "sleep"))
            .await?;
        remember(&held, &json!({})).await?;
        Ok(vec![process])
    }

    pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
        let mut found = adopt_one(bench).await?;
        let sleep = found.take("sleep")?;
        found.held.stop().await?;
        ensure!(end_of(&sleep.process.control).await?.status == ExitStatus::BoxGone);
        ensure!(!found.held.sandbox().is_alive());
        let left = bench.backend().left_running().await;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    }
}

mod what_nobody_adopts_goes {
    use super::*;

    pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
        let held = bench.start(&Wish::new()).await?;
        let process = held
            .process(kept(request(&["sleep", "3006"]), "sleep"))
            .await?;
        remember(&held, &json!({})).await?;
        Ok(vec![process])
    }

    pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
        let left = bench.backend().left_running().await;
        let handle = left.first().context("no box was left")?;
        bench.backend().settle().await;
        let adopted = bench.backend().adopt(handle).await;
        ensure!(matches!(adopted, Err(AdoptError::Gone)), "it was kept");
        let left = bench.backend().left_running().await;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    }
}

mod a_box_without_a_record_is_unfinished {
    use super::*;

    pub(super) async fn before(bench: &Bench) -> anyhow::Result<Vec<Process>> {
        bench.start(&Wish::new()).await?;
        Ok(Vec::new())
    }

    pub(super) async fn after(bench: &Bench) -> anyhow::Result<()> {
        let left = bench.backend().left_running().await;
        let handle = left.first().context("no box was left")?;
        let adopted = bench.backend().adopt(handle).await;
        ensure!(matches!(adopted, Err(AdoptError::Unfinished)), "adopted");
        bench.backend().settle().await;
        let adopted = bench.backend().adopt(handle).await;
        ensure!(matches!(adopted, Err(AdoptError::Gone)), "it was kept");
        Ok(())
    }
}
