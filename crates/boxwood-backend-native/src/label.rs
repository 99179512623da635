//! What is really in force in one box.

use boxwood_api::{IsolationLabel, Mechanism, MissingMechanism, Network, NetworkIsolation};
use boxwood_policy::AdmittedSpec;

use crate::Shared;

/// The label of a box whose init reported `landlock`.
pub(crate) fn label(shared: &Shared, spec: &AdmittedSpec, landlock: bool) -> IsolationLabel {
    let mut missing = shared.host.cgroups.missing();
    // Processes are counted per uid where no cgroup counts them.
    missing.retain(|(mechanism, _)| *mechanism != Mechanism::PidsLimit);
    if let Some(why) = shared.host.mapping.single_uid_reason() {
        missing.push((Mechanism::SeparateInitUid, why.to_owned()));
        // The supervisor that would hold the tree together can then be killed by it.
        missing.push((Mechanism::TreeKill, why.to_owned()));
    }
    if spec
        .workspace()
        .is_some_and(|mount| mount.mode() == boxwood_api::MountMode::Rw)
    {
        let why = "the workspace is a directory of the host, which has no bound of its own";
        missing.push((Mechanism::DiskQuota, why.to_owned()));
    }
    if !landlock {
        missing.push((
            Mechanism::Landlock,
            "this kernel does not offer it".to_owned(),
        ));
    }
    let why = "the box runs on the host's own kernel";
    missing.push((Mechanism::KernelBoundary, why.to_owned()));
    if !shared.host.cgroups.any() {
        let why = "the box is in no cgroup of its own";
        missing.push((Mechanism::CgroupNamespace, why.to_owned()));
    }
    let absent = |mechanism: &Mechanism| missing.iter().any(|(known, _)| known == mechanism);
    IsolationLabel {
        backend: "native".to_owned(),
        network: match spec.network() {
            Network::Off => NetworkIsolation::Off,
            Network::On => NetworkIsolation::Private,
        },
        in_force: Mechanism::ALL
            .into_iter()
            .filter(|mechanism| !absent(mechanism))
            .collect(),
        missing: missing
            .into_iter()
            .map(|(mechanism, why)| MissingMechanism { mechanism, why })
            .collect(),
    }
}
