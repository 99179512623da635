//! What whoever bounds a workspace from outside relies on.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use boxwood_api::MountMode;

use crate::suite::case::cases;
use crate::suite::held::request;
use crate::suite::outside::{all_gone, marker, seen};
use crate::suite::{Bench, Wish};
use crate::{ExitStatus, Scope};

cases! { "quota" needs HostsOwnKernel HostMounts:
    everybody_is_killed_and_the_box_lives_on,
    everybody_is_killed_while_the_box_is_held,
    files_without_a_name_are_found,
    a_box_that_is_held_stands_still,
    a_command_begins_while_the_box_is_held,
    space_cannot_be_reserved_in_a_watched_workspace,
    one_file_is_never_much_larger_than_the_quota,
    a_private_workspace_has_no_such_bounds,
}

const MIB: u64 = 1024 * 1024;

/// Three generations, the last of which has left the others' session.
const FAMILY: &str = "
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
    time.sleep(600)
time.sleep(600)";

async fn everybody_is_killed_and_the_box_lives_on(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let (mark, left) = (marker("everybody"), marker("left"));
    let running = held
        .spawn(request(&["python3", "-c", FAMILY, &mark]))
        .await?;
    // Whoever started these has ended.
    let script = format!("setsid python3 -c 'import time; time.sleep(600)' {left} >&- 2>&- &");
    held.says(&script).await?;
    seen(&mark, 3).await?;
    seen(&left, 1).await?;
    held.sandbox().kill_all().await.context("killing all")?;
    all_gone(&mark).await?;
    all_gone(&left).await?;
    let ran = running.finish_within(Duration::from_secs(10)).await?;
    ensure!(ran.exit.status == ExitStatus::Signal(9), "{:?}", ran.exit);
    // Whoever kills may not know that everybody is dead already.
    held.sandbox().kill_all().await.context("killing again")?;
    // Also with as many commands as there were groups to kill.
    for _ in 0..4 {
        held.is_well().await?;
    }
    Ok(())
}

async fn everybody_is_killed_while_the_box_is_held(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let mark = marker("held");
    let running = held
        .spawn(request(&["python3", "-c", FAMILY, &mark]))
        .await?;
    seen(&mark, 3).await?;
    held.sandbox().hold().await.context("holding")?;
    held.sandbox().kill_all().await.context("killing all")?;
    all_gone(&mark).await?;
    held.sandbox().thaw().await.context("thawing")?;
    let ran = running.finish_within(Duration::from_secs(10)).await?;
    ensure!(ran.exit.status == ExitStatus::Signal(9), "{:?}", ran.exit);
    held.is_well().await
}

/// Writes 8 MiB to a file without a name, says so, and waits.
const NAMELESS: &str = "
import os, sys, time
file = open('nameless', 'wb')
os.unlink('nameless')
file.write(b'x' * (8 << 20))
file.flush()
os.fsync(file.fileno())
open('written', 'w').close()
time.sleep(600)";

async fn files_without_a_name_are_found(bench: &Bench) -> anyhow::Result<()> {
    let workspace = bench.host_dir("nameless")?;
    let wish = Wish::new().workspace(&workspace, MountMode::Rw);
    let held = bench.start(&wish).await?;
    let device = fs::metadata(&workspace)?.dev();
    ensure!(held.sandbox().unlinked_bytes(device).await == 0);
    let running = held.spawn(request(&["python3", "-c", NAMELESS])).await?;
    for _ in 0..1000 {
        if workspace.join("written").exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let found = held.sandbox().unlinked_bytes(device).await;
    ensure!((8 * MIB..9 * MIB).contains(&found), "{found} bytes");
    ensure!(held.sandbox().unlinked_bytes(u64::MAX).await == 0);
    running.control.signal(9, Scope::Tree).await?;
    running.finish_within(Duration::from_secs(10)).await?;
    let left = held.sandbox().unlinked_bytes(device).await;
    ensure!(left == 0, "{left} bytes of nobody");
    Ok(())
}

async fn a_box_that_is_held_stands_still(bench: &Bench) -> anyhow::Result<()> {
    let workspace = bench.host_dir("held")?;
    let wish = Wish::new().workspace(&workspace, MountMode::Rw);
    let held = bench.start(&wish).await?;
    let script = "while :; do echo x >> grows; done";
    let running = held.spawn(request(&["/bin/sh", "-c", script])).await?;
    let size = || fs::metadata(workspace.join("grows")).map_or(0, |facts| facts.len());
    while size() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let held_still = held.sandbox().hold().await.context("holding")?;
    let before = size();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let after = size();
    ensure!(
        (before == after) == held_still,
        "{before} then {after}, and held: {held_still}"
    );
    held.sandbox().thaw().await.context("thawing")?;
    while size() == after {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.control.signal(9, Scope::Tree).await?;
    running.finish_within(Duration::from_secs(10)).await?;
    Ok(())
}

async fn a_command_begins_while_the_box_is_held(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    // Leaves what the next one is to use again.
    held.says("true").await?;
    let running = held.spawn(request(&["sleep", "600"])).await?;
    held.says("true").await?;
    held.sandbox().hold().await.context("holding")?;
    for _ in 0..3 {
        let begun = held.spawn(request(&["echo", "begun"])).await?;
        let ran = begun.finish_within(Duration::from_secs(10)).await?;
        ensure!(ran.out() == "begun\n", "{:?}", ran.exit);
    }
    held.sandbox().thaw().await.context("thawing")?;
    running.control.signal(9, Scope::Tree).await?;
    running.finish_within(Duration::from_secs(10)).await?;
    Ok(())
}

/// Asks the kernel itself; the C library would write where it says no.
const RESERVE: &str = "
import ctypes, errno, fcntl, os, struct
libc = ctypes.CDLL(None, use_errno=True)
file = os.open('reserved', os.O_RDWR | os.O_CREAT)
for mode in (0, 1, 0x10):
    done = libc.fallocate(file, mode, ctypes.c_long(0), ctypes.c_long(1 << 20))
    print(mode, 'done' if done == 0 else errno.errorcode[ctypes.get_errno()])
try:
    fcntl.ioctl(file, 0x4030582a, struct.pack('hhxxxxqqii16x', 0, 0, 0, 1 << 20, 0, 0))
    print('resvsp done')
except OSError as error:
    print('resvsp', errno.errorcode[error.errno])
os.posix_fallocate(file, 0, 1 << 20)
print(os.fstat(file).st_size)
hole = libc.fallocate(file, 3, ctypes.c_long(0), ctypes.c_long(4096))
print('hole', hole)";

async fn space_cannot_be_reserved_in_a_watched_workspace(bench: &Bench) -> anyhow::Result<()> {
    let workspace = bench.host_dir("reserved")?;
    let wish = Wish::new()
        .workspace(&workspace, MountMode::Rw)
        .quota_mb(64);
    let held = bench.start(&wish).await?;
    let said = held.run(request(&["python3", "-c", RESERVE])).await?;
    let said = said.text()?;
    let unsupported = "0 ENOTSUP\n1 ENOTSUP\n16 ENOTSUP\nresvsp ENOTSUP\n1048576\n";
    ensure!(said.starts_with(unsupported), "{said}");
    Ok(())
}

/// Whoever wants more is told, and is not ended.
const LARGE: &str = "
import errno, os
with open('large', 'wb', buffering=0) as file:
    try:
        for _ in range(400):
            left = 1 << 20
            while left: left -= file.write(b'x' * left)
        print('all of it')
    except OSError as error:
        print(errno.errorcode[error.errno])
print(os.path.getsize('large') >> 20)
try: os.truncate('large', 1 << 40)
except OSError as error: print(errno.errorcode[error.errno])";

async fn one_file_is_never_much_larger_than_the_quota(bench: &Bench) -> anyhow::Result<()> {
    let workspace = bench.host_dir("large")?;
    let wish = Wish::new()
        .workspace(&workspace, MountMode::Rw)
        .read_only_root(true)
        .quota_mb(80);
    let held = bench.start(&wish).await?;
    let said = held.run(request(&["python3", "-c", LARGE])).await?.text()?;
    ensure!(said == "EFBIG\n81\nEFBIG\n", "{said}");
    // A program that knows nothing of it is told as well, and does not just vanish.
    let ran = held
        .sh("dd if=/dev/zero of=large2 bs=1M count=200 2>&1")
        .await?;
    let said = ran.out();
    ensure!(
        ran.code() == Some(1) && said.contains("File too large"),
        "{:?} {said}",
        ran.exit
    );
    Ok(())
}

async fn a_private_workspace_has_no_such_bounds(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let said = held
        .says("fallocate -l 1M f && truncate -s 1T g && stat -c %s g && ulimit -f")
        .await?;
    ensure!(said == "1099511627776\nunlimited\n", "{said}");
    Ok(())
}
