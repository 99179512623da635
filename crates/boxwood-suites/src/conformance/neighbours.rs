//! Two boxes on one host are isolated from each other.

use anyhow::ensure;
use futures_util::{StreamExt as _, TryStreamExt as _};

use crate::harness::case::cases;
use crate::harness::test_box::{request, shell};
use crate::{BoxSpec, Fixture, TestBox};
use boxwood_backend::Scope;

cases! { "neighbours":
    private_areas_are_apart,
    processes_are_apart,
    abstract_sockets_are_apart,
    system_v_memory_and_queues_are_apart,
    host_names_and_loopbacks_are_apart,
    many_boxes_live_at_once,
}

async fn pair(fixture: &Fixture) -> anyhow::Result<(TestBox, TestBox)> {
    Ok((
        fixture.start(&BoxSpec::new()).await?,
        fixture.start(&BoxSpec::new()).await?,
    ))
}

async fn private_areas_are_apart(fixture: &Fixture) -> anyhow::Result<()> {
    let (one, two) = pair(fixture).await?;
    for directory in ["/tmp", "/var/tmp", "/dev/shm", "/home/box", "/workspace"] {
        one.stdout_of(&format!("echo secret > {directory}/of-one"))
            .await?;
        let ran = two.sh(&format!("ls -A {directory} | grep of-one")).await?;
        ensure!(
            ran.out().is_empty(),
            "{directory} is shared: {:?}",
            ran.out()
        );
    }
    Ok(())
}

async fn processes_are_apart(fixture: &Fixture) -> anyhow::Result<()> {
    let (one, two) = pair(fixture).await?;
    let running = one
        .spawn(shell("touch up; while :; do sleep 1; done"))
        .await?;
    one.stdout_of("until [ -e up ]; do sleep 0.05; done")
        .await?;
    // Without the searching processes themselves, which have the words in their arguments.
    let search = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done | grep 'while :' | grep -v grep | grep -v 'for p in' || true";
    ensure!(
        !one.stdout_of(search).await?.is_empty(),
        "the search does not find a process of its own box"
    );
    let beside = two.stdout_of("ls -d /proc/[0-9]* | wc -l").await?;
    ensure!(
        beside.trim().parse::<u32>()? <= 6,
        "{beside} processes in an idle box"
    );
    let others = two.stdout_of(search).await?;
    ensure!(others.is_empty(), "processes of the other box: {others:?}");
    running.control.signal(9, Scope::Tree).await?;
    Ok(())
}

async fn abstract_sockets_are_apart(fixture: &Fixture) -> anyhow::Result<()> {
    let (one, two) = pair(fixture).await?;
    let listening = one
        .spawn(request(&[
            "python3",
            "-c",
            "import socket, time\ns = socket.socket(socket.AF_UNIX)\ns.bind('\\0of-one')\ns.listen()\nopen('/workspace/up', 'w')\ntime.sleep(600)",
        ]))
        .await?;
    one.stdout_of(
        "for i in $(seq 100); do [ -e /workspace/up ] && exit 0; sleep 0.1; done; exit 1",
    )
    .await?;
    let connect =
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('\\0of-one')\"";
    let own_result = one.sh(connect).await?;
    ensure!(
        own_result.code() == Some(0),
        "the listener itself does not work: {}",
        own_result.err()
    );
    let ran = two.sh(connect).await?;
    ensure!(
        ran.err().contains("ConnectionRefusedError"),
        "{:?} {:?}",
        ran.exit,
        ran.err()
    );
    listening.control.signal(9, Scope::Tree).await?;
    Ok(())
}

async fn system_v_memory_and_queues_are_apart(fixture: &Fixture) -> anyhow::Result<()> {
    let (one, two) = pair(fixture).await?;
    let create_script = "import ctypes
libc = ctypes.CDLL(None, use_errno=True)
made = [libc.shmget(0x42, 4096, 0o1666), libc.semget(0x42, 1, 0o1666), libc.msgget(0x42, 0o1666)]
print(min(made) >= 0)";
    let find_script = "import ctypes
libc = ctypes.CDLL(None, use_errno=True)
found = [libc.shmget(0x42, 4096, 0), libc.semget(0x42, 1, 0), libc.msgget(0x42, 0)]
print(max(found) >= 0)";
    ensure!(
        one.run(request(&["python3", "-c", create_script]))
            .await?
            .text()?
            == "True\n"
    );
    ensure!(
        one.run(request(&["python3", "-c", find_script]))
            .await?
            .text()?
            == "True\n"
    );
    ensure!(
        two.run(request(&["python3", "-c", find_script]))
            .await?
            .text()?
            == "False\n"
    );
    Ok(())
}

async fn host_names_and_loopbacks_are_apart(fixture: &Fixture) -> anyhow::Result<()> {
    let (one, two) = pair(fixture).await?;
    let listening = one
        .spawn(request(&[
            "python3",
            "-c",
            "import socket, time\ns = socket.create_server(('127.0.0.1', 4242))\nopen('/workspace/up', 'w')\ntime.sleep(600)",
        ]))
        .await?;
    one.stdout_of(
        "for i in $(seq 100); do [ -e /workspace/up ] && exit 0; sleep 0.1; done; exit 1",
    )
    .await?;
    let connect = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 4242), 5)\"";
    let own_result = one.sh(connect).await?;
    ensure!(
        own_result.code() == Some(0),
        "loopback does not work in a box: {}",
        own_result.err()
    );
    let ran = two.sh(connect).await?;
    ensure!(
        ran.err().contains("ConnectionRefusedError"),
        "{:?}",
        ran.err()
    );
    // Both may have the same port.
    two.stdout_of("python3 -c \"import socket; socket.create_server(('127.0.0.1', 4242))\"")
        .await?;
    listening.control.signal(9, Scope::Tree).await?;
    Ok(())
}

async fn many_boxes_live_at_once(fixture: &Fixture) -> anyhow::Result<()> {
    let count = fixture.host().crowd;
    let spec = BoxSpec::new();
    let starting = (0..count).map(|_| fixture.start(&spec));
    // Four at a time, as several callers would have it.
    let boxes: Vec<TestBox> = futures_util::stream::iter(starting)
        .buffer_unordered(4)
        .try_collect()
        .await?;
    let mut ids: Vec<&str> = boxes
        .iter()
        .map(|test_box| test_box.sandbox().id())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ensure!(ids.len() == count, "two boxes have one id");
    for (number, test_box) in boxes.iter().enumerate() {
        test_box
            .stdout_of(&format!("echo {number} > /tmp/number"))
            .await?;
    }
    for (number, test_box) in boxes.iter().enumerate() {
        ensure!(test_box.stdout_of("cat /tmp/number").await?.trim() == number.to_string());
    }
    Ok(())
}
