//! Roots other than the host's own system.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use boxwood_api::{ErrorCode, MountMode};

use crate::harness::case::cases;
use crate::{BoxSpec, Feature, Fixture};
use boxwood_backend::StartError;

cases! { "image" needs Images:
    a_directory_can_be_the_root needs HostMounts,
    the_directory_itself_is_never_changed,
    a_directory_that_is_gone_is_not_found,
}

/// A root with busybox and nothing else.
fn busybox(fixture: &Fixture, name: &str) -> anyhow::Result<PathBuf> {
    let root = fixture.host_dir(name)?;
    for directory in [
        "bin",
        "etc",
        "tmp",
        "proc",
        "dev",
        "home",
        "usr/bin",
        "workspace",
    ] {
        std::fs::create_dir_all(root.join(directory))?;
    }
    let binary = root.join("bin/busybox");
    std::fs::copy("/bin/busybox", &binary)
        .context("the suite needs `busybox` (apt install busybox-static)")?;
    std::fs::set_permissions(&binary, PermissionsExt::from_mode(0o755))?;
    for tool in [
        "sh", "ls", "cat", "echo", "id", "env", "sleep", "touch", "mkdir", "test",
    ] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(tool))?;
    }
    std::fs::write(root.join("etc/issue-of-the-image"), "image\n")?;
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o755))?;
    Ok(root)
}

async fn a_directory_can_be_the_root(fixture: &Fixture) -> anyhow::Result<()> {
    let root = busybox(fixture, "image")?;
    let workspace = fixture.host_dir("image-workspace")?;
    std::fs::write(workspace.join("file"), "mounted\n")?;
    for read_only in [true, false] {
        let test_box = fixture
            .start(
                &BoxSpec::new()
                    .image(&root)
                    .workspace(&workspace, MountMode::Rw)
                    .read_only_root(read_only),
            )
            .await?;
        let text = test_box
            .stdout_of("cat /etc/issue-of-the-image file; id -u; test ! -e /usr/bin/python3 && echo small; echo x > /tmp/x && echo x > ~/x && cat /proc/self/comm")
            .await?;
        ensure!(text == "image\nmounted\n1000\nsmall\ncat\n", "{text:?}");
        if fixture.host().has_feature(Feature::Files) {
            ensure!(test_box.read("/etc/issue-of-the-image").await? == b"image\n");
        }
        test_box.stop().await?;
    }
    Ok(())
}

async fn the_directory_itself_is_never_changed(fixture: &Fixture) -> anyhow::Result<()> {
    let root = busybox(fixture, "image")?;
    for read_only in [true, false] {
        let test_box = fixture
            .start(&BoxSpec::new().image(&root).read_only_root(read_only))
            .await?;
        test_box
            .sh("echo x > /bin/new; echo x > /etc/issue-of-the-image; mkdir /etc/dir; touch /new")
            .await?;
        test_box.stop().await?;
    }
    // A box from the same image finds it as it was made.
    let test_box = fixture.start(&BoxSpec::new().image(&root)).await?;
    let text = test_box
        .stdout_of("cat /etc/issue-of-the-image; ls -d /bin/new /etc/dir /new 2>/dev/null; true")
        .await?;
    ensure!(text == "image\n", "{text:?}");
    ensure!(std::fs::read_to_string(root.join("etc/issue-of-the-image"))? == "image\n");
    for name in ["bin/new", "etc/dir", "new"] {
        ensure!(
            !root.join(name).exists(),
            "`{name}` was written into the image"
        );
    }
    Ok(())
}

async fn a_directory_that_is_gone_is_not_found(fixture: &Fixture) -> anyhow::Result<()> {
    let nowhere = fixture.scratch().join("no-such-image");
    let answer = fixture.try_start(&BoxSpec::new().image(&nowhere)).await?;
    let Err(error) = answer else {
        anyhow::bail!("a box started from a directory that does not exist")
    };
    ensure!(
        matches!(error, StartError::ImageNotFound { .. }),
        "{error:?}"
    );
    ensure!(error.code() == ErrorCode::ImageNotFound && error.hint().is_some());
    Ok(())
}
