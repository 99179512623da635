//! Mounts that join a box which is running.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use boxwood_api::MountMode;

use crate::suite::case::cases;
use crate::suite::held::{request, shell};
use crate::suite::{Bench, Wish};
use crate::{MountError, Scope};

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
fn package(bench: &Bench, name: &str) -> anyhow::Result<std::path::PathBuf> {
    let path = bench.host_dir(name)?;
    std::fs::write(path.join("SKILL.md"), format!("{name}\n"))?;
    Ok(path)
}

fn refused(joined: Result<(), MountError>) -> anyhow::Result<String> {
    match joined {
        Err(MountError::Step { step, .. }) => Ok(step),
        other => bail!("{other:?} instead of a step that failed"),
    }
}

async fn file_calls_see_a_mount_that_joined(bench: &Bench) -> anyhow::Result<()> {
    let source = package(bench, "one")?;
    let held = bench.start(&Wish::new()).await?;
    held.join(&source, "/workspace/.skills/one", MountMode::Rw)
        .await?;
    let read = held.read("/workspace/.skills/one/SKILL.md").await?;
    ensure!(read == b"one\n", "{read:?}");
    held.write("/workspace/.skills/one/new", b"by the box")
        .await?;
    ensure!(std::fs::read_to_string(source.join("new"))? == "by the box");
    Ok(())
}

async fn a_box_that_is_gone_takes_no_mount(bench: &Bench) -> anyhow::Result<()> {
    let source = package(bench, "one")?;
    let held = bench.start(&Wish::new()).await?;
    held.stop().await?;
    let joined = held
        .try_join(&source, "/workspace/one", MountMode::Ro)
        .await?;
    ensure!(matches!(joined, Err(MountError::Gone)), "{joined:?}");
    Ok(())
}

async fn a_program_that_runs_sees_a_mount_that_joins(bench: &Bench) -> anyhow::Result<()> {
    let source = package(bench, "one")?;
    let held = bench.start(&Wish::new()).await?;
    let waiting = held
        .spawn(shell(
            "touch ready; for i in $(seq 300); do cat .skills/one/SKILL.md 2>/dev/null && exit; sleep 0.1; done; echo never",
        ))
        .await?;
    held.says("for i in $(seq 100); do [ -e ready ] && exit 0; sleep 0.1; done; exit 1")
        .await?;
    held.join(&source, "/workspace/.skills/one", MountMode::Ro)
        .await?;
    let ran = waiting.finish().await?;
    ensure!(ran.text()? == "one\n", "{:?}", ran.out());
    ensure!(held.says("cat .skills/one/SKILL.md").await? == "one\n");
    held.is_well().await
}

async fn a_mount_joins_every_kind_of_workspace(bench: &Bench) -> anyhow::Result<()> {
    let source = package(bench, "one")?;
    let place = "/workspace/.skills/deep/er/one";
    let seen = format!("cat {place}/SKILL.md");
    let private = bench.start(&Wish::new()).await?;
    private.join(&source, place, MountMode::Rw).await?;
    ensure!(private.says(&seen).await? == "one\n");
    let directory = bench.host_dir("workspace")?;
    let shared = bench
        .start(&Wish::new().workspace(&directory, MountMode::Rw))
        .await?;
    shared.join(&source, place, MountMode::Rw).await?;
    ensure!(shared.says(&seen).await? == "one\n");
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
    // A read-only one takes a mount where there is a place for it.
    let read_only = bench
        .start(&Wish::new().workspace(&directory, MountMode::Ro))
        .await?;
    read_only.join(&source, place, MountMode::Rw).await?;
    ensure!(read_only.says(&seen).await? == "one\n");
    // As root inside, where init is another than uid 0.
    if bench.host().root_inside {
        let root = Wish::new().user(boxwood_policy::BoxUser::Root);
        let root = bench.start(&root).await?;
        root.join(&source, place, MountMode::Rw).await?;
        ensure!(root.says(&format!("{seen}; id -u")).await? == "one\n0\n");
    }
    Ok(())
}

async fn a_read_only_mount_that_joined_cannot_be_written(bench: &Bench) -> anyhow::Result<()> {
    let source = package(bench, "kept")?;
    let file = bench.host_file("kept/file", "kept\n")?;
    let held = bench.start(&Wish::new()).await?;
    held.join(&source, "/workspace/kept", MountMode::Ro).await?;
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
        let ran = held.sh(attempt).await?;
        ensure!(ran.code() != Some(0), "`{attempt}` worked");
    }
    ensure!(std::fs::read_to_string(&file)? == "kept\n");
    ensure!(std::fs::read_dir(&source)?.count() == 2);
    Ok(())
}

/// An owner that is neither root nor anybody's login.
const STRANGER: u32 = 54_321;

async fn a_writable_mount_that_joined_keeps_the_hosts_owner(bench: &Bench) -> anyhow::Result<()> {
    let source = package(bench, "owned")?;
    std::fs::set_permissions(&source, PermissionsExt::from_mode(0o700))?;
    // As root the directory is somebody else's; rootless it can only be the caller's own.
    if bench.host().is_root() {
        for path in [source.join("SKILL.md"), source.clone()] {
            std::os::unix::fs::chown(path, Some(STRANGER), Some(STRANGER))?;
        }
    }
    let owner = std::fs::metadata(&source)?;
    let held = bench.start(&Wish::new()).await?;
    held.join(&source, "/workspace/owned", MountMode::Rw)
        .await?;
    let said = held
        .says("set -e; cd owned; echo new > new; mkdir dir; echo more >> SKILL.md; stat -c %u . SKILL.md new dir | sort -u")
        .await?;
    ensure!(said == "1000\n", "inside the files belong to {said:?}");
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

async fn a_single_file_may_join(bench: &Bench) -> anyhow::Result<()> {
    let file = bench.host_file("single/file.txt", "one file\n")?;
    let held = bench.start(&Wish::new()).await?;
    held.join(&file, "/workspace/given/it.txt", MountMode::Ro)
        .await?;
    ensure!(held.says("cat given/it.txt; ls given").await? == "one file\nit.txt\n");
    // A directory is no place for it.
    held.says("mkdir directory").await?;
    let joined = held
        .try_join(&file, "/workspace/directory", MountMode::Ro)
        .await?;
    refused(joined)?;
    held.is_well().await
}

async fn a_source_made_anew_takes_the_old_ones_place(bench: &Bench) -> anyhow::Result<()> {
    let source = package(bench, "one")?;
    let held = bench.start(&Wish::new()).await?;
    let place = "/workspace/.skills/one";
    held.join(&source, place, MountMode::Rw).await?;
    // Somebody stands in it all the while.
    let standing = held
        .process(request(&["sh", "-c", "cd .skills/one && exec sleep 600"]))
        .await?;
    for round in 0..3 {
        std::fs::remove_dir_all(&source)?;
        std::fs::create_dir(&source)?;
        std::fs::set_permissions(&source, PermissionsExt::from_mode(0o777))?;
        std::fs::write(source.join("SKILL.md"), format!("round {round}\n"))?;
        held.join(&source, place, MountMode::Rw).await?;
        let said = held.says("cat .skills/one/SKILL.md").await?;
        ensure!(said == format!("round {round}\n"), "{said:?}");
        held.says("echo mine > .skills/one/mine").await?;
        ensure!(source.join("mine").exists());
    }
    standing.control.signal(9, Scope::Tree).await?;
    held.stop().await
}

async fn another_mode_takes_the_old_ones_place(bench: &Bench) -> anyhow::Result<()> {
    let source = package(bench, "one")?;
    let held = bench
        .start(&Wish::new().extra(&source, "/workspace/one", MountMode::Rw))
        .await?;
    held.says("echo x > one/first").await?;
    held.join(&source, "/workspace/one", MountMode::Ro).await?;
    let ran = held.sh("echo x > one/second").await?;
    ensure!(ran.code() != Some(0), "it is still writable");
    held.join(&source, "/workspace/one", MountMode::Rw).await?;
    held.says("echo x > one/third").await?;
    ensure!(source.join("third").exists() && !source.join("second").exists());
    Ok(())
}

async fn a_mount_joins_outside_the_workspace(bench: &Bench) -> anyhow::Result<()> {
    let source = package(bench, "one")?;
    for read_only in [true, false] {
        let held = bench.start(&Wish::new().read_only_root(read_only)).await?;
        for place in ["/data/deep/one", "/home/box/one", "/tmp/one", "/opt/one"] {
            held.join(&source, place, MountMode::Ro).await?;
            let said = held.says(&format!("cat {place}/SKILL.md")).await?;
            ensure!(said == "one\n", "{place}: {said:?}");
        }
        let ran = held.sh("echo x > /data/new; mkdir /new").await?;
        ensure!(ran.code() != Some(0), "the root can be written afterwards");
        // A writable one joins where commands may write, or is refused in words.
        let joined = held.try_join(&source, "/data/rw", MountMode::Rw).await?;
        match joined {
            Ok(()) => {
                held.says("echo x > /data/rw/new").await?;
            }
            joined => {
                let step = refused(joined)?;
                ensure!(step.contains("below the workspace"), "{step:?}");
            }
        }
    }
    Ok(())
}

async fn a_place_that_cannot_be_made_is_refused(bench: &Bench) -> anyhow::Result<()> {
    let source = package(bench, "one")?;
    let directory = bench.host_dir("read-only")?;
    std::fs::write(directory.join("file"), "a file\n")?;
    let held = bench
        .start(&Wish::new().workspace(&directory, MountMode::Ro))
        .await?;
    for place in ["/workspace/.skills/one", "/workspace/file/one"] {
        let joined = held.try_join(&source, place, MountMode::Ro).await?;
        let step = refused(joined)?;
        ensure!(step.contains(place), "{step:?}");
    }
    ensure!(
        std::fs::read_dir(&directory)?.count() == 1,
        "a read-only workspace was written"
    );
    held.is_well().await
}

async fn the_directory_that_joins_is_the_one_that_was_opened(bench: &Bench) -> anyhow::Result<()> {
    let source = package(bench, "judged")?;
    let other = package(bench, "swapped-in")?;
    let held = bench.start(&Wish::new()).await?;
    let spec = Wish::new()
        .extra(&source, "/workspace/one", MountMode::Ro)
        .admit("swapped")?;
    // Between judgement and mount, as a race would have it.
    std::fs::rename(&source, bench.scratch().join("moved"))?;
    std::os::unix::fs::symlink(&other, &source)?;
    // Refusing is as good as mounting what was judged.
    if held.join_admitted(&spec).await?.is_ok() {
        let said = held.says("cat one/SKILL.md").await?;
        ensure!(said == "judged\n", "another directory joined: {said:?}");
    }
    Ok(())
}

async fn many_mounts_join_at_once(bench: &Bench) -> anyhow::Result<()> {
    let source = package(bench, "one")?;
    let held = bench.start(&Wish::new()).await?;
    let joining: Vec<_> = (0..24)
        .map(|number| {
            let (held, source) = (held.clone(), source.clone());
            let place = format!("/workspace/.skills/{number}");
            tokio::spawn(async move { held.join(&source, &place, MountMode::Ro).await })
        })
        .collect();
    for joined in joining {
        tokio::time::timeout(Duration::from_secs(30), joined).await???;
    }
    let said = held.says("cat .skills/*/SKILL.md | wc -l").await?;
    ensure!(said.trim() == "24", "{said:?}");
    Ok(())
}
