//! The isolation label of a relayed box, which cannot be inspected from outside: based on what its kernel
//! reports to init and what the engine reports. Everything else counts as missing.

use boxwood_api::{IsolationLabel, Mechanism, MountMode};
use boxwood_init::Facts;
use boxwood_local::{Group, INIT_PROCESSES, Lack};
use boxwood_policy::AdmittedSpec;

use super::access::kernel_of;
use crate::Shared;

/// Inode numbers of the initial namespaces of a machine.
const FIRST_NAMESPACES: [(Mechanism, &str, u64); 5] = [
    (Mechanism::UserNamespace, "user", 0xEFFF_FFFD),
    (Mechanism::PidNamespace, "pid", 0xEFFF_FFFC),
    (Mechanism::IpcNamespace, "ipc", 0xEFFF_FFFF),
    (Mechanism::UtsNamespace, "uts", 0xEFFF_FFFE),
    (Mechanism::CgroupNamespace, "cgroup", 0xEFFF_FFFB),
];

/// Where the limits of a box are verified.
pub(super) enum Bounds {
    /// In the cgroups of this process, the runtime's sandbox on this machine.
    Sandbox(Option<i32>),
    /// In the engine's report: memory in bytes, CPUs, processes.
    Engine(Vec<u64>),
}

pub(super) fn label(
    shared: &Shared,
    spec: &AdmittedSpec,
    facts: &Facts,
    landlock: bool,
    bounds: &Bounds,
    volumes: bool,
) -> IsolationLabel {
    let mut lacks: Vec<Lack> = Vec::new();
    if kernel_of(&shared.settings).is_some() {
        own_kernel(&mut lacks);
    } else {
        shared_kernel(facts, &mut lacks);
    }
    match bounds {
        Bounds::Sandbox(pid) => by_sandbox(spec, *pid, &mut lacks),
        Bounds::Engine(reported) => by_engine(spec, reported, &mut lacks),
    }
    let not_seen = "init requested it, but the kernel under the box does not report it";
    let writable_workspace = spec
        .workspace()
        .is_some_and(|mount| mount.mode() == MountMode::Rw);
    for (missing, mechanism, why) in [
        (!facts.seccomp, Mechanism::Seccomp, not_seen),
        (
            !facts.no_new_privileges,
            Mechanism::NoNewPrivileges,
            not_seen,
        ),
        (
            !facts.capabilities_dropped,
            Mechanism::CapabilitiesDropped,
            not_seen,
        ),
        (
            facts.interfaces.iter().any(|name| name != "lo"),
            Mechanism::NetNamespace,
            "the box has network interfaces although it should have none",
        ),
        (
            !landlock,
            Mechanism::Landlock,
            "the kernel under the box does not support it",
        ),
        (
            writable_workspace,
            Mechanism::DiskQuota,
            "the workspace is a host directory without a hard size limit",
        ),
        (
            volumes,
            Mechanism::DiskQuota,
            "the image declares volumes, which are writable and have no size limit",
        ),
        (
            !spec.read_only_root(),
            Mechanism::DiskQuota,
            "the writable layer of the container has no size limit; use a read-only root",
        ),
    ] {
        if missing {
            lacks.push((mechanism, why.to_owned()));
        }
    }
    IsolationLabel {
        runtime: shared.settings.runtime.clone(),
        ..boxwood_local::label(shared.settings.engine.name(), spec, lacks)
    }
}

/// The box has its own kernel. The host limits at most the sandbox as a whole.
fn own_kernel(lacks: &mut Vec<Lack>) {
    let why = "the engine maps no users; files of a mount have the host's owners";
    lacks.push((Mechanism::UserNamespace, why.to_owned()));
    let why = "the host limits threads of the sandbox, not processes of the box";
    lacks.push((Mechanism::PidsLimit, why.to_owned()));
}

fn by_sandbox(spec: &AdmittedSpec, pid: Option<i32>, lacks: &mut Vec<Lack>) {
    let group = pid.and_then(|pid| Group::observed(pid, 0).ok());
    let unenforced = match group {
        Some(group) => group.unenforced(&spec.limits()),
        None => vec![Mechanism::CpuLimit, Mechanism::MemoryLimit],
    };
    for mechanism in unenforced {
        let why = "the sandbox is in no cgroup with this limit, as far as can be seen from here";
        lacks.push((mechanism, why.to_owned()));
    }
}

/// An ordinary container on another machine.
fn shared_kernel(facts: &Facts, lacks: &mut Vec<Lack>) {
    let why = "the box runs on its machine's own kernel";
    lacks.push((Mechanism::KernelBoundary, why.to_owned()));
    for (mechanism, name, first) in FIRST_NAMESPACES {
        let found = facts
            .namespaces
            .iter()
            .find(|(reported, _)| reported == name);
        if found.is_none_or(|(_, number)| *number == first) {
            let why = format!("init reports the machine's own {name} namespace");
            lacks.push((mechanism, why));
        }
    }
}

fn by_engine(spec: &AdmittedSpec, reported: &[u64], lacks: &mut Vec<Lack>) {
    let limits = spec.limits();
    let at_most = |index: usize, max: u64| {
        let found = reported.get(index).copied().unwrap_or_default();
        found > 0 && found <= max
    };
    let max_memory_bytes = limits.memory_mb.saturating_mul(1024 * 1024);
    let max_pids = limits.pids.saturating_add(INIT_PROCESSES);
    for (mechanism, bounded) in [
        (Mechanism::CpuLimit, at_most(1, u64::MAX)),
        (Mechanism::MemoryLimit, at_most(0, max_memory_bytes)),
        (Mechanism::PidsLimit, at_most(2, max_pids)),
    ] {
        if !bounded {
            let why = "the engine reports that it has not set this limit";
            lacks.push((mechanism, why.to_owned()));
        }
    }
}
