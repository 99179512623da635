//! The isolation label of one box: what is in force and what is missing.
//!
//! It is based on the host, on init's report and on `/proc` of the box's first process, not on what was
//! requested.

use std::fs;
use std::io;

use boxwood_api::{
    IsolationLabel, Mechanism, MissingMechanism, MountMode, Network, NetworkIsolation,
};
use boxwood_backend::{Capabilities, StartError};
use boxwood_policy::{AdmittedSpec, Denial, check_label};
use rustix::process::Pid;

use crate::host::LocalHost;
use crate::mounts::is_shared;

/// A mechanism that a box lacks, and why.
pub type Lack = (Mechanism, String);

/// What every box in our cgroups lacks on this host.
pub fn host_lacks(host: &LocalHost) -> Vec<Lack> {
    let mut lacks = host.cgroups.missing();
    // Without a cgroup processes are limited per uid.
    lacks.retain(|(mechanism, _)| *mechanism != Mechanism::PidsLimit);
    if let Some(why) = host.mapping.single_uid_reason() {
        lacks.push((Mechanism::SeparateInitUid, why.to_owned()));
        // With the same uid a command can kill its supervisor.
        lacks.push((Mechanism::TreeKill, why.to_owned()));
    }
    if !host.cgroups.any() {
        let why = "the box is in no cgroup of its own";
        lacks.push((Mechanism::CgroupNamespace, why.to_owned()));
    }
    lacks
}

/// What a box on the host's kernel lacks according to its spec and init's report.
pub fn own_kernel_lacks(spec: &AdmittedSpec, landlock: bool) -> Vec<Lack> {
    let mut lacks = Vec::new();
    let writable = |mode| mode == MountMode::Rw;
    if spec.workspace().is_some_and(|mount| writable(mount.mode())) {
        let why = "the workspace is a host directory without a hard size limit";
        lacks.push((Mechanism::DiskQuota, why.to_owned()));
    }
    if !landlock {
        let why = "this kernel does not support it";
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

/// Fields of `/proc/PID/status`, and what they must be.
pub(crate) const RESTRICTIONS: [(Mechanism, &str, &str); 3] = [
    (Mechanism::Seccomp, "Seccomp:", "2"),
    (Mechanism::NoNewPrivileges, "NoNewPrivs:", "1"),
    (
        Mechanism::CapabilitiesDropped,
        "CapBnd:",
        "0000000000000000",
    ),
];

/// What a started box lacks according to the kernel. For boxes whose namespaces were created by an engine.
/// An error if `/proc` of init cannot be read.
pub fn observed_lacks(init: Pid) -> io::Result<Vec<Lack>> {
    let mut lacks = Vec::new();
    for (mechanism, name) in NAMESPACES {
        if is_shared(init, name)? {
            let why = format!("the box shares the {name} namespace of the daemon");
            lacks.push((mechanism, why));
        }
    }
    let status = fs::read_to_string(format!("/proc/{}/status", init.as_raw_nonzero()))?;
    lacks.extend(restriction_lacks(&status));
    Ok(lacks)
}

fn restriction_lacks(status: &str) -> Vec<Lack> {
    RESTRICTIONS
        .into_iter()
        .filter_map(|(mechanism, name, expected)| {
            let value = reported(status, name);
            let why = format!("the kernel reports `{name} {value}` for its init");
            (value != expected).then_some((mechanism, why))
        })
        .collect()
}

/// The value of a field of `/proc/PID/status`.
pub(crate) fn reported<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.map_or("nothing", str::trim)
}

/// Refuses a box that lacks a required mechanism.
pub fn check_required(spec: &AdmittedSpec, label: &IsolationLabel) -> Result<(), StartError> {
    check_label(spec, label).map_err(|denial| match denial {
        Denial::Missing { mechanism, why } => StartError::Missing { mechanism, why },
        denial => StartError::Unsupported {
            what: denial.to_string(),
        },
    })
}

/// Capabilities of a backend whose boxes run on this host.
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

/// The label of a box with these missing mechanisms and all others in force. The first reason for a
/// mechanism counts.
pub fn label(backend: &str, spec: &AdmittedSpec, lacks: Vec<Lack>) -> IsolationLabel {
    let mut missing: Vec<MissingMechanism> = Vec::new();
    for (mechanism, why) in lacks {
        if missing.iter().all(|entry| entry.mechanism != mechanism) {
            missing.push(MissingMechanism { mechanism, why });
        }
    }
    let absent = |mechanism: Mechanism| missing.iter().any(|entry| entry.mechanism == mechanism);
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
    fn a_restriction_counts_only_if_the_kernel_reports_it() {
        let good = "CapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";
        assert_eq!(restriction_lacks(good), []);
        let bad = "CapBnd:\t00000000000001e0\nNoNewPrivs:\t1\nSeccomp:\t0\n";
        let lacks: Vec<Mechanism> = restriction_lacks(bad)
            .into_iter()
            .map(|(lack, _)| lack)
            .collect();
        assert_eq!(lacks, [Mechanism::Seccomp, Mechanism::CapabilitiesDropped]);
        assert_eq!(restriction_lacks("").len(), 3);
    }

    #[test]
    fn the_daemon_itself_lacks_every_namespace() {
        let lacks = observed_lacks(rustix::process::getpid()).expect("own /proc is readable");
        let of = |mechanism| lacks.iter().any(|(lack, _)| *lack == mechanism);
        assert!(NAMESPACES.iter().all(|(mechanism, _)| of(*mechanism)));
    }
}
