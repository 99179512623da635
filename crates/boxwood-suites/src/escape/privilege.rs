//! Gaining a right that the box does not have, inside or on the host.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

use anyhow::{Context as _, ensure};
use boxwood_api::{MountMode, Network};
use boxwood_policy::BoxUser;

use crate::escape::attack::attack;
use crate::harness::case::cases;
use crate::{BoxSpec, Fixture};
use boxwood_backend::{FileCall, OpenFor};

cases! { "privilege":
    cannot_gain_a_capability_by_a_setuid_file needs HostMounts HostKernel,
    cannot_gain_a_capability_as_root_inside,
    cannot_leave_a_setuid_file_for_the_host needs HostMounts,
    cannot_leave_a_setuid_file_by_a_file_call needs HostMounts Files,
    cannot_open_a_special_socket needs HostKernel,
    cannot_open_a_special_socket_with_the_network_on,
}

/// The interpreter, with links resolved.
fn interpreter() -> anyhow::Result<std::path::PathBuf> {
    std::fs::canonicalize("/usr/bin/python3").context("the suite needs `python3`")
}

async fn cannot_gain_a_capability_by_a_setuid_file(fixture: &Fixture) -> anyhow::Result<()> {
    let workspace = fixture.host_dir("setuid")?;
    let extra = fixture.host_dir("setuid-extra")?;
    let mut paths = Vec::new();
    for (directory, inside) in [(&workspace, "/workspace"), (&extra, "/mnt/extra")] {
        for (name, mode) in [("suid", 0o4755), ("sgid", 0o2755), ("both", 0o6755)] {
            let copy = directory.join(name);
            std::fs::copy(interpreter()?, &copy)?;
            // As root the file is root's; rootless it is the caller's.
            std::fs::set_permissions(&copy, PermissionsExt::from_mode(mode))?;
            ensure!(std::fs::metadata(&copy)?.mode() & 0o6000 != 0);
            paths.push(format!("{inside}/{name}"));
        }
    }
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&workspace, MountMode::Rw).extra(
            &extra,
            "/mnt/extra",
            MountMode::Ro,
        ))
        .await?;
    let args: Vec<&str> = paths.iter().map(String::as_str).collect();
    attack!("privilege", 40)
        .assert_refused(&test_box, &args)
        .await?;
    Ok(())
}

async fn cannot_gain_a_capability_as_root_inside(fixture: &Fixture) -> anyhow::Result<()> {
    if !fixture.host().root_inside {
        return fixture.assert_no_root_inside().await;
    }
    let test_box = fixture.start(&BoxSpec::new().user(BoxUser::Root)).await?;
    attack!("privilege", 30)
        .assert_refused(&test_box, &[])
        .await?;
    Ok(())
}

/// Files with a set-id bit in a directory.
fn set_id_files(directory: &std::path::Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let info = entry.path().symlink_metadata()?;
        if info.is_file() && info.mode() & 0o6000 != 0 {
            found.push(format!("{} {:o}", entry.path().display(), info.mode()));
        }
    }
    Ok(found)
}

async fn cannot_leave_a_setuid_file_for_the_host(fixture: &Fixture) -> anyhow::Result<()> {
    for user in [BoxUser::Box, BoxUser::Root] {
        if user == BoxUser::Root && !fixture.host().root_inside {
            continue;
        }
        let workspace = fixture.host_dir(&format!("for-the-host-{user:?}"))?;
        let test_box = fixture
            .start(
                &BoxSpec::new()
                    .workspace(&workspace, MountMode::Rw)
                    .user(user),
            )
            .await?;
        let outcome = attack!("setuid_for_the_host", 18)
            .assert_refused(&test_box, &[])
            .await;
        let found = set_id_files(&workspace)?;
        ensure!(found.is_empty(), "on the host: {found:?}");
        outcome?;
    }
    Ok(())
}

async fn cannot_leave_a_setuid_file_by_a_file_call(fixture: &Fixture) -> anyhow::Result<()> {
    let workspace = fixture.host_dir("by-call")?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&workspace, MountMode::Rw))
        .await?;
    for (name, how) in [
        ("new", OpenFor::CreateNew { mode: 0o6777 }),
        ("written", OpenFor::Write { mode: 0o4755 }),
        ("huge", OpenFor::Write { mode: u32::MAX }),
    ] {
        let path = format!("/workspace/{name}");
        // Either refused or created without the bits, which is checked on the host.
        let answer = test_box.try_file(FileCall::Open { path, how }).await?;
        drop(answer);
    }
    let found = set_id_files(&workspace)?;
    ensure!(found.is_empty(), "on the host: {found:?}");
    test_box.assert_responsive().await
}

async fn cannot_open_a_special_socket(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    attack!("sockets", 18)
        .assert_refused(&test_box, &[])
        .await?;
    Ok(())
}

async fn cannot_open_a_special_socket_with_the_network_on(fixture: &Fixture) -> anyhow::Result<()> {
    if !fixture.host().network {
        return super::network::refused(fixture).await;
    }
    let test_box = fixture.start(&BoxSpec::new().network(Network::On)).await?;
    attack!("sockets", 18)
        .assert_refused(&test_box, &[])
        .await?;
    Ok(())
}
