//! What a box leaves behind when a command is killed or the box is stopped: nothing.

use std::time::Duration;

use anyhow::ensure;
use boxwood_api::{MountMode, Network};

use crate::harness::case::cases;
use crate::harness::host_side::{host_pids_with, marker, wait_for_processes, wait_until_gone};
use crate::harness::test_box::request;
use crate::{BoxSpec, Fixture, RootFrom};
use boxwood_backend::{ExitStatus, Scope};

cases! { "leftovers":
    cannot_leave_a_process_behind_after_a_kill needs HostKernel,
    cannot_leave_a_process_behind_after_stop needs HostKernel,
    cannot_leave_shared_memory_behind,
    cannot_hand_anything_to_the_next_box,
    cannot_keep_a_mount_busy needs HostMounts,
    cannot_outlive_stop_while_forking,
}

/// Everything a process can do to survive, at once.
const SURVIVOR: &str = "
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None)
def hide():
    os.setsid()
    libc.prctl(1, 0, 0, 0, 0)
    libc.prctl(36, 1, 0, 0, 0)
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
for _ in range(4):
    if os.fork() == 0:
        hide()
        if os.fork() == 0:
            hide()
            if os.fork() == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
            while True: time.sleep(1)
        while True: time.sleep(1)
while True: time.sleep(1)";

async fn wait_until_started(mark: &str) -> anyhow::Result<()> {
    wait_for_processes(mark, 13).await?;
    Ok(())
}

async fn cannot_leave_a_process_behind_after_a_kill(fixture: &Fixture) -> anyhow::Result<()> {
    for network in [Network::Off, Network::On] {
        if network == Network::On && !fixture.host().network {
            continue;
        }
        let test_box = fixture.start(&BoxSpec::new().network(network)).await?;
        let mark = marker("survivor");
        let running = test_box
            .spawn(request(&["python3", "-c", SURVIVOR, &mark]))
            .await?;
        wait_until_started(&mark).await?;
        running.control.signal(9, Scope::Tree).await?;
        let exit = running.control.wait().await;
        ensure!(exit.status == ExitStatus::Signal(9), "{exit:?}");
        wait_until_gone(&mark).await?;
        // Only init and the processes of this command are left in the box.
        let left = test_box.stdout_of("ls -d /proc/[0-9]* | wc -l").await?;
        ensure!(
            left.trim().parse::<u32>()? <= 6,
            "{left} processes in the box"
        );
    }
    Ok(())
}

async fn cannot_leave_a_process_behind_after_stop(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mark = marker("survivor");
    drop(
        test_box
            .process(request(&["python3", "-c", SURVIVOR, &mark]))
            .await?,
    );
    wait_until_started(&mark).await?;
    test_box.stop().await?;
    ensure!(
        host_pids_with(&mark).is_empty(),
        "after stop: {:?}",
        host_pids_with(&mark)
    );
    Ok(())
}

fn system_v() -> String {
    ["shm", "sem", "msg"]
        .map(|kind| std::fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default())
        .concat()
}

async fn cannot_leave_shared_memory_behind(fixture: &Fixture) -> anyhow::Result<()> {
    let key = 0x0B0C_5EED_u32;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let output = test_box
        .run(request(&[
            "python3",
            "-c",
            &format!(
                "import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
made = [libc.shmget({key}, 65536, 0o1666), libc.semget({key}, 4, 0o1666), libc.msgget({key}, 0o1666)]
open('/dev/shm/boxwood-left', 'w').write('x')
print(min(made) >= 0)"
            ),
        ]))
        .await?;
    ensure!(output.text()? == "True\n");
    ensure!(
        !system_v().contains(&key.to_string()),
        "visible on the host while the box runs"
    );
    test_box.stop().await?;
    ensure!(
        !system_v().contains(&key.to_string()),
        "left on the host after the box"
    );
    ensure!(!std::path::Path::new("/dev/shm/boxwood-left").exists());
    Ok(())
}

async fn cannot_hand_anything_to_the_next_box(fixture: &Fixture) -> anyhow::Result<()> {
    let content = marker("handed-on");
    let installed = match fixture.host().root {
        RootFrom::TheHost => "/opt /usr/local",
        // `/opt` and `/usr/local` of an image belong to root.
        RootFrom::AnImage => "/run/lock",
    };
    let dirs = format!("/tmp /var/tmp /dev/shm /home/box /workspace {installed}");
    let one = fixture.start(&BoxSpec::new()).await?;
    one.stdout_of(&format!(
        "for d in {dirs}; do echo {content} > $d/handed || exit 1; done"
    ))
    .await?;
    one.stop().await?;
    for _ in 0..3 {
        let next = fixture.start(&BoxSpec::new()).await?;
        let found = next
            .stdout_of(&format!(
                "for d in {dirs}; do ls -A $d; done | grep -c handed || true"
            ))
            .await?;
        ensure!(found.trim() == "0", "the next box found {found}");
        next.stop().await?;
    }
    Ok(())
}

async fn cannot_keep_a_mount_busy(fixture: &Fixture) -> anyhow::Result<()> {
    let directory = fixture.host_dir("busy")?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&directory, MountMode::Rw))
        .await?;
    let busy = "
import os, mmap, time
os.chdir('/workspace')
f = open('mapped', 'w+b'); f.truncate(4096)
m = mmap.mmap(f.fileno(), 4096)
kept = [os.open('/workspace', os.O_RDONLY) for _ in range(50)]
open('up', 'w')
time.sleep(600)";
    drop(test_box.process(request(&["python3", "-c", busy])).await?);
    test_box
        .stdout_of("for i in $(seq 100); do [ -e up ] && exit 0; sleep 0.1; done; exit 1")
        .await?;
    test_box.stop().await?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let name = directory.display().to_string();
    ensure!(!mounts.contains(&name), "still mounted on the host");
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

async fn cannot_outlive_stop_while_forking(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new().pids(64)).await?;
    let mark = marker("forking");
    let storm = "
import os
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass";
    drop(
        test_box
            .process(request(&["python3", "-c", storm, &mark]))
            .await?,
    );
    tokio::time::sleep(Duration::from_millis(800)).await;
    test_box.stop().await?;
    wait_until_gone(&mark).await?;
    fixture
        .start(&BoxSpec::new())
        .await?
        .assert_responsive()
        .await
}
