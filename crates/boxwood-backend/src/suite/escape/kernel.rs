//! The kernel's own doors.

use anyhow::ensure;
use boxwood_api::{Mechanism, Network};
use boxwood_policy::BoxUser;

use crate::suite::attack::{Attack, attack};
use crate::suite::case::cases;
use crate::suite::{Bench, Wish};
use crate::{Stdio, TerminalSize};

cases! { "kernel":
    cannot_mount_or_unmount,
    cannot_make_or_join_a_namespace needs HostsOwnKernel,
    cannot_use_bpf_keys_uring_modules_and_kin needs HostsOwnKernel,
    cannot_use_a_forbidden_call_by_another_abi needs HostsOwnKernel,
    cannot_write_the_kernels_knobs,
    cannot_make_or_open_a_device needs HostsOwnKernel,
    cannot_leave_or_loosen_its_cgroups,
    cannot_type_into_its_own_terminal needs Terminal,
    cannot_set_the_clock,
}

/// In every kind of box that has other rights inside: plain, networked, root.
async fn everywhere(bench: &Bench, attack: &Attack) -> anyhow::Result<()> {
    let mut wishes = vec![Wish::new(), Wish::new().read_only_root(true)];
    if bench.host().network {
        wishes.push(Wish::new().network(Network::On));
    }
    if bench.host().root_inside {
        wishes.push(Wish::new().user(BoxUser::Root));
    }
    for wish in wishes {
        let held = bench.start(&wish).await?;
        attack
            .held(&held, &[])
            .await
            .map_err(|error| error.context(format!("in {wish:?}")))?;
        held.is_well().await?;
        held.stop().await?;
    }
    Ok(())
}

async fn cannot_mount_or_unmount(bench: &Bench) -> anyhow::Result<()> {
    everywhere(bench, &attack!("mounts", 25)).await
}

async fn cannot_make_or_join_a_namespace(bench: &Bench) -> anyhow::Result<()> {
    everywhere(bench, &attack!("namespaces", 45)).await
}

async fn cannot_use_bpf_keys_uring_modules_and_kin(bench: &Bench) -> anyhow::Result<()> {
    everywhere(bench, &attack!("kernel_doors", 33)).await
}

async fn cannot_use_a_forbidden_call_by_another_abi(bench: &Bench) -> anyhow::Result<()> {
    everywhere(bench, &attack!("foreign_abi", 1)).await
}

async fn cannot_write_the_kernels_knobs(bench: &Bench) -> anyhow::Result<()> {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern")?;
    everywhere(bench, &attack!("proc_and_sys", 40)).await?;
    ensure!(std::fs::read_to_string("/proc/sys/kernel/core_pattern")? == pattern);
    Ok(())
}

async fn cannot_make_or_open_a_device(bench: &Bench) -> anyhow::Result<()> {
    everywhere(bench, &attack!("devices", 45)).await
}

async fn cannot_leave_or_loosen_its_cgroups(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let args: &[&str] = if held.sandbox().label().has(Mechanism::CgroupNamespace) {
        &["cgroup_namespace"]
    } else {
        &[]
    };
    attack!("cgroups", 13).held(&held, args).await?;
    Ok(())
}

async fn cannot_type_into_its_own_terminal(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let stdio = Stdio::Terminal(TerminalSize {
        rows: 24,
        cols: 2000,
    });
    attack!("terminal", 8)
        .held_on(&held, &["counted"], stdio)
        .await?;
    Ok(())
}

async fn cannot_set_the_clock(bench: &Bench) -> anyhow::Result<()> {
    let held = bench.start(&Wish::new()).await?;
    let ran = held
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
