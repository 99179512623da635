//! The mechanisms that boxes in containers are expected to lack, by engine.
//!
//! The suites fail if an unlisted mechanism is missing, or a listed one is in force.

use boxwood_api::Mechanism;
use boxwood_suites::{Feature, MissingFeature, MissingMechanism, Privilege};

use super::Chosen;

#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    EveryEngine,
    /// Docker with any runtime.
    Docker,
    /// Containers on the host's own kernel.
    HostsKernel,
    /// For an ordinary user.
    Rootless,
    /// Where the kernel was built or booted without it.
    KernelsWithoutLandlock,
    /// Docker with gVisor's runtime, which runs without cgroups here.
    Gvisor,
}

const EXPECTED: [(Mechanism, On, &str); 10] = [
    (
        Mechanism::UserNamespace,
        On::Docker,
        "Docker creates none unless its daemon runs with `userns-remap`",
    ),
    (
        Mechanism::DiskQuota,
        On::EveryEngine,
        "the writable layer of a container has no size limit; use a read-only root",
    ),
    (
        Mechanism::KernelBoundary,
        On::HostsKernel,
        "containers run on the host's own kernel",
    ),
    (
        Mechanism::Landlock,
        On::KernelsWithoutLandlock,
        "the kernel does not support it",
    ),
    (
        Mechanism::CpuLimit,
        On::Rootless,
        "needs a cgroup, which an ordinary user cannot create without delegation",
    ),
    (
        Mechanism::MemoryLimit,
        On::Rootless,
        "needs a cgroup, which an ordinary user cannot create without delegation",
    ),
    (
        Mechanism::Landlock,
        On::Gvisor,
        "gVisor's kernel does not support it",
    ),
    (
        Mechanism::PidsLimit,
        On::Gvisor,
        "the host limits threads of the sandbox, not processes of the box",
    ),
    (
        Mechanism::CpuLimit,
        On::Gvisor,
        "`runsc --ignore-cgroups` does not put the sandbox into a cgroup",
    ),
    (
        Mechanism::MemoryLimit,
        On::Gvisor,
        "`runsc --ignore-cgroups` does not put the sandbox into a cgroup",
    ),
];

pub(super) fn on(chosen: Chosen, privilege: Privilege, landlock: bool) -> Vec<MissingMechanism> {
    EXPECTED
        .into_iter()
        .filter(|(_, on, _)| match on {
            On::EveryEngine => true,
            On::Docker => chosen != Chosen::Podman,
            On::HostsKernel => chosen != Chosen::Gvisor,
            // A remote engine does not depend on the privileges of the caller.
            On::Rootless => privilege != Privilege::Root && chosen != Chosen::Remote,
            // gVisor has its own kernel.
            On::KernelsWithoutLandlock => !landlock && chosen != Chosen::Gvisor,
            On::Gvisor => chosen == Chosen::Gvisor,
        })
        .map(|(mechanism, _, why)| MissingMechanism { mechanism, why })
        .collect()
}

/// Features missing on gVisor: descriptors and mounts of the host cannot be passed to its kernel.
const NOT_ON_GVISOR: [(Feature, &str); 6] = [
    (
        Feature::Adoption,
        "init is reached through the engine's connection, which ends with the daemon",
    ),
    (
        Feature::Files,
        "descriptors cannot be passed to another kernel",
    ),
    (
        Feature::LiveMounts,
        "mounts of the host's kernel cannot be added to a box on another kernel",
    ),
    (
        Feature::Terminal,
        "gVisor's terminals do not support interrupts, end of input and resizing",
    ),
    (
        Feature::Owners,
        "idmapped mounts cannot be passed to another kernel",
    ),
    (
        Feature::HostKernel,
        "the processes of the box run on the other kernel and are not visible on the host",
    ),
];

/// Features missing on an engine on another machine.
const NOT_REMOTE: [(Feature, &str); 5] = [
    (
        Feature::Adoption,
        "init is reached through the engine's connection, which ends with the daemon",
    ),
    (
        Feature::Files,
        "descriptors cannot be passed to another machine",
    ),
    (
        Feature::LiveMounts,
        "mounts of this machine cannot be added to a box on another machine",
    ),
    (
        Feature::HostMounts,
        "directories of this machine do not exist on the other",
    ),
    (Feature::Owners, "there are no mounts"),
];

pub(super) fn missing_features(chosen: Chosen) -> Vec<MissingFeature> {
    let missing = match chosen {
        Chosen::Docker | Chosen::Podman => return Vec::new(),
        Chosen::Gvisor => NOT_ON_GVISOR.as_slice(),
        Chosen::Remote => &NOT_REMOTE,
    };
    missing
        .iter()
        .map(|&(feature, why)| MissingFeature { feature, why })
        .collect()
}
