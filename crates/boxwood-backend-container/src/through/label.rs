//! What is in force in a box that cannot be looked at from outside: what its own kernel told init, and
//! what its engine shows. What neither shows is missing.

use boxwood_api::{IsolationLabel, Mechanism, MountMode};
use boxwood_init::Facts;
use boxwood_local::{Group, Lack, PROCESSES_OF_OURS};
use boxwood_policy::AdmittedSpec;

use super::way::kernel_of;
use crate::Shared;

/// Numbers of the namespaces that a machine starts with; all others are somebody's own.
const FIRST_NAMESPACES: [(Mechanism, &str, u64); 5] = [
    (Mechanism::UserNamespace, "user", 0xEFFF_FFFD),
    (Mechanism::PidNamespace, "pid", 0xEFFF_FFFC),
    (Mechanism::IpcNamespace, "ipc", 0xEFFF_FFFF),
    (Mechanism::UtsNamespace, "uts", 0xEFFF_FFFE),
    (Mechanism::CgroupNamespace, "cgroup", 0xEFFF_FFFB),
];

/// What bounds a box, as far as it can be seen.
pub(super) enum Bounds {
    /// By the groups of this process, its sandbox on this machine.
    Sandbox(Option<i32>),
    /// By what its engine has set: bytes, processors, processes.
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
        behind_a_kernel(&mut lacks);
    } else {
        on_their_kernel(facts, &mut lacks);
    }
    match bounds {
        Bounds::Sandbox(pid) => by_sandbox(spec, *pid, &mut lacks),
        Bounds::Engine(set) => by_engine(spec, set, &mut lacks),
    }
    let mut lack = |mechanism, missing: bool, why: &str| {
        if missing {
            lacks.push((mechanism, why.to_owned()));
        }
    };
    let not_seen = "init asked for it, and the kernel under the box does not show it";
    lack(Mechanism::Seccomp, !facts.seccomp, not_seen);
    lack(
        Mechanism::NoNewPrivileges,
        !facts.no_new_privileges,
        not_seen,
    );
    lack(
        Mechanism::CapabilitiesDropped,
        !facts.capabilities_dropped,
        not_seen,
    );
    lack(
        Mechanism::NetNamespace,
        facts.interfaces.iter().any(|name| name != "lo"),
        "the box has network interfaces although it was to have none",
    );
    lack(
        Mechanism::Landlock,
        !landlock,
        "the kernel under the box does not offer it",
    );
    let shares = |mode| mode == MountMode::Rw;
    lack(
        Mechanism::DiskQuota,
        spec.workspace().is_some_and(|mount| shares(mount.mode())),
        "the workspace is a directory of the host, which has no bound of its own",
    );
    lack(
        Mechanism::DiskQuota,
        volumes,
        "the image declares volumes, which can be written and have no bound",
    );
    lack(
        Mechanism::DiskQuota,
        !spec.read_only_root(),
        "the container's own layer has no bound; with a read-only root there is none",
    );
    IsolationLabel {
        runtime: shared.settings.runtime.clone(),
        ..boxwood_local::label(shared.settings.engine.name(), spec, lacks)
    }
}

/// Everything inside is that kernel's own. The host bounds the sandbox as a whole, if at all.
fn behind_a_kernel(lacks: &mut Vec<Lack>) {
    let why = "the engine maps no users; files of a mount have the host's owners";
    lacks.push((Mechanism::UserNamespace, why.to_owned()));
    let why = "the host counts threads of the sandbox, not processes of the box";
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
fn on_their_kernel(facts: &Facts, lacks: &mut Vec<Lack>) {
    let why = "the box runs on its machine's own kernel";
    lacks.push((Mechanism::KernelBoundary, why.to_owned()));
    for (mechanism, name, first) in FIRST_NAMESPACES {
        let found = facts.namespaces.iter().find(|(known, _)| known == name);
        if found.is_none_or(|(_, number)| *number == first) {
            let why = format!("the box has no {name} namespace of its own, as far as it can see");
            lacks.push((mechanism, why));
        }
    }
}

fn by_engine(spec: &AdmittedSpec, set: &[u64], lacks: &mut Vec<Lack>) {
    let limits = spec.limits();
    let at_most = |place: usize, most: u64| {
        let found = set.get(place).copied().unwrap_or_default();
        found > 0 && found <= most
    };
    let most_memory = limits.memory_mb.saturating_mul(1024 * 1024);
    let most_pids = limits.pids.saturating_add(PROCESSES_OF_OURS);
    for (mechanism, bounded) in [
        (Mechanism::CpuLimit, at_most(1, u64::MAX)),
        (Mechanism::MemoryLimit, at_most(0, most_memory)),
        (Mechanism::PidsLimit, at_most(2, most_pids)),
    ] {
        if !bounded {
            let why = "the engine says that it has not set it";
            lacks.push((mechanism, why.to_owned()));
        }
    }
}
