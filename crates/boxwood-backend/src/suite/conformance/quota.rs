//! What whoever bounds a workspace from outside relies on.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use boxwood_api::MountMode;

use crate::suite::case::cases;
use crate::suite::conformance::terminal::{on_terminal, type_in, until};
use crate::suite::held::{HeldBox, request};
use crate::suite::outside::{all_gone, marker, seen};
use crate::suite::{Bench, Wish};
use crate::{ExitStatus, Scope, SpawnRequest, Stdio};

cases! { "quota" needs HostsOwnKernel HostMounts:
    everybody_is_killed_and_the_box_lives_on,
    everybody_is_killed_while_the_box_is_held,
    files_without_a_name_are_found,
    a_box_that_is_held_stands_still,
    a_command_begins_while_the_box_is_held,
    a_program_goes_on_after_a_hold_as_before,
    what_was_stopped_stays_stopped_after_a_hold,
    a_growing_tree_goes_on_after_a_hold,
    a_shell_with_jobs_notices_no_hold needs Terminal,
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

/// Writes 8 MiB to two files without a name, says so, and waits.
const NAMELESS: &str = "
import ctypes, os, threading, time
def hold(name):
    file = open(name, 'wb')
    os.unlink(name)
    file.write(b'x' * (4 << 20))
    file.flush()
    os.fsync(file.fileno())
    return file
def apart():
    # CLONE_FILES: descriptors of its own, which the process does not show.
    ctypes.CDLL(None).unshare(0x400)
    held = hold('apart')
    open('written', 'w').close()
    time.sleep(600)
held = hold('nameless')
threading.Thread(target=apart).start()
time.sleep(600)";

async fn files_without_a_name_are_found(bench: &Bench) -> anyhow::Result<()> {
    let workspace = bench.host_dir("nameless")?;
    let wish = Wish::new().workspace(&workspace, MountMode::Rw);
    let held = bench.start(&wish).await?;
    let device = fs::metadata(&workspace)?.dev();
    ensure!(held.sandbox().unlinked_bytes(device).await == 0);
    let running = held.spawn(request(&["python3", "-c", NAMELESS])).await?;
    let written = workspace.join("written");
    // Two files have to reach the disk, which may have others to serve.
    for _ in 0..6000 {
        if written.exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    ensure!(written.exists(), "it did not get to write its files");
    let found = held.sandbox().unlinked_bytes(device).await;
    ensure!((8 * MIB..9 * MIB).contains(&found), "{found} bytes");
    ensure!(held.sandbox().unlinked_bytes(u64::MAX).await == 0);
    running.control.signal(9, Scope::Tree).await?;
    running.finish_within(Duration::from_secs(10)).await?;
    let left = held.sandbox().unlinked_bytes(device).await;
    ensure!(left == 0, "{left} bytes of nobody");
    Ok(())
}

/// Writes for as long as it runs.
const GROWS: &str = "
import ctypes, os, sys, threading
libc = ctypes.CDLL(None)
def grow():
    file = os.open('grows', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True: os.write(file, b'x')
";

/// Has the kernel wake it all the time, by timers that take turns.
const WAKES_ITSELF: &str = "
class Times(ctypes.Structure): _fields_ = [(name, ctypes.c_long) for name in 'abcd']
libc.signal(18, ctypes.cast(libc.getppid, ctypes.c_void_p))
count, every = int(sys.argv[1]), 20_000_000
def wake():
    for at in range(count):
        timer, event = ctypes.c_void_p(), (ctypes.c_int * 16)(0, 0, 18, 0)
        libc.timer_create(1, event, ctypes.byref(timer))
        times = Times(0, every, 0, 1 + every * at // count)
        libc.timer_settime(timer, 0, ctypes.byref(times), None)
";

/// And hands that on to a child before it is found out.
const RELAYS: &str = "
import time
while True:
    wake()
    until = time.monotonic() + 0.002
    file = os.open('grows', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while time.monotonic() < until: os.write(file, b'x')
    try:
        if os.fork() != 0: os._exit(0)
    except OSError: pass
";

/// Waits for a child that never begins, which no signal to the process as a whole interrupts.
const WAITS_DEEPLY: &str = "
os.mkfifo('fifo')
threading.Thread(target=grow).start()
actions, pid = ctypes.create_string_buffer(512), ctypes.c_int()
libc.posix_spawn_file_actions_init(actions)
libc.posix_spawn_file_actions_addopen(actions, 0, b'fifo', 0, 0)
libc.posix_spawn(ctypes.byref(pid), b'/bin/true', actions, None, (ctypes.c_char_p * 2)(b'true', None), None)
";

async fn a_box_that_is_held_stands_still(bench: &Bench) -> anyhow::Result<()> {
    let wakes = format!("{GROWS}{WAKES_ITSELF}wake()\ngrow()");
    let relays = format!("{GROWS}{WAKES_ITSELF}{RELAYS}");
    let waits = format!("{GROWS}{WAITS_DEEPLY}");
    let (calm, fights) = (false, true);
    let programs = [
        (vec!["sh", "-c", "while :; do echo x >> grows; done"], calm),
        (vec!["python3", "-c", &wakes, "1"], fights),
        (vec!["python3", "-c", &wakes, "400"], fights),
        (vec!["python3", "-c", &relays, "40"], fights),
        (vec!["python3", "-c", &waits], fights),
    ];
    for (at, (argv, fights)) in programs.iter().enumerate() {
        let workspace = bench.host_dir(&format!("held-{at}"))?;
        stands_still(bench, &workspace, argv, *fights)
            .await
            .with_context(|| format!("program {at}"))?;
    }
    Ok(())
}

async fn stands_still(
    bench: &Bench,
    workspace: &Path,
    argv: &[&str],
    fights: bool,
) -> anyhow::Result<()> {
    let wish = Wish::new().workspace(workspace, MountMode::Rw);
    let held = bench.start(&wish).await?;
    let running = held.spawn(request(argv)).await?;
    let size = || fs::metadata(workspace.join("grows")).map_or(0, |facts| facts.len());
    let begins = async {
        while size() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), begins)
        .await
        .context("it does not begin")?;
    if fights {
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let sandbox = held.sandbox();
    // Whoever does not want to may keep us waiting for an answer.
    let holding = tokio::time::timeout(Duration::from_secs(1), sandbox.hold());
    let answer = holding.await.ok();
    let in_time = answer.is_some();
    let held_still = answer.unwrap_or(Ok(true)).context("holding")?;
    // Whoever was said to stand still does. How long it takes otherwise, or to end whoever fights it, is
    // the machine's. A hold lasts for longer than this.
    let at_once = in_time && held_still && !fights;
    let mut looks = if at_once { 1 } else { 100 };
    loop {
        let before = size();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let after = size();
        if (before == after) == held_still {
            break;
        }
        looks -= 1;
        ensure!(looks > 0, "{before} then {after}, and held: {held_still}");
    }
    let held_at = size();
    sandbox.thaw().await.context("thawing")?;
    if !fights {
        while size() == held_at {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        running.control.signal(9, Scope::Tree).await?;
        running.finish_within(Duration::from_secs(10)).await?;
    }
    sandbox.kill_all().await.context("killing all")?;
    held.is_well().await
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

/// Writes down every signal but the one that it cannot be spared.
const NOTICES: &str = "
import os, signal, subprocess, sys, time
seen = []
for number in range(1, 65):
    if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGCHLD):
        try: signal.signal(number, lambda got, frame: seen.append(got))
        except (OSError, ValueError): pass
child = subprocess.Popen(['sleep', '600'])
print('ready', flush=True)
sys.stdin.readline()
print('signals', seen, child.poll(), flush=True)
time.sleep(600)";

async fn a_program_goes_on_after_a_hold_as_before(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let mut process = held.process(piped(&["python3", "-c", NOTICES])).await?;
    until(&mut process, "ready\n").await?;
    for _ in 0..10 {
        held.sandbox().hold().await.context("holding")?;
        held.sandbox().thaw().await.context("thawing")?;
    }
    type_in(&mut process, "go on\n").await?;
    until(&mut process, "signals [] None\n").await?;
    process.control.signal(9, Scope::Tree).await?;
    held.is_well().await
}

/// Whether the one that was stopped stands, and the other does not: that one sleeps, or is about to when
/// it gets a processor.
async fn sleepers(held: &HeldBox) -> anyhow::Result<String> {
    let look = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -q '^sleep 60' && \
                echo $(tr '\\0' ' ' < $p/cmdline) $(sed 's/.*) //' $p/stat | cut -c1 | tr R S); done | sort";
    held.says(look).await
}

const STOPS_ONE: &str = "
    runs() { until grep -q ^sleep /proc/$1/cmdline; do :; done; }
    sleep 600 & runs $!; kill -STOP $!; until grep -q ') T' /proc/$!/stat; do :; done;
    sleep 601 & runs $!; echo";

async fn what_was_stopped_stays_stopped_after_a_hold(bench: &Bench) -> anyhow::Result<()> {
    let workspace = bench.host_dir("stopped")?;
    let wish = Wish::new().workspace(&workspace, MountMode::Rw);
    let held = bench.start(&wish).await?;
    let script = format!("{STOPS_ONE}; wait");
    let mut process = held.process(piped(&["sh", "-c", &script])).await?;
    until(&mut process, "\n").await?;
    for _ in 0..5 {
        held.sandbox().hold().await.context("holding")?;
        held.sandbox().thaw().await.context("thawing")?;
        let said = sleepers(&held).await?;
        ensure!(said == "sleep 600 T\nsleep 601 S\n", "{said:?}");
    }
    // Also where somebody begins meanwhile, and where somebody does not stand still.
    held.sandbox().hold().await.context("holding")?;
    let begun = held.spawn(request(&["sleep", "60"])).await?;
    held.sandbox().thaw().await.context("thawing")?;
    begun.control.signal(9, Scope::Tree).await?;
    begun.finish_within(Duration::from_secs(10)).await?;
    let waits = format!("{GROWS}{WAITS_DEEPLY}");
    let waiting = held.spawn(request(&["python3", "-c", &waits])).await?;
    while !workspace.join("grows").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..5 {
        let holding = tokio::time::timeout(Duration::from_millis(100), held.sandbox().hold());
        holding.await.unwrap_or(Ok(true)).context("holding")?;
        held.sandbox().thaw().await.context("thawing")?;
        let said = sleepers(&held).await?;
        ensure!(said == "sleep 600 T\nsleep 601 S\n", "{said:?}");
    }
    waiting.control.signal(9, Scope::Tree).await?;
    process.control.signal(9, Scope::Tree).await?;
    held.is_well().await
}

/// Forks as fast as it can, and no generation but the last lives.
const GROWING: &str = "
import os, time
n = 0
while True:
    n += 1
    if n % 100 == 0:
        with open('generation', 'w') as file: file.write(str(n))
    try:
        if os.fork() != 0: os._exit(0)
    except OSError: time.sleep(0.001)";

async fn a_growing_tree_goes_on_after_a_hold(bench: &Bench) -> anyhow::Result<()> {
    let workspace = bench.host_dir("growing")?;
    let wish = Wish::new().workspace(&workspace, MountMode::Rw);
    let held = bench.start(&wish).await?;
    // With somebody in the same process group who is not to be woken.
    let script = format!("{STOPS_ONE}; exec python3 -c \"{GROWING}\"");
    held.spawn(request(&["sh", "-c", &script])).await?;
    let generation = || fs::read_to_string(workspace.join("generation")).unwrap_or_default();
    // Before that it is a shell, which stands in the kernel for as long as a child that it waits for has
    // not become another program: nothing stops it there.
    while generation().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..20 {
        held.sandbox().hold().await.context("holding")?;
        held.sandbox().thaw().await.context("thawing")?;
        let before = generation();
        let goes_on = async {
            while generation() == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), goes_on)
            .await
            .context("it does not go on")?;
    }
    let said = sleepers(&held).await?;
    ensure!(said == "sleep 600 T\nsleep 601 S\n", "{said:?}");
    held.sandbox().kill_all().await.context("killing all")?;
    held.is_well().await
}

async fn a_shell_with_jobs_notices_no_hold(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let shell = on_terminal(request(&["/bin/sh", "-i"]));
    let mut process = held.process(shell).await?;
    // Looks like nothing while it waits for what is in front.
    type_in(&mut process, "PS1=; set -m; echo mark$((40 + 2))\r").await?;
    until(&mut process, "mark42").await?;
    type_in(
        &mut process,
        "sh -c 'echo in $0; read line; echo got $line' front\r",
    )
    .await?;
    until(&mut process, "in front").await?;
    for _ in 0..30 {
        held.sandbox().hold().await.context("holding")?;
        held.sandbox().thaw().await.context("thawing")?;
    }
    type_in(&mut process, "word\r").await?;
    let seen = until(&mut process, "got word").await?;
    ensure!(!seen.contains("topped"), "{seen:?}");
    process.control.signal(9, Scope::Tree).await?;
    held.is_well().await
}

fn piped(argv: &[&str]) -> SpawnRequest {
    let mut request = request(argv);
    request.stdio = Stdio::Pipes;
    request
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
