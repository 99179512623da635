//! Mounts that are added to ("join") a running box.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use boxwood_api::MountMode;

use crate::harness::case::cases;
use crate::harness::test_box::{request, shell};
use crate::{BoxSpec, Fixture};
use boxwood_backend::{MountError, Scope};

cases! { "live_mounts" needs LiveMounts:
    file_calls_see_a_mount_that_joined needs Files,
    a_box_that_is_gone_takes_no_mount,
    a_program_that_runs_sees_a_mount_that_joins,
    a_mount_joins_every_kind_of_workspace,
    a_read_only_mount_that_joined_cannot_be_written,
    a_writable_mount_that_joined_keeps_the_hosts_owner,
    a_single_file_may_join,
    a_source_made_anew_takes_the_old_ones_place,
    another_mode_takes_the_old_ones_place,
    a_mount_joins_outside_the_workspace,
    a_place_that_cannot_be_made_is_refused,
    the_directory_that_joins_is_the_one_that_was_opened,
    many_mounts_join_at_once,
}

/// A package as a skill store has them.
fn package(fixture: &Fixture, name: &str) -> anyhow::Result<std::path::PathBuf> {
    let path = fixture.host_dir(name)?;
    std::fs::write(path.join("SKILL.md"), format!("{name}\n"))?;
    Ok(path)
}

fn refused(result: Result<(), MountError>) -> anyhow::Result<String> {
    match result {
        Err(MountError::Step { step, .. }) => Ok(step),
        other => bail!("{other:?} instead of a step that failed"),
    }
}

async fn file_calls_see_a_mount_that_joined(fixture: &Fixture) -> anyhow::Result<()> {
    let source = package(fixture, "one")?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .mount(&source, "/workspace/.skills/one", MountMode::Rw)
        .await?;
    let read = test_box.read("/workspace/.skills/one/SKILL.md").await?;
    ensure!(read == b"one\n", "{read:?}");
    test_box
        .write("/workspace/.skills/one/new", b"by the box")
        .await?;
    ensure!(std::fs::read_to_string(source.join("new"))? == "by the box");
    Ok(())
}

async fn a_box_that_is_gone_takes_no_mount(fixture: &Fixture) -> anyhow::Result<()> {
    let source = package(fixture, "one")?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box.stop().await?;
    let result = test_box
        .try_mount(&source, "/workspace/one", MountMode::Ro)
        .await?;
    ensure!(matches!(result, Err(MountError::Gone)), "{result:?}");
    Ok(())
}

async fn a_program_that_runs_sees_a_mount_that_joins(fixture: &Fixture) -> anyhow::Result<()> {
    let source = package(fixture, "one")?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let waiting = test_box
        .spawn(shell(
            "touch ready; for i in $(seq 300); do cat .skills/one/SKILL.md 2>/dev/null && exit; sleep 0.1; done; echo never",
        ))
        .await?;
    test_box
        .stdout_of("for i in $(seq 100); do [ -e ready ] && exit 0; sleep 0.1; done; exit 1")
        .await?;
    test_box
        .mount(&source, "/workspace/.skills/one", MountMode::Ro)
        .await?;
    let ran = waiting.finish().await?;
    ensure!(ran.text()? == "one\n", "{:?}", ran.out());
    ensure!(test_box.stdout_of("cat .skills/one/SKILL.md").await? == "one\n");
    test_box.assert_responsive().await
}

async fn a_mount_joins_every_kind_of_workspace(fixture: &Fixture) -> anyhow::Result<()> {
    let source = package(fixture, "one")?;
    let mount_path = "/workspace/.skills/deep/er/one";
    let script = format!("cat {mount_path}/SKILL.md");
    let private = fixture.start(&BoxSpec::new()).await?;
    private.mount(&source, mount_path, MountMode::Rw).await?;
    ensure!(private.stdout_of(&script).await? == "one\n");
    let directory = fixture.host_dir("workspace")?;
    let shared = fixture
        .start(&BoxSpec::new().workspace(&directory, MountMode::Rw))
        .await?;
    shared.mount(&source, mount_path, MountMode::Rw).await?;
    ensure!(shared.stdout_of(&script).await? == "one\n");
    // The host sees a mount point, which is the workspace owner's, and not what is mounted on it.
    let owner = std::fs::metadata(&directory)?;
    for part in [".skills", ".skills/deep/er/one"] {
        let found = std::fs::metadata(directory.join(part)).context(part)?;
        ensure!(
            (found.uid(), found.gid()) == (owner.uid(), owner.gid()),
            "`{part}` belongs to {}:{}",
            found.uid(),
            found.gid()
        );
    }
    ensure!(std::fs::read_dir(directory.join(".skills/deep/er/one"))?.count() == 0);
    // In a read-only workspace the mount point must exist.
    let read_only = fixture
        .start(&BoxSpec::new().workspace(&directory, MountMode::Ro))
        .await?;
    read_only.mount(&source, mount_path, MountMode::Rw).await?;
    ensure!(read_only.stdout_of(&script).await? == "one\n");
    // With root inside, whose init has another uid.
    if fixture.host().root_inside {
        let root = BoxSpec::new().user(boxwood_policy::BoxUser::Root);
        let root = fixture.start(&root).await?;
        root.mount(&source, mount_path, MountMode::Rw).await?;
        ensure!(root.stdout_of(&format!("{script}; id -u")).await? == "one\n0\n");
    }
    Ok(())
}

async fn a_read_only_mount_that_joined_cannot_be_written(fixture: &Fixture) -> anyhow::Result<()> {
    let source = package(fixture, "kept")?;
    let file = fixture.host_file("kept/file", "kept\n")?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .mount(&source, "/workspace/kept", MountMode::Ro)
        .await?;
    for attempt in [
        "echo x > kept/file",
        "echo x > kept/new",
        "rm -f kept/file; test ! -e kept/file",
        "chmod 600 kept/file",
        "mkdir kept/dir",
        "mv kept/file kept/other",
        "rmdir kept; test ! -e kept",
        "mv kept elsewhere",
    ] {
        let ran = test_box.sh(attempt).await?;
        ensure!(ran.code() != Some(0), "`{attempt}` worked");
    }
    ensure!(std::fs::read_to_string(&file)? == "kept\n");
    ensure!(std::fs::read_dir(&source)?.count() == 2);
    Ok(())
}

/// An owner that is neither root nor a user with a login.
const OTHER_UID: u32 = 54_321;

async fn a_writable_mount_that_joined_keeps_the_hosts_owner(
    fixture: &Fixture,
) -> anyhow::Result<()> {
    let source = package(fixture, "owned")?;
    std::fs::set_permissions(&source, PermissionsExt::from_mode(0o700))?;
    // As root the directory has another owner; rootless it can only be the caller's own.
    if fixture.host().is_root() {
        for path in [source.join("SKILL.md"), source.clone()] {
            std::os::unix::fs::chown(path, Some(OTHER_UID), Some(OTHER_UID))?;
        }
    }
    let owner = std::fs::metadata(&source)?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .mount(&source, "/workspace/owned", MountMode::Rw)
        .await?;
    let text = test_box
        .stdout_of("set -e; cd owned; echo new > new; mkdir dir; echo more >> SKILL.md; stat -c %u . SKILL.md new dir | sort -u")
        .await?;
    ensure!(text == "1000\n", "inside the files belong to {text:?}");
    for name in ["new", "dir", "SKILL.md"] {
        let found = std::fs::symlink_metadata(source.join(name)).context(name)?;
        ensure!(
            (found.uid(), found.gid()) == (owner.uid(), owner.gid()),
            "`{name}` belongs to {}:{} on the host",
            found.uid(),
            found.gid()
        );
    }
    ensure!(std::fs::read_to_string(source.join("SKILL.md"))? == "owned\nmore\n");
    Ok(())
}

async fn a_single_file_may_join(fixture: &Fixture) -> anyhow::Result<()> {
    let file = fixture.host_file("single/file.txt", "one file\n")?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .mount(&file, "/workspace/given/it.txt", MountMode::Ro)
        .await?;
    ensure!(test_box.stdout_of("cat given/it.txt; ls given").await? == "one file\nit.txt\n");
    // A file cannot be mounted on a directory.
    test_box.stdout_of("mkdir directory").await?;
    let result = test_box
        .try_mount(&file, "/workspace/directory", MountMode::Ro)
        .await?;
    refused(result)?;
    test_box.assert_responsive().await
}

async fn a_source_made_anew_takes_the_old_ones_place(fixture: &Fixture) -> anyhow::Result<()> {
    let source = package(fixture, "one")?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mount_path = "/workspace/.skills/one";
    test_box.mount(&source, mount_path, MountMode::Rw).await?;
    // A process has it as its working directory.
    let process = test_box
        .process(request(&["sh", "-c", "cd .skills/one && exec sleep 600"]))
        .await?;
    for round in 0..3 {
        std::fs::remove_dir_all(&source)?;
        std::fs::create_dir(&source)?;
        std::fs::set_permissions(&source, PermissionsExt::from_mode(0o777))?;
        std::fs::write(source.join("SKILL.md"), format!("round {round}\n"))?;
        test_box.mount(&source, mount_path, MountMode::Rw).await?;
        let text = test_box.stdout_of("cat .skills/one/SKILL.md").await?;
        ensure!(text == format!("round {round}\n"), "{text:?}");
        test_box.stdout_of("echo mine > .skills/one/mine").await?;
        ensure!(source.join("mine").exists());
    }
    process.control.signal(9, Scope::Tree).await?;
    test_box.stop().await
}

async fn another_mode_takes_the_old_ones_place(fixture: &Fixture) -> anyhow::Result<()> {
    let source = package(fixture, "one")?;
    let test_box = fixture
        .start(&BoxSpec::new().extra(&source, "/workspace/one", MountMode::Rw))
        .await?;
    test_box.stdout_of("echo x > one/first").await?;
    test_box
        .mount(&source, "/workspace/one", MountMode::Ro)
        .await?;
    let ran = test_box.sh("echo x > one/second").await?;
    ensure!(ran.code() != Some(0), "it is still writable");
    test_box
        .mount(&source, "/workspace/one", MountMode::Rw)
        .await?;
    test_box.stdout_of("echo x > one/third").await?;
    ensure!(source.join("third").exists() && !source.join("second").exists());
    Ok(())
}

async fn a_mount_joins_outside_the_workspace(fixture: &Fixture) -> anyhow::Result<()> {
    let source = package(fixture, "one")?;
    for read_only in [true, false] {
        let test_box = fixture
            .start(&BoxSpec::new().read_only_root(read_only))
            .await?;
        for mount_path in ["/data/deep/one", "/home/box/one", "/tmp/one", "/opt/one"] {
            test_box.mount(&source, mount_path, MountMode::Ro).await?;
            let text = test_box
                .stdout_of(&format!("cat {mount_path}/SKILL.md"))
                .await?;
            ensure!(text == "one\n", "{mount_path}: {text:?}");
        }
        let ran = test_box.sh("echo x > /data/new; mkdir /new").await?;
        ensure!(ran.code() != Some(0), "the root can be written afterwards");
        // A writable mount outside the writable directories may be refused, with an error that says where it works.
        let result = test_box
            .try_mount(&source, "/data/rw", MountMode::Rw)
            .await?;
        match result {
            Ok(()) => {
                test_box.stdout_of("echo x > /data/rw/new").await?;
            }
            result => {
                let step = refused(result)?;
                ensure!(step.contains("below the workspace"), "{step:?}");
            }
        }
    }
    Ok(())
}

async fn a_place_that_cannot_be_made_is_refused(fixture: &Fixture) -> anyhow::Result<()> {
    let source = package(fixture, "one")?;
    let directory = fixture.host_dir("read-only")?;
    std::fs::write(directory.join("file"), "a file\n")?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&directory, MountMode::Ro))
        .await?;
    for mount_path in ["/workspace/.skills/one", "/workspace/file/one"] {
        let result = test_box
            .try_mount(&source, mount_path, MountMode::Ro)
            .await?;
        let step = refused(result)?;
        ensure!(step.contains(mount_path), "{step:?}");
    }
    ensure!(
        std::fs::read_dir(&directory)?.count() == 1,
        "a read-only workspace was written"
    );
    test_box.assert_responsive().await
}

async fn the_directory_that_joins_is_the_one_that_was_opened(
    fixture: &Fixture,
) -> anyhow::Result<()> {
    let source = package(fixture, "checked")?;
    let other = package(fixture, "swapped-in")?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let spec = BoxSpec::new()
        .extra(&source, "/workspace/one", MountMode::Ro)
        .admit("swapped")?;
    // Between check and mount, as a race would have it.
    std::fs::rename(&source, fixture.scratch().join("moved"))?;
    std::os::unix::fs::symlink(&other, &source)?;
    // Refusing is as good as mounting what was checked.
    if test_box.mount_admitted(&spec).await?.is_ok() {
        let text = test_box.stdout_of("cat one/SKILL.md").await?;
        ensure!(text == "checked\n", "another directory joined: {text:?}");
    }
    Ok(())
}

async fn many_mounts_join_at_once(fixture: &Fixture) -> anyhow::Result<()> {
    let source = package(fixture, "one")?;
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let joining: Vec<_> = (0..24)
        .map(|number| {
            let (test_box, source) = (test_box.clone(), source.clone());
            let mount_path = format!("/workspace/.skills/{number}");
            tokio::spawn(async move { test_box.mount(&source, &mount_path, MountMode::Ro).await })
        })
        .collect();
    for task in joining {
        tokio::time::timeout(Duration::from_secs(30), task).await???;
    }
    let text = test_box.stdout_of("cat .skills/*/SKILL.md | wc -l").await?;
    ensure!(text.trim() == "24", "{text:?}");
    Ok(())
}
