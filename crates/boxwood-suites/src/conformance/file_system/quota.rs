//! What the quota monitor of the daemon relies on.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use boxwood_api::MountMode;

use crate::harness::case::cases;
use crate::harness::host_side::{marker, wait_for_processes, wait_until_gone};
use crate::harness::test_box::request;
use crate::{BoxSpec, Fixture};
use boxwood_backend::ExitStatus;

cases! { "quota" needs HostKernel HostMounts:
    kill_all_kills_every_program_and_the_box_lives_on,
    space_cannot_be_reserved_in_a_workspace_with_a_quota,
    one_file_is_never_much_larger_than_the_quota,
    a_private_workspace_has_no_such_limits,
}

/// Three generations of processes. The last one has its own process session.
const FAMILY: &str = "
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
    time.sleep(600)
time.sleep(600)";

async fn kill_all_kills_every_program_and_the_box_lives_on(
    fixture: &Fixture,
) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let (mark, left) = (marker("every-program"), marker("left"));
    let running = test_box
        .spawn(request(&["python3", "-c", FAMILY, &mark]))
        .await?;
    // The command that started this one has ended.
    let script = format!("setsid python3 -c 'import time; time.sleep(600)' {left} >&- 2>&- &");
    test_box.stdout_of(&script).await?;
    wait_for_processes(&mark, 3).await?;
    wait_for_processes(&left, 1).await?;
    test_box.sandbox().kill_all().await.context("killing all")?;
    wait_until_gone(&mark).await?;
    wait_until_gone(&left).await?;
    let ran = running.finish_within(Duration::from_secs(10)).await?;
    ensure!(ran.exit.status == ExitStatus::Signal(9), "{:?}", ran.exit);
    // Killing again is not an error.
    test_box
        .sandbox()
        .kill_all()
        .await
        .context("killing again")?;
    // More commands than there were cgroups to kill.
    for _ in 0..4 {
        test_box.assert_responsive().await?;
    }
    Ok(())
}

/// Calls the kernel directly: the C library falls back to writing.
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

async fn space_cannot_be_reserved_in_a_workspace_with_a_quota(
    fixture: &Fixture,
) -> anyhow::Result<()> {
    let workspace = fixture.host_dir("reserved")?;
    let spec = BoxSpec::new()
        .workspace(&workspace, MountMode::Rw)
        .quota_mb(64);
    let test_box = fixture.start(&spec).await?;
    let text = test_box.run(request(&["python3", "-c", RESERVE])).await?;
    let text = text.text()?;
    let unsupported = "0 ENOTSUP\n1 ENOTSUP\n16 ENOTSUP\nresvsp ENOTSUP\n1048576\n";
    ensure!(text.starts_with(unsupported), "{text}");
    Ok(())
}

/// Writing more fails with EFBIG. The program is not killed.
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

async fn one_file_is_never_much_larger_than_the_quota(fixture: &Fixture) -> anyhow::Result<()> {
    let workspace = fixture.host_dir("large")?;
    let spec = BoxSpec::new()
        .workspace(&workspace, MountMode::Rw)
        .read_only_root(true)
        .quota_mb(80);
    let test_box = fixture.start(&spec).await?;
    let text = test_box
        .run(request(&["python3", "-c", LARGE]))
        .await?
        .text()?;
    ensure!(text == "EFBIG\n81\nEFBIG\n", "{text}");
    // A program that does not expect the limit gets the error too, and no SIGXFSZ.
    let ran = test_box
        .sh("dd if=/dev/zero of=large2 bs=1M count=200 2>&1")
        .await?;
    let text = ran.out();
    ensure!(
        ran.code() == Some(1) && text.contains("File too large"),
        "{:?} {text}",
        ran.exit
    );
    Ok(())
}

async fn a_private_workspace_has_no_such_limits(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let text = test_box
        .stdout_of("fallocate -l 1M f && truncate -s 1T g && stat -c %s g && ulimit -f")
        .await?;
    ensure!(text == "1099511627776\nunlimited\n", "{text}");
    Ok(())
}
