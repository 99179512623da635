//! Exhaustion of resources. The box may fail; other boxes and the backend must not.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use boxwood_api::Mechanism;

use crate::harness::case::cases;
use crate::harness::host_side::{marker, wait_until_gone};
use crate::harness::test_box::request;
use crate::{BoxSpec, Fixture, TestBox};
use boxwood_backend::Scope;

cases! { "bombs":
    cannot_exceed_the_process_limit_with_a_fork_bomb,
    cannot_exceed_the_process_limit_with_threads,
    cannot_exceed_the_process_limit_with_zombies,
    cannot_exceed_the_memory_limit,
    cannot_exceed_the_memory_limit_by_kernel_memory,
    cannot_exceed_tmp,
    cannot_exceed_tmp_with_empty_files needs HostKernel,
    cannot_exhaust_descriptors,
    cannot_take_the_processors,
    cannot_flood_the_output,
    cannot_dump_core_on_the_host needs HostMounts HostKernel,
    cannot_use_up_the_inotify_instances_of_the_host,
}

/// Returns true if this host lacks the mechanism; the label must agree. The program is then not started, because nothing
/// would limit it.
fn is_missing(fixture: &Fixture, test_box: &TestBox, mechanism: Mechanism) -> anyhow::Result<bool> {
    let label = test_box.sandbox().label();
    let host = fixture.host();
    let missing = match mechanism {
        Mechanism::DiskQuota => !host.bounds_disks(),
        other => !host.expects(other),
    };
    ensure!(
        label.has(mechanism) != missing,
        "`{mechanism:?}`: {label:?}"
    );
    Ok(missing)
}

/// Runs the program in a box, and checks meanwhile that another box responds.
async fn explode(
    fixture: &Fixture,
    spec: &BoxSpec,
    mechanism: Mechanism,
    bomb: &str,
) -> anyhow::Result<()> {
    let neighbour = fixture.start(&BoxSpec::new()).await?;
    let test_box = fixture.start(spec).await?;
    if is_missing(fixture, &test_box, mechanism)? {
        return Ok(());
    }
    test_box.assert_isolated().await?;
    let mark = marker("bomb");
    let running = test_box
        .spawn(request(&["python3", "-c", bomb, &mark]))
        .await?;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        let began = Instant::now();
        neighbour
            .assert_responsive()
            .await
            .context("the neighbour")?;
        ensure!(
            began.elapsed() < Duration::from_secs(8),
            "the neighbour's exec took {:?}",
            began.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // It may have ended by itself.
    running.control.signal(9, Scope::Tree).await.ok();
    tokio::time::timeout(Duration::from_secs(20), running.control.wait())
        .await
        .context("the bomb cannot be ended")?;
    // Fails if the box has died, which is allowed.
    let exceeded = test_box.sh("test -e /workspace/too-many").await;
    ensure!(
        !exceeded.is_ok_and(|ran| ran.code() == Some(0)),
        "the program exceeded its limit"
    );
    test_box.stop().await?;
    wait_until_gone(&mark).await?;
    neighbour.assert_responsive().await?;
    fixture
        .start(&BoxSpec::new())
        .await?
        .assert_responsive()
        .await
}

async fn cannot_exceed_the_process_limit_with_a_fork_bomb(fixture: &Fixture) -> anyhow::Result<()> {
    let bomb = "
import os
while True:
    try: os.fork()
    except OSError: pass";
    explode(
        fixture,
        &BoxSpec::new().pids(64),
        Mechanism::PidsLimit,
        bomb,
    )
    .await
}

async fn cannot_exceed_the_process_limit_with_threads(fixture: &Fixture) -> anyhow::Result<()> {
    let bomb = "
import threading, time
threading.stack_size(65536)
started = 0
while True:
    try:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        started += 1
    except RuntimeError: time.sleep(0.01)
    if started > 64: open('/workspace/too-many', 'w')";
    explode(
        fixture,
        &BoxSpec::new().pids(64),
        Mechanism::PidsLimit,
        bomb,
    )
    .await
}

async fn cannot_exceed_the_process_limit_with_zombies(fixture: &Fixture) -> anyhow::Result<()> {
    let bomb = "
import os, time
made = 0
while True:
    try:
        if os.fork() == 0: os._exit(0)
        made += 1
    except OSError: time.sleep(0.01)";
    explode(
        fixture,
        &BoxSpec::new().pids(64),
        Mechanism::PidsLimit,
        bomb,
    )
    .await
}

async fn cannot_exceed_the_memory_limit(fixture: &Fixture) -> anyhow::Result<()> {
    let bomb = "
import os
for _ in range(6): os.fork()
held = []
while True:
    try: held.append(bytearray(4 << 20))
    except MemoryError: pass";
    let spec = BoxSpec::new().memory_mb(96).pids(100);
    explode(fixture, &spec, Mechanism::MemoryLimit, bomb).await
}

async fn cannot_exceed_the_memory_limit_by_kernel_memory(fixture: &Fixture) -> anyhow::Result<()> {
    // Not the program's own pages: pipes, sockets, memfds, deleted files that stay open.
    let bomb = "
import fcntl, os, resource, socket, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
kept = []
block = bytes(1 << 20)
while True:
    try:
        fd = os.memfd_create('x')
        for _ in range(16): os.write(fd, block)
        kept.append(fd)
        a, b = os.pipe()
        os.set_blocking(b, False)
        try: os.write(b, block)
        except BlockingIOError: pass
        kept += [a, b]
        s, t = socket.socketpair()
        s.setblocking(False)
        try: s.send(block)
        except BlockingIOError: pass
        kept += [s, t]
    except OSError: time.sleep(0.01)";
    explode(
        fixture,
        &BoxSpec::new().memory_mb(96),
        Mechanism::MemoryLimit,
        bomb,
    )
    .await
}

async fn cannot_exceed_tmp(fixture: &Fixture) -> anyhow::Result<()> {
    let bomb = "
import os, time
n = 0
block = bytes(1 << 20)
while True:
    n += 1
    fd = os.open('/tmp/f%d' % n, os.O_CREAT | os.O_WRONLY, 0o600)
    os.unlink('/tmp/f%d' % n)
    try:
        for _ in range(8): os.write(fd, block)
        os.posix_fallocate(fd, 0, 1 << 30)
    except OSError: time.sleep(0.01)
    if n > 500: time.sleep(600)";
    let spec = BoxSpec::new()
        .tmp_mb(16)
        .memory_mb(512)
        .bounded(fixture.host());
    explode(fixture, &spec, Mechanism::DiskQuota, bomb).await
}

async fn cannot_exceed_tmp_with_empty_files(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture
        .start(&BoxSpec::new().tmp_mb(16).memory_mb(512))
        .await?;
    let script = "
import os, sys
made = 0
try:
    while made < 400000:
        os.close(os.open('/tmp/n%d' % made, os.O_CREAT | os.O_WRONLY, 0o600))
        made += 1
except OSError as fault:
    print(made, fault.errno)
    sys.exit(0)
print(made, 'no end')";
    let ran = test_box.run(request(&["python3", "-c", script])).await?;
    // The memory limit may end the program before the inodes are used up.
    ensure!(
        !ran.out().contains("no end"),
        "400,000 files in a /tmp of 16 MiB: {:?}",
        ran.out()
    );
    test_box.assert_responsive().await
}

async fn cannot_exhaust_descriptors(fixture: &Fixture) -> anyhow::Result<()> {
    let neighbour = fixture.start(&BoxSpec::new()).await?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let script = "
import os, resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
opened = 0
try:
    while opened < 2000000:
        os.open('/dev/null', os.O_RDONLY)
        opened += 1
except OSError: pass
print(opened)";
    let ran = test_box.run(request(&["python3", "-c", script])).await?;
    ensure!(
        !ran.out().starts_with("2000000"),
        "a program opened 2,000,000 descriptors"
    );
    neighbour.assert_responsive().await?;
    test_box.assert_responsive().await
}

async fn cannot_take_the_processors(fixture: &Fixture) -> anyhow::Result<()> {
    let bomb = "
import os
for _ in range(6): os.fork()
try: os.nice(-20)
except OSError: pass
try: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
except OSError: pass
while True: pass";
    let spec = BoxSpec::new().cpus(0.5).pids(100);
    explode(fixture, &spec, Mechanism::CpuLimit, bomb).await
}

async fn cannot_flood_the_output(fixture: &Fixture) -> anyhow::Result<()> {
    let neighbour = fixture.start(&BoxSpec::new()).await?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    // Without a reader the pipe fills and the program waits. Nothing else does.
    let mut floods = Vec::new();
    for _ in 0..8 {
        floods.push(test_box.process(request(&["yes"])).await?);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    neighbour.assert_responsive().await?;
    test_box.assert_responsive().await?;
    for flood in floods {
        flood.control.signal(9, Scope::Tree).await?;
        flood.control.wait().await;
    }
    Ok(())
}

async fn cannot_dump_core_on_the_host(fixture: &Fixture) -> anyhow::Result<()> {
    let workspace = fixture.host_dir("cores")?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&workspace, boxwood_api::MountMode::Rw))
        .await?;
    test_box
        .sh("ulimit -c unlimited; ulimit -c; sh -c 'kill -SEGV $$'; sh -c 'kill -ABRT $$'")
        .await?;
    let left: Vec<_> = std::fs::read_dir(&workspace)?
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    ensure!(left.is_empty(), "{left:?}");
    // A limit of 0 does not keep the kernel from piping a dump to a program of the host's; 1 does.
    let ran = test_box
        .sh("ulimit -c 0 && grep '^Max core' /proc/self/limits")
        .await?;
    let limits = ran.out();
    let limits: Vec<_> = limits.split_whitespace().skip(4).collect();
    ensure!(limits == ["1", "1", "bytes"], "{limits:?}");
    Ok(())
}

async fn cannot_use_up_the_inotify_instances_of_the_host(fixture: &Fixture) -> anyhow::Result<()> {
    let neighbour = fixture.start(&BoxSpec::new()).await?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    if !fixture.host().own_counts {
        return Ok(());
    }
    let take = "
import ctypes
take = ctypes.CDLL(None).inotify_init
taken = 0
while taken < 100000 and take() >= 0: taken += 1
print(taken, flush=True)";
    let hold = format!("{take}\nimport time; time.sleep(600)");
    let holding = test_box.spawn(request(&["python3", "-c", &hold])).await?;
    let count = request(&["python3", "-c", take]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let ran = neighbour
        .spawn(count)
        .await?
        .finish_within(Duration::from_secs(30))
        .await?;
    ensure!(ran.out().trim().parse::<u32>()? > 0, "no instance was left");
    holding.control.signal(9, Scope::Tree).await?;
    Ok(())
}
