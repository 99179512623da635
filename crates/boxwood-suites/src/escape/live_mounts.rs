//! Attacks on a mount that is added to a running box, and on the mount helper.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use boxwood_api::MountMode;
use boxwood_policy::BoxUser;

use crate::harness::case::cases;
use crate::harness::host_side::marker;
use crate::harness::test_box::request;
use crate::{BoxSpec, Fixture, TestBox};
use boxwood_backend::{MountError, Scope};

cases! { "live_mounts" needs LiveMounts:
    cannot_lead_a_new_mount_through_a_link,
    cannot_win_a_race_for_the_place_of_a_new_mount,
    cannot_leave_a_mount_that_joined,
    cannot_write_through_a_read_only_mount_that_joined,
    cannot_gain_anything_from_a_mount_that_joined,
    cannot_see_or_stop_the_mount_helper,
    cannot_make_a_mount_wait,
    cannot_keep_a_mount_that_joined_after_stop,
}

/// The mount points in the box.
async fn mount_points(test_box: &TestBox) -> anyhow::Result<Vec<String>> {
    let text = test_box.stdout_of("cat /proc/self/mountinfo").await?;
    Ok(text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(str::to_owned)
        .collect())
}

async fn cannot_lead_a_new_mount_through_a_link(fixture: &Fixture) -> anyhow::Result<()> {
    let source = fixture.host_dir("source")?;
    let outside = fixture.host_dir("outside")?;
    let workspace = fixture.host_dir("workspace")?;
    for spec in [
        BoxSpec::new(),
        BoxSpec::new().workspace(&workspace, MountMode::Rw),
    ] {
        let test_box = fixture.start(&spec).await?;
        let before = mount_points(&test_box).await?;
        let targets = [
            "/tmp".to_owned(),
            "/etc".to_owned(),
            "/home/box".to_owned(),
            "..".to_owned(),
            "/proc/1/root".to_owned(),
            "/proc/self/root".to_owned(),
            "/proc/self/cwd".to_owned(),
            outside.display().to_string(),
            "nowhere".to_owned(),
        ];
        for target in &targets {
            test_box
                .stdout_of(&format!("rm -rf .skills; ln -s {target} .skills"))
                .await?;
            for mount_path in ["/workspace/.skills/x", "/workspace/.skills"] {
                let result = test_box
                    .try_mount(&source, mount_path, MountMode::Rw)
                    .await?;
                ensure!(
                    matches!(result, Err(MountError::Step { .. })),
                    "{mount_path} through a link to {target}: {result:?}"
                );
            }
        }
        test_box
            .stdout_of("rm -f .skills; mkdir .skills; ln -s /tmp .skills/x")
            .await?;
        let result = test_box
            .try_mount(&source, "/workspace/.skills/x", MountMode::Rw)
            .await?;
        ensure!(matches!(result, Err(MountError::Step { .. })), "{result:?}");
        test_box.stdout_of("rm -rf .skills").await?;
        ensure!(
            mount_points(&test_box).await? == before,
            "something was mounted"
        );
        ensure!(
            std::fs::read_dir(&outside)?.count() == 0,
            "a directory was created on the host"
        );
        test_box.assert_responsive().await?;
    }
    Ok(())
}

/// Exchanges a directory and links to other places for as long as it runs, in several processes.
const SWAPPER: &str = "
import ctypes, os
libc = ctypes.CDLL(None)
os.chdir('/workspace')
for target in ('/tmp', '/proc/self/root/tmp', '/', '/home/box'):
    if os.fork() == 0:
        name = 'link%d' % os.getpid()
        os.symlink(target, name)
        libc.renameat2(-100, b'.skills', -100, name.encode(), 2)
        open('swaps', 'w').close()
        while True:
            libc.renameat2(-100, b'.skills', -100, name.encode(), 2)
if os.fork() == 0:
    while True:
        for name in os.listdir('.'):
            try: os.rmdir(name + '/new')
            except OSError: pass
while True:
    try: os.mkdir('.skills')
    except OSError: pass
";

async fn cannot_win_a_race_for_the_place_of_a_new_mount(fixture: &Fixture) -> anyhow::Result<()> {
    let source = fixture.host_dir("source")?;
    std::fs::write(source.join("mark"), "")?;
    let workspace = fixture.host_dir("workspace")?;
    std::fs::create_dir(workspace.join(".skills"))?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&workspace, MountMode::Rw))
        .await?;
    test_box.assert_isolated().await?;
    let before = mount_points(&test_box).await?;
    let racing = test_box
        .process(request(&["python3", "-c", SWAPPER]))
        .await?;
    let swaps = async {
        while !workspace.join("swaps").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), swaps)
        .await
        .context("the program does not swap the directories")?;
    let began = Instant::now();
    let (mut joined, mut refused) = (0_u32, 0_u32);
    let is_enough = |joined: u32, refused: u32| {
        let tried = joined >= 200 || began.elapsed() >= Duration::from_secs(12);
        tried && joined + refused > 20 && refused > 0
    };
    while !is_enough(joined, refused) && began.elapsed() < Duration::from_mins(1) {
        // Always the same mount point, with what the last attempt left.
        let outcome = test_box
            .try_mount(&source, "/workspace/.skills/new", MountMode::Ro)
            .await?;
        match outcome {
            Ok(()) => joined += 1,
            Err(MountError::Step { .. }) => refused += 1,
            Err(other) => return Err(other).context("the box was lost"),
        }
    }
    racing.control.signal(9, Scope::Tree).await?;
    ensure!(
        joined + refused > 20 && refused > 0,
        "{joined} joined, {refused} refused: no race was run"
    );
    for mount_point in mount_points(&test_box).await? {
        ensure!(
            before.contains(&mount_point) || mount_point.starts_with("/workspace/"),
            "a mount was led to {mount_point}"
        );
    }
    let strays = test_box
        .stdout_of("ls -d /tmp/new /new /home/box/new /tmp/mark 2>/dev/null; true")
        .await?;
    ensure!(strays.is_empty(), "made elsewhere: {strays}");
    test_box.assert_responsive().await?;
    test_box.stop().await?;
    fixture
        .start(&BoxSpec::new())
        .await?
        .assert_responsive()
        .await
}

async fn cannot_leave_a_mount_that_joined(fixture: &Fixture) -> anyhow::Result<()> {
    let secret_text = marker("sibling-words");
    fixture.host_file("house/sibling/secret", &secret_text)?;
    let room = fixture.host_dir("house/room")?;
    std::fs::create_dir_all(room.join("a/b"))?;
    std::os::unix::fs::symlink("../sibling/secret", room.join("link"))?;
    std::os::unix::fs::symlink(
        fixture.scratch().join("house/sibling/secret"),
        room.join("absolute"),
    )?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .mount(&room, "/workspace/room", MountMode::Rw)
        .await?;
    for script in [
        "cat room/../sibling/secret",
        "cat room/a/b/../../../sibling/secret",
        "cd -P room; cat ../sibling/secret; ls -a ..; cat ../../*/sibling/secret",
        "cat room/link room/absolute",
        "cat /proc/self/root/workspace/room/../sibling/secret",
        "cd room; cat $(pwd -P)/../sibling/secret",
        // Without large directories that have no mounts below them.
        "find / \\( -path /proc -o -path /sys -o -path /usr -o -path /lib \\) -prune -o \
         -name secret -path '*sibling*' -exec cat {} + 2>/dev/null; false",
    ] {
        let ran = test_box.sh(script).await?;
        ensure!(
            !ran.out().contains(&secret_text),
            "`{script}` left the mount"
        );
    }
    Ok(())
}

/// Every way to change `/workspace/kept/file`, counted where it is refused.
const WRITES: &str = "
import os, ctypes
libc = ctypes.CDLL(None, use_errno=True)
path = '/workspace/kept/file'
def call(name, *args):
    if getattr(libc, name)(*args) != 0:
        raise OSError(ctypes.get_errno(), name)
def ways():
    yield lambda: os.open(path, os.O_WRONLY)
    yield lambda: os.open('/proc/self/fd/%d' % os.open(path, os.O_RDONLY), os.O_RDWR)
    yield lambda: os.truncate(path, 0)
    yield lambda: os.unlink(path)
    yield lambda: os.rename(path, '/workspace/kept/other')
    yield lambda: os.link(path, '/workspace/file')
    yield lambda: os.chmod(path, 0o777)
    yield lambda: os.utime(path, (1, 1))
    yield lambda: os.setxattr(path, 'user.x', b'x')
    yield lambda: os.mkdir('/workspace/kept/dir')
    yield lambda: os.rename('/workspace/kept', '/workspace/gone')
    yield lambda: os.rmdir('/workspace/kept')
    yield lambda: call('mount', None, b'/workspace/kept', None, 32 | 4096, None)
    yield lambda: call('umount2', b'/workspace/kept', 2)
    yield lambda: call('unshare', 0x20000 | 0x10000000)
refused = 0
for way in ways():
    try:
        way()
        print('worked', refused)
    except OSError:
        refused += 1
print('refused', refused)";

async fn cannot_write_through_a_read_only_mount_that_joined(
    fixture: &Fixture,
) -> anyhow::Result<()> {
    let source = fixture.host_dir("kept")?;
    let file = fixture.host_file("kept/file", "untouched")?;
    let mut specs = vec![BoxSpec::new()];
    if fixture.host().root_inside {
        specs.push(BoxSpec::new().user(BoxUser::Root));
    }
    for spec in specs {
        let test_box = fixture.start(&spec).await?;
        test_box
            .mount(&source, "/workspace/kept", MountMode::Ro)
            .await?;
        let ran = test_box.run(request(&["python3", "-c", WRITES])).await?;
        ensure!(ran.text()? == "refused 15\n", "{:?}", ran.out());
    }
    ensure!(std::fs::read_to_string(file)? == "untouched");
    ensure!(std::fs::read_dir(source)?.count() == 1);
    Ok(())
}

async fn cannot_gain_anything_from_a_mount_that_joined(fixture: &Fixture) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let source = fixture.host_dir("source")?;
    std::fs::copy("/usr/bin/id", source.join("id"))?;
    std::fs::set_permissions(source.join("id"), PermissionsExt::from_mode(0o6755))?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    for (mount_path, mode) in [
        ("/workspace/rw", MountMode::Rw),
        ("/workspace/ro", MountMode::Ro),
        ("/data/ro", MountMode::Ro),
    ] {
        test_box.mount(&source, mount_path, mode).await?;
        let info = test_box.stdout_of("cat /proc/self/mountinfo").await?;
        let line = info
            .lines()
            .find(|line| line.split(' ').nth(4) == Some(mount_path))
            .with_context(|| format!("{mount_path} is not mounted: {info}"))?;
        let options = line.split(' ').nth(5).unwrap_or_default();
        ensure!(
            options.contains("nosuid") && options.contains("nodev"),
            "{mount_path}: {options}"
        );
        ensure!(
            options.split(',').any(|option| option == mode.as_str()),
            "{mount_path}: {options}"
        );
        // Neither shared with the host nor with another box.
        ensure!(
            !line.contains(" shared:") && !line.contains(" master:"),
            "{line}"
        );
        let text = test_box.stdout_of(&format!("{mount_path}/id -u")).await?;
        ensure!(text == "1000\n", "{mount_path}: {text:?}");
    }
    let ran = test_box.sh("mknod rw/null c 1 3").await?;
    ensure!(ran.code() != Some(0), "a device was made");
    Ok(())
}

/// Stops and traces every process that it can, and prints the names of Boxwood's.
const STALKER: &str = "
import ctypes, os, signal
libc = ctypes.CDLL(None)
own = {os.getpid(), os.getppid(), 1}
seen = set()
print('looking', flush=True)
open('/workspace/looking', 'w').close()
while not os.path.exists('/workspace/enough'):
    for name in os.listdir('/proc'):
        if not name.isdigit() or int(name) in own: continue
        try: comm = open('/proc/%s/comm' % name).read().strip()
        except OSError: continue
        if comm.startswith('boxwood'): seen.add(comm)
        try: os.kill(int(name), signal.SIGSTOP)
        except OSError: pass
        libc.ptrace(16, int(name), 0, 0)
    for pid in range(2, 400):
        if pid in own: continue
        try: os.kill(pid, signal.SIGSTOP)
        except OSError: pass
print('seen', sorted(seen), flush=True)";

async fn cannot_see_or_stop_the_mount_helper(fixture: &Fixture) -> anyhow::Result<()> {
    let source = fixture.host_dir("source")?;
    let workspace = fixture.host_dir("workspace")?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&workspace, MountMode::Rw))
        .await?;
    test_box.assert_isolated().await?;
    let watching = test_box.spawn(request(&["python3", "-c", STALKER])).await?;
    for _ in 0..100 {
        if workspace.join("looking").exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for number in 0..60 {
        let mount_path = format!("/workspace/.skills/{number}");
        test_box.mount(&source, &mount_path, MountMode::Ro).await?;
    }
    std::fs::write(workspace.join("enough"), "")?;
    let text = watching.finish().await?.text()?;
    // Commands that share the uid of init can see it.
    let allowed = ["looking\nseen []\n", "looking\nseen ['boxwood-init']\n"];
    ensure!(allowed.contains(&text.as_str()), "{text:?}");
    Ok(())
}

async fn cannot_make_a_mount_wait(fixture: &Fixture) -> anyhow::Result<()> {
    let source = fixture.host_dir("source")?;
    let file = fixture.host_file("file.txt", "a file\n")?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    // One target is a working directory, one a pipe without a writer, one has a lease.
    test_box
        .stdout_of("mkdir busy; mkfifo pipe; echo x > leased")
        .await?;
    let holding = test_box
        .process(request(&[
            "python3",
            "-c",
            "import fcntl, os, signal, time\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\nos.chdir('/workspace/busy')\nfd = os.open('/workspace/leased', os.O_RDWR)\ntry: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\nexcept OSError: pass\nopen('/workspace/ready', 'w').close()\ntime.sleep(600)",
        ]))
        .await?;
    test_box
        .stdout_of("for i in $(seq 100); do [ -e ready ] && exit 0; sleep 0.1; done; exit 1")
        .await?;
    let began = Instant::now();
    test_box
        .mount(&source, "/workspace/busy", MountMode::Ro)
        .await?;
    for mount_path in ["/workspace/pipe", "/workspace/leased"] {
        let result = test_box.try_mount(&file, mount_path, MountMode::Ro).await?;
        ensure!(
            matches!(result, Ok(()) | Err(MountError::Step { .. })),
            "{result:?}"
        );
    }
    ensure!(
        began.elapsed() < Duration::from_secs(8),
        "mounts were held up for {:?}",
        began.elapsed()
    );
    holding.control.signal(9, Scope::Tree).await?;
    test_box.assert_responsive().await
}

async fn cannot_keep_a_mount_that_joined_after_stop(fixture: &Fixture) -> anyhow::Result<()> {
    let source = fixture.host_dir("source")?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .mount(&source, "/workspace/one", MountMode::Rw)
        .await?;
    // One mount is in use, and one is still being added while the box stops.
    drop(
        test_box
            .process(request(&["sh", "-c", "cd one; exec sleep 600"]))
            .await?,
    );
    let (late, source_copy) = (test_box.clone(), source.clone());
    let joining = tokio::spawn(async move {
        late.try_mount(&source_copy, "/workspace/late", MountMode::Rw)
            .await
    });
    test_box.stop().await?;
    let late = joining.await??;
    ensure!(
        matches!(
            late,
            Ok(()) | Err(MountError::Gone | MountError::Step { .. })
        ),
        "{late:?}"
    );
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let name = source.display().to_string();
    ensure!(!mounts.contains(&name), "still mounted on the host");
    // The source can be moved and removed like any directory.
    std::fs::rename(&source, fixture.scratch().join("elsewhere"))?;
    std::fs::remove_dir_all(fixture.scratch().join("elsewhere"))?;
    Ok(())
}
