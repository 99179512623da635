//! Attacks on the kernel itself: mounts, namespaces, dangerous system calls, devices and cgroups.

use anyhow::ensure;
use boxwood_api::{Mechanism, Network};
use boxwood_policy::BoxUser;

use crate::escape::attack::{Attack, attack};
use crate::harness::case::cases;
use crate::{BoxSpec, Fixture};
use boxwood_backend::{Stdio, TerminalSize};

cases! { "kernel":
    cannot_mount_or_unmount,
    cannot_make_or_join_a_namespace needs HostKernel,
    cannot_use_bpf_keys_uring_modules_and_kin needs HostKernel,
    cannot_use_a_forbidden_call_by_another_abi needs HostKernel,
    cannot_write_the_kernels_knobs,
    cannot_make_or_open_a_device needs HostKernel,
    cannot_leave_or_loosen_its_cgroups,
    cannot_type_into_its_own_terminal needs Terminal,
    cannot_set_the_clock,
}

/// Runs the attack in each kind of box: plain, with a read-only root, with a network, with root inside.
async fn everywhere(fixture: &Fixture, attack: &Attack) -> anyhow::Result<()> {
    let mut specs = vec![BoxSpec::new(), BoxSpec::new().read_only_root(true)];
    if fixture.host().network {
        specs.push(BoxSpec::new().network(Network::On));
    }
    if fixture.host().root_inside {
        specs.push(BoxSpec::new().user(BoxUser::Root));
    }
    for spec in specs {
        let test_box = fixture.start(&spec).await?;
        attack
            .assert_refused(&test_box, &[])
            .await
            .map_err(|error| error.context(format!("in {spec:?}")))?;
        test_box.assert_responsive().await?;
        test_box.stop().await?;
    }
    Ok(())
}

async fn cannot_mount_or_unmount(fixture: &Fixture) -> anyhow::Result<()> {
    everywhere(fixture, &attack!("mounts", 25)).await
}

async fn cannot_make_or_join_a_namespace(fixture: &Fixture) -> anyhow::Result<()> {
    everywhere(fixture, &attack!("namespaces", 45)).await
}

async fn cannot_use_bpf_keys_uring_modules_and_kin(fixture: &Fixture) -> anyhow::Result<()> {
    everywhere(fixture, &attack!("kernel_calls", 33)).await
}

async fn cannot_use_a_forbidden_call_by_another_abi(fixture: &Fixture) -> anyhow::Result<()> {
    everywhere(fixture, &attack!("foreign_abi", 1)).await
}

async fn cannot_write_the_kernels_knobs(fixture: &Fixture) -> anyhow::Result<()> {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern")?;
    everywhere(fixture, &attack!("proc_and_sys", 40)).await?;
    ensure!(std::fs::read_to_string("/proc/sys/kernel/core_pattern")? == pattern);
    Ok(())
}

async fn cannot_make_or_open_a_device(fixture: &Fixture) -> anyhow::Result<()> {
    everywhere(fixture, &attack!("devices", 45)).await
}

async fn cannot_leave_or_loosen_its_cgroups(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let args: &[&str] = if test_box.sandbox().label().has(Mechanism::CgroupNamespace) {
        &["cgroup_namespace"]
    } else {
        &[]
    };
    attack!("cgroups", 13)
        .assert_refused(&test_box, args)
        .await?;
    Ok(())
}

async fn cannot_type_into_its_own_terminal(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let stdio = Stdio::Terminal(TerminalSize {
        rows: 24,
        cols: 2000,
    });
    attack!("terminal", 8)
        .assert_refused_on(&test_box, &["counted"], stdio)
        .await?;
    Ok(())
}

async fn cannot_set_the_clock(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let ran = test_box
        .sh("date -s '2001-01-01' 2>/dev/null; date +%s")
        .await?;
    let inside: u64 = ran.out().lines().last().unwrap_or_default().parse()?;
    let outside = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)?
        .as_secs();
    ensure!(
        inside.abs_diff(outside) < 30,
        "{inside} inside, {outside} outside"
    );
    Ok(())
}
