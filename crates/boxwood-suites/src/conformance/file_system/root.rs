//! The root file system of a box: which directories are writable, and their size limits.

use anyhow::ensure;
use boxwood_api::Mechanism;
use boxwood_policy::BoxUser;

use crate::harness::case::cases;
use crate::{BoxSpec, Fixture, RootFrom, TestBox};

cases! { "root":
    private_areas_are_writable_and_kept,
    a_read_only_root_cannot_be_written,
    a_writable_root_takes_opt_and_usr_local,
    the_system_is_never_writable,
    what_one_box_installs_no_other_has,
    a_box_user_root_is_root_inside_only,
    tmp_is_bounded,
    home_and_workspace_are_bounded,
    every_writable_place_is_bounded,
    tmp_is_a_tmp,
    there_is_no_sys,
    the_account_files_name_the_box_user,
}

async fn writes(test_box: &TestBox, path: &str) -> anyhow::Result<bool> {
    let ran = test_box.sh(&format!("echo x > {path}")).await?;
    Ok(ran.code() == Some(0))
}

async fn private_areas_are_writable_and_kept(fixture: &Fixture) -> anyhow::Result<()> {
    for read_only in [false, true] {
        let test_box = fixture
            .start(&BoxSpec::new().read_only_root(read_only))
            .await?;
        for path in ["/tmp/x", "/home/box/x", "/workspace/x", "/dev/shm/x"] {
            ensure!(
                writes(&test_box, path).await?,
                "{path} (read-only root: {read_only})"
            );
            let text = test_box.stdout_of(&format!("cat {path}")).await?;
            ensure!(text == "x\n", "{path} was not kept for the next command");
        }
        test_box
            .stdout_of("[ -w /var/tmp ] && echo x > /var/tmp/x")
            .await?;
    }
    Ok(())
}

async fn a_read_only_root_cannot_be_written(fixture: &Fixture) -> anyhow::Result<()> {
    for user in [BoxUser::Box, BoxUser::Root] {
        if user == BoxUser::Root && !fixture.host().root_inside {
            continue;
        }
        let test_box = fixture
            .start(&BoxSpec::new().read_only_root(true).user(user))
            .await?;
        for path in [
            "/opt/x",
            "/usr/local/x",
            "/usr/local/bin/x",
            "/x",
            "/srv/x",
            "/var/x",
        ] {
            ensure!(
                !writes(&test_box, path).await?,
                "{path} could be written by {user:?}"
            );
        }
    }
    Ok(())
}

const INSTALL: &str = "set -e
    mkdir -p /opt/app /usr/local/bin
    echo x > /opt/app/x
    printf '#!/bin/sh\\necho installed\\n' > /usr/local/bin/installed
    chmod +x /usr/local/bin/installed";

/// The user that can write to the root, if there is one.
fn installer(fixture: &Fixture) -> Option<BoxUser> {
    match fixture.host().root {
        RootFrom::TheHost => Some(BoxUser::Box),
        RootFrom::AnImage => fixture.host().root_inside.then_some(BoxUser::Root),
    }
}

async fn a_writable_root_takes_opt_and_usr_local(fixture: &Fixture) -> anyhow::Result<()> {
    let Some(user) = installer(fixture) else {
        return Ok(());
    };
    let test_box = fixture.start(&BoxSpec::new().user(user)).await?;
    test_box.stdout_of(INSTALL).await?;
    let text = test_box.stdout_of("installed").await?;
    ensure!(text == "installed\n");
    ensure!(
        !std::path::Path::new("/usr/local/bin/installed").exists(),
        "a box wrote to the host's /usr/local"
    );
    Ok(())
}

async fn the_system_is_never_writable(fixture: &Fixture) -> anyhow::Result<()> {
    for user in [BoxUser::Box, BoxUser::Root] {
        if user == BoxUser::Root && !fixture.host().root_inside {
            continue;
        }
        // The image has a writable layer of its own, which root inside may change.
        if user == BoxUser::Root && fixture.host().root == RootFrom::AnImage {
            continue;
        }
        let test_box = fixture
            .start(&BoxSpec::new().read_only_root(false).user(user))
            .await?;
        for path in [
            "/usr/bin/x",
            "/usr/lib/x",
            "/bin/x",
            "/lib/x",
            "/usr/x",
            "/proc/x",
        ] {
            ensure!(
                !writes(&test_box, path).await?,
                "{path} could be written by {user:?}"
            );
        }
        // Only checked, not written: with broken isolation these are the host's files.
        let text = test_box
            .stdout_of("for f in /usr/bin/env /usr/bin/python3 /bin/sh /usr/bin /etc/ssl; do [ -w $f ] && echo $f; done; true")
            .await?;
        ensure!(text.is_empty(), "{user:?} may write {text:?}");
    }
    Ok(())
}

async fn what_one_box_installs_no_other_has(fixture: &Fixture) -> anyhow::Result<()> {
    let Some(user) = installer(fixture) else {
        // No user can write to it.
        let test_box = fixture.start(&BoxSpec::new()).await?;
        ensure!(
            test_box.sh(INSTALL).await?.code() != Some(0),
            "it was installed"
        );
        return Ok(());
    };
    let spec = BoxSpec::new().user(user);
    let one = fixture.start(&spec).await?;
    one.stdout_of(INSTALL).await?;
    let beside = fixture.start(&spec).await?;
    one.stop().await?;
    let after = fixture.start(&spec).await?;
    for other in [&beside, &after] {
        let ran = other.sh("installed; ls /opt/app").await?;
        ensure!(ran.code() != Some(0) && ran.out().is_empty(), "{ran:?}");
    }
    Ok(())
}

async fn a_box_user_root_is_root_inside_only(fixture: &Fixture) -> anyhow::Result<()> {
    let spec = BoxSpec::new().user(BoxUser::Root);
    if !fixture.host().root_inside {
        return fixture.assert_no_root_inside().await;
    }
    let test_box = fixture.start(&spec).await?;
    let text = test_box
        .stdout_of(
            "id -u; id -g; grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | cut -f2 | sort -u",
        )
        .await?;
    ensure!(text == "0\n0\n0000000000000000\n", "{text:?}");
    ensure!(writes(&test_box, "/root/x").await?, "/root is not writable");
    let outside = test_box.stdout_of("cat /proc/self/uid_map").await?;
    let host_zero = outside.lines().any(|line| {
        let mut fields = line.split_whitespace();
        fields.next() == Some("0") && fields.next() == Some("0")
    });
    ensure!(
        !host_zero || !fixture.host().is_root(),
        "root inside is the host's root: {outside:?}"
    );
    Ok(())
}

/// Writes zeroes to a file until the directory is full. Returns the number of MiB, and whether it was full.
async fn fill(
    test_box: &TestBox,
    directory: &str,
    stop_at_mib: u64,
) -> anyhow::Result<(u64, bool)> {
    let script = format!(
        "import os, errno, sys
try:
    fd = os.open('{directory}/filler', os.O_CREAT | os.O_WRONLY, 0o600)
except PermissionError:
    print(0, 1)
    sys.exit()
block, done, full = bytes(1 << 20), 0, 0
while done < {stop_at_mib} << 20:
    try:
        done += os.write(fd, block)
    except OSError as fault:
        # A message queue: files in it cannot be written, and the kernel limits their number.
        if fault.errno == errno.EINVAL and done == 0:
            full = 1
            break
        if fault.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        full = 1
        break
os.close(fd)
os.unlink('{directory}/filler')
print(done >> 20, full)"
    );
    let ran = test_box
        .run(crate::harness::test_box::request(&[
            "python3", "-c", &script,
        ]))
        .await?;
    let text = ran.text()?;
    let mut words = text.split_whitespace();
    let mib = words.next().unwrap_or_default().parse()?;
    Ok((mib, words.next() == Some("1")))
}

async fn tmp_is_bounded(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture
        .start(&BoxSpec::new().tmp_mb(16).memory_mb(512))
        .await?;
    let (mib, full) = fill(&test_box, "/tmp", 64).await?;
    ensure!(
        full && (14..=16).contains(&mib),
        "/tmp of 16 MiB took {mib} MiB (full: {full})"
    );
    ensure!(
        writes(&test_box, "/tmp/x").await?,
        "/tmp is still full after the file was removed"
    );
    test_box.assert_responsive().await
}

async fn home_and_workspace_are_bounded(fixture: &Fixture) -> anyhow::Result<()> {
    let spec = BoxSpec::new().quota_mb(24).memory_mb(512);
    let test_box = fixture.start(&spec.bounded(fixture.host())).await?;
    ensure!(fixture.host().bounds_disks() == test_box.sandbox().label().has(Mechanism::DiskQuota));
    if !fixture.host().bounds_disks() {
        return Ok(());
    }
    for directory in ["/home/box", "/workspace"] {
        let (mib, full) = fill(&test_box, directory, 96).await?;
        ensure!(
            full && mib <= 24,
            "{directory} under a quota of 24 MiB took {mib} MiB (full: {full})"
        );
    }
    let ran = test_box
        .sh("head -c 100000000 /dev/zero > /workspace/big")
        .await?;
    ensure!(ran.code() != Some(0));
    ensure!(
        ran.exit.disk_full,
        "the exit does not say that the disk is full: {:?}",
        ran.exit
    );
    test_box.assert_responsive().await
}

async fn every_writable_place_is_bounded(fixture: &Fixture) -> anyhow::Result<()> {
    if !fixture.host().bounds_disks() {
        return Ok(());
    }
    let spec = BoxSpec::new().quota_mb(16).tmp_mb(16).memory_mb(1024);
    let test_box = fixture.start(&spec.bounded(fixture.host())).await?;
    let dirs = test_box
        .stdout_of("find / -xdev -type d -writable 2>/dev/null; for m in $(cut -d' ' -f5 /proc/self/mountinfo); do [ -d $m ] && [ -w $m ] && echo $m; done; true")
        .await?;
    let mut dirs: Vec<&str> = dirs
        .lines()
        .filter(|directory| !directory.starts_with("/proc"))
        .collect();
    dirs.sort_unstable();
    dirs.dedup();
    ensure!(
        dirs.len() >= 4,
        "writable directories are missing: {dirs:?}"
    );
    for directory in dirs {
        let (mib, full) = fill(&test_box, directory, 128).await?;
        ensure!(full, "{directory} took {mib} MiB and was not full");
    }
    Ok(())
}

async fn tmp_is_a_tmp(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let text = test_box
        .stdout_of("python3 -c \"import os; [print(oct(os.stat(p).st_mode)[-4:]) for p in ('/tmp', '/var/tmp', '/dev/shm')]\"").await?;
    ensure!(text == "1777\n1777\n1777\n", "{text:?}");
    Ok(())
}

async fn there_is_no_sys(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let text = test_box.stdout_of("ls -A /sys 2>/dev/null | wc -l").await?;
    ensure!(text.trim() == "0", "/sys has {text} entries");
    Ok(())
}

async fn the_account_files_name_the_box_user(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let text = test_box
        .stdout_of("python3 -c 'import pwd, grp; print(pwd.getpwuid(1000)[0], pwd.getpwuid(1000)[5], grp.getgrgid(1000)[0], pwd.getpwuid(0)[0])'")
        .await?;
    ensure!(text == "box /home/box box root\n", "{text:?}");
    Ok(())
}
