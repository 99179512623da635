//! What is really in force in one box, and what is not.
//!
//! Comes in: what the host offers, what init reported, what the kernel says of the box's first
//! process. Goes out: the label. Never here: what a backend promises; a label is about one box.

use std::fs;
use std::io;

use boxwood_api::{
    IsolationLabel, Mechanism, MissingMechanism, MountMode, Network, NetworkIsolation,
};
use boxwood_backend::{Capabilities, StartError};
use boxwood_policy::{AdmittedSpec, Denial, check_label};
use rustix::process::Pid;

use crate::host::LocalHost;
use crate::namespace::is_shared;

/// A mechanism that a box lacks, and why.
pub type Lack = (Mechanism, String);

/// What no box in cgroups of ours has on this host, whoever made its namespaces.
pub fn host_lacks(host: &LocalHost) -> Vec<Lack> {
    let mut lacks = host.cgroups.missing();
    // Processes are counted per uid where no cgroup counts them.
    lacks.retain(|(mechanism, _)| *mechanism != Mechanism::PidsLimit);
    if let Some(why) = host.mapping.single_uid_reason() {
        lacks.push((Mechanism::SeparateInitUid, why.to_owned()));
        // The supervisor that would hold the tree together can then be killed by it.
        lacks.push((Mechanism::TreeKill, why.to_owned()));
    }
    if !host.cgroups.any() {
        let why = "the box is in no cgroup of its own";
        lacks.push((Mechanism::CgroupNamespace, why.to_owned()));
    }
    lacks
}

/// What a box on the host's own kernel lacks by what was asked of it and what init reported.
pub fn own_kernel_lacks(spec: &AdmittedSpec, landlock: bool) -> Vec<Lack> {
    let mut lacks = Vec::new();
    let writable = |mode| mode == MountMode::Rw;
    if spec.workspace().is_some_and(|mount| writable(mount.mode())) {
        let why = "the workspace is a directory of the host, which has no bound of its own";
        lacks.push((Mechanism::DiskQuota, why.to_owned()));
    }
    if !landlock {
        let why = "this kernel does not offer it";
        lacks.push((Mechanism::Landlock, why.to_owned()));
    }
    let why = "the box runs on the host's own kernel";
    lacks.push((Mechanism::KernelBoundary, why.to_owned()));
    lacks
}

const NAMESPACES: [(Mechanism, &str); 7] = [
    (Mechanism::UserNamespace, "user"),
    (Mechanism::MountNamespace, "mnt"),
    (Mechanism::PidNamespace, "pid"),
    (Mechanism::NetNamespace, "net"),
    (Mechanism::IpcNamespace, "ipc"),
    (Mechanism::UtsNamespace, "uts"),
    (Mechanism::CgroupNamespace, "cgroup"),
];

const FENCES: [(Mechanism, &str, &str); 3] = [
    (Mechanism::Seccomp, "Seccomp:", "2"),
    (Mechanism::NoNewPrivileges, "NoNewPrivs:", "1"),
    (
        Mechanism::CapabilitiesDropped,
        "CapBnd:",
        "0000000000000000",
    ),
];

/// What the kernel says that a begun box lacks, by its first process. For boxes whose namespaces
/// somebody else made: that they were asked for is no proof. An error when we may not look.
pub fn observed_lacks(init: Pid) -> io::Result<Vec<Lack>> {
    let mut lacks = Vec::new();
    for (mechanism, name) in NAMESPACES {
        if is_shared(init, name)? {
            let why = format!("the box shares the {name} namespace of the daemon");
            lacks.push((mechanism, why));
        }
    }
    let status = fs::read_to_string(format!("/proc/{}/status", init.as_raw_nonzero()))?;
    lacks.extend(fence_lacks(&status));
    Ok(lacks)
}

fn fence_lacks(status: &str) -> Vec<Lack> {
    let seen = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("nothing", str::trim)
    };
    FENCES
        .into_iter()
        .filter(|(_, name, wanted)| seen(name) != *wanted)
        .map(|(mechanism, name, _)| {
            let why = format!("the kernel says `{name} {}` of its init", seen(name));
            (mechanism, why)
        })
        .collect()
}

/// Refuses a box whose label lacks what was required of it.
pub fn check_required(spec: &AdmittedSpec, label: &IsolationLabel) -> Result<(), StartError> {
    check_label(spec, label).map_err(|denial| match denial {
        Denial::Missing { mechanism, why } => StartError::Missing { mechanism, why },
        denial => StartError::Unsupported {
            what: denial.to_string(),
        },
    })
}

/// What a backend whose boxes are reached directly can do.
pub fn local_capabilities() -> Capabilities {
    Capabilities {
        pty: true,
        managed_processes: true,
        files: true,
        network: true,
        host_mounts: true,
        live_mounts: true,
        adoption: true,
        mechanisms: Mechanism::ALL
            .into_iter()
            .filter(|&mechanism| mechanism != Mechanism::KernelBoundary)
            .collect(),
    }
}

/// The label of a box of `backend` that lacks this and has everything else. What is named twice is
/// told with its first reason.
pub fn label(backend: &str, spec: &AdmittedSpec, lacks: Vec<Lack>) -> IsolationLabel {
    let mut missing: Vec<MissingMechanism> = Vec::new();
    for (mechanism, why) in lacks {
        if missing.iter().all(|known| known.mechanism != mechanism) {
            missing.push(MissingMechanism { mechanism, why });
        }
    }
    let absent = |mechanism: Mechanism| missing.iter().any(|known| known.mechanism == mechanism);
    IsolationLabel {
        backend: backend.to_owned(),
        runtime: None,
        network: match spec.network() {
            Network::Off => NetworkIsolation::Off,
            Network::On => NetworkIsolation::Private,
        },
        in_force: Mechanism::ALL
            .into_iter()
            .filter(|mechanism| !absent(*mechanism))
            .collect(),
        missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_believed_only_as_the_kernel_shows_it() {
        let good = "CapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";
        assert_eq!(fence_lacks(good), []);
        let bad = "CapBnd:\t00000000000001e0\nNoNewPrivs:\t1\nSeccomp:\t0\n";
        let lacks: Vec<Mechanism> = fence_lacks(bad).into_iter().map(|(lack, _)| lack).collect();
        assert_eq!(lacks, [Mechanism::Seccomp, Mechanism::CapabilitiesDropped]);
        assert_eq!(fence_lacks("").len(), 3);
    }

    #[test]
    fn this_process_is_in_no_box() {
        let lacks = observed_lacks(rustix::process::getpid()).expect("ourselves can be looked at");
        let of = |mechanism| lacks.iter().any(|(lack, _)| *lack == mechanism);
        assert!(NAMESPACES.iter().all(|(mechanism, _)| of(*mechanism)));
    }
}
