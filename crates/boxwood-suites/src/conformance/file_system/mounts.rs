//! Directories of the host inside a box.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

use anyhow::{Context as _, ensure};
use boxwood_api::MountMode;

use crate::harness::case::cases;
use crate::{BoxSpec, Fixture};

cases! { "mounts" needs HostMounts:
    a_writable_workspace_is_shared_with_the_host needs Owners,
    files_keep_the_hosts_owner needs Owners,
    a_read_only_workspace_cannot_be_written,
    a_workspace_of_mode_none_is_private,
    extra_mounts_have_their_own_modes,
    a_single_file_can_be_mounted,
    a_mount_may_lie_inside_the_workspace,
    the_workspace_may_be_elsewhere,
    mounts_carry_no_setuid_and_no_devices needs HostKernel,
    two_boxes_may_share_a_workspace,
    the_mounted_directory_is_the_one_that_was_opened,
}

/// An owner that is neither root nor a user with a login.
const OTHER_UID: u32 = 54_321;

async fn a_writable_workspace_is_shared_with_the_host(fixture: &Fixture) -> anyhow::Result<()> {
    let directory = fixture.host_dir("shared")?;
    std::fs::write(directory.join("from-host"), "host\n")?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&directory, MountMode::Rw))
        .await?;
    let text = test_box
        .stdout_of("cat from-host; echo box > from-box; mkdir sub; echo deep > sub/deep; echo more >> from-host")
        .await?;
    ensure!(text == "host\n", "{text:?}");
    ensure!(std::fs::read_to_string(directory.join("from-box"))? == "box\n");
    ensure!(std::fs::read_to_string(directory.join("sub/deep"))? == "deep\n");
    ensure!(std::fs::read_to_string(directory.join("from-host"))? == "host\nmore\n");
    std::fs::write(directory.join("later"), "later\n")?;
    ensure!(test_box.stdout_of("cat later").await? == "later\n");
    test_box.stop().await?;
    ensure!(std::fs::read_to_string(directory.join("from-box"))? == "box\n");
    Ok(())
}

async fn files_keep_the_hosts_owner(fixture: &Fixture) -> anyhow::Result<()> {
    let directory = fixture.host_dir("owned")?;
    let old = directory.join("old");
    std::fs::write(&old, "old\n")?;
    std::fs::set_permissions(&old, PermissionsExt::from_mode(0o600))?;
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o700))?;
    // As root the directory has another owner; rootless it can only be the caller's own.
    if fixture.host().is_root() {
        for path in [&old, &directory] {
            std::os::unix::fs::chown(path, Some(OTHER_UID), Some(OTHER_UID))?;
        }
    }
    let owner = std::fs::metadata(&directory)?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&directory, MountMode::Rw))
        .await?;
    let text = test_box
        .stdout_of("set -e; cat old; echo new > new; mkdir dir; ln -s old link; echo more >> old; stat -c %u . old new dir | sort -u")
        .await?;
    ensure!(
        text == "old\n1000\n",
        "inside the files are not the box's own: {text:?}"
    );
    for name in ["new", "dir", "link", "old"] {
        let found = std::fs::symlink_metadata(directory.join(name))
            .with_context(|| format!("`{name}` on the host"))?;
        ensure!(
            (found.uid(), found.gid()) == (owner.uid(), owner.gid()),
            "`{name}` belongs to {}:{} on the host, the directory to {}:{}",
            found.uid(),
            found.gid(),
            owner.uid(),
            owner.gid()
        );
    }
    test_box.write("/workspace/by-api", b"x").await?;
    let found = std::fs::metadata(directory.join("by-api"))?;
    ensure!(
        found.uid() == owner.uid(),
        "by the file API: {}",
        found.uid()
    );
    Ok(())
}

async fn a_read_only_workspace_cannot_be_written(fixture: &Fixture) -> anyhow::Result<()> {
    let directory = fixture.host_dir("read-only")?;
    let file = directory.join("file");
    std::fs::write(&file, "kept\n")?;
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666))?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&directory, MountMode::Ro))
        .await?;
    ensure!(test_box.stdout_of("cat file").await? == "kept\n");
    for attempt in [
        "echo x > file",
        "echo x > new",
        "rm -f file; test ! -e file",
        "chmod 600 file",
        "mkdir dir",
        "touch -d '2001-01-01' file",
        "ln -s a b",
        "mv file other",
    ] {
        let ran = test_box.sh(attempt).await?;
        ensure!(
            ran.code() != Some(0),
            "`{attempt}` worked in a read-only workspace"
        );
    }
    ensure!(std::fs::read_to_string(&file)? == "kept\n");
    ensure!(std::fs::read_dir(&directory)?.count() == 1);
    Ok(())
}

async fn a_workspace_of_mode_none_is_private(fixture: &Fixture) -> anyhow::Result<()> {
    let directory = fixture.host_dir("not-mounted")?;
    std::fs::write(directory.join("file"), "host\n")?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&directory, MountMode::None))
        .await?;
    let text = test_box.stdout_of("ls -A; echo x > mine; ls -A").await?;
    ensure!(text == "mine\n", "{text:?}");
    ensure!(!directory.join("mine").exists());
    Ok(())
}

async fn extra_mounts_have_their_own_modes(fixture: &Fixture) -> anyhow::Result<()> {
    let workspace = fixture.host_dir("workspace")?;
    let writable = fixture.host_dir("writable")?;
    let readable = fixture.host_dir("readable")?;
    let absent = fixture.host_dir("absent")?;
    for directory in [&writable, &readable, &absent] {
        std::fs::write(directory.join("file"), "host\n")?;
    }
    let test_box = fixture
        .start(
            &BoxSpec::new()
                .workspace(&workspace, MountMode::Rw)
                .extra(&writable, "/mnt/writable", MountMode::Rw)
                .extra(&readable, "/data/readable", MountMode::Ro)
                .extra(&absent, "/data/absent", MountMode::None),
        )
        .await?;
    let text = test_box
        .stdout_of("cat /mnt/writable/file /data/readable/file && echo x > /mnt/writable/new && test ! -e /data/absent/file")
        .await?;
    ensure!(text == "host\nhost\n", "{text:?}");
    ensure!(writable.join("new").exists());
    let ran = test_box.sh("echo x > /data/readable/new").await?;
    ensure!(ran.code() != Some(0), "a read-only extra mount was written");
    ensure!(!readable.join("new").exists());
    Ok(())
}

async fn a_single_file_can_be_mounted(fixture: &Fixture) -> anyhow::Result<()> {
    let file = fixture.host_file("single/file.txt", "one file\n")?;
    fixture.host_file("single/sibling.txt", "not this\n")?;
    let test_box = fixture
        .start(&BoxSpec::new().extra(&file, "/data/given.txt", MountMode::Ro))
        .await?;
    let text = test_box
        .stdout_of("cat /data/given.txt; cd /data; echo *")
        .await?;
    ensure!(text == "one file\ngiven.txt\n", "{text:?}");
    let ran = test_box.sh("echo x > /data/given.txt").await?;
    ensure!(ran.code() != Some(0));
    ensure!(std::fs::read_to_string(file)? == "one file\n");
    Ok(())
}

async fn a_mount_may_lie_inside_the_workspace(fixture: &Fixture) -> anyhow::Result<()> {
    let workspace = fixture.host_dir("outer")?;
    let skill = fixture.host_dir("skill")?;
    std::fs::write(skill.join("SKILL.md"), "a skill\n")?;
    std::fs::create_dir_all(workspace.join(".skills/one"))?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&workspace, MountMode::Rw).extra(
            &skill,
            "/workspace/.skills/one",
            MountMode::Ro,
        ))
        .await?;
    ensure!(test_box.stdout_of("cat .skills/one/SKILL.md").await? == "a skill\n");
    // The same below a private workspace, where nothing is prepared.
    let test_box = fixture
        .start(&BoxSpec::new().extra(&skill, "/workspace/.skills/one", MountMode::Ro))
        .await?;
    ensure!(
        test_box
            .stdout_of("cat .skills/one/SKILL.md && echo x > here")
            .await?
            == "a skill\n"
    );
    Ok(())
}

async fn the_workspace_may_be_elsewhere(fixture: &Fixture) -> anyhow::Result<()> {
    let directory = fixture.host_dir("elsewhere")?;
    std::fs::write(directory.join("file"), "host\n")?;
    for mount_path in ["/srv/project", "/a/b/c/d", "/home/box/work", "/opt/work"] {
        let test_box = fixture
            .start(
                &BoxSpec::new()
                    .workspace(&directory, MountMode::Rw)
                    .mount_path(mount_path),
            )
            .await?;
        let mut spawn_request = crate::harness::test_box::shell("pwd; cat file");
        mount_path.clone_into(&mut spawn_request.cwd);
        let text = test_box.run(spawn_request).await?.text()?;
        ensure!(text == format!("{mount_path}\nhost\n"), "{text:?}");
        test_box.stop().await?;
    }
    Ok(())
}

async fn mounts_carry_no_setuid_and_no_devices(fixture: &Fixture) -> anyhow::Result<()> {
    let directory = fixture.host_dir("flags")?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&directory, MountMode::Rw).extra(
            &directory,
            "/mnt/extra",
            MountMode::Rw,
        ))
        .await?;
    let info = test_box.stdout_of("cat /proc/self/mountinfo").await?;
    for mount in ["/workspace", "/mnt/extra", "/tmp", "/home"] {
        let line = info
            .lines()
            .find(|line| {
                line.split(' ')
                    .nth(4)
                    .is_some_and(|at| at == mount || at == format!("{mount}/box"))
            })
            .with_context(|| format!("{mount} is not a mount of its own: {info}"))?;
        let options = line.split(' ').nth(5).unwrap_or_default();
        ensure!(
            options.contains("nosuid") && options.contains("nodev"),
            "{mount}: {options}"
        );
    }
    Ok(())
}

async fn two_boxes_may_share_a_workspace(fixture: &Fixture) -> anyhow::Result<()> {
    let directory = fixture.host_dir("common")?;
    let spec = BoxSpec::new().workspace(&directory, MountMode::Rw);
    let one = fixture.start(&spec).await?;
    let two = fixture.start(&spec).await?;
    one.stdout_of("echo one > file").await?;
    ensure!(two.stdout_of("cat file && echo two >> file").await? == "one\n");
    one.stop().await?;
    ensure!(two.stdout_of("cat file").await? == "one\ntwo\n");
    Ok(())
}

async fn the_mounted_directory_is_the_one_that_was_opened(fixture: &Fixture) -> anyhow::Result<()> {
    let directory = fixture.host_dir("checked")?;
    std::fs::write(directory.join("file"), "checked\n")?;
    let other = fixture.host_dir("swapped-in")?;
    std::fs::write(other.join("file"), "swapped\n")?;
    let spec = BoxSpec::new()
        .workspace(&directory, MountMode::Rw)
        .admit("swapped")?;
    // Between check and start, as a race would have it.
    std::fs::rename(&directory, fixture.scratch().join("moved"))?;
    std::os::unix::fs::symlink(&other, &directory)?;
    match fixture.start_admitted(&spec).await? {
        // Refusing is as good as mounting what was checked.
        Err(_) => Ok(()),
        Ok(test_box) => {
            let text = test_box.stdout_of("cat file").await?;
            ensure!(
                text == "checked\n",
                "another directory was mounted: {text:?}"
            );
            Ok(())
        }
    }
}
