//! What boxes in containers are expected to lack, by name, on which engine and why.
//!
//! A mechanism that is missing and not listed here fails the suites; so does one that is listed
//! and in force.

use boxwood_api::Mechanism;
use boxwood_backend::suite::{Absence, NotOffered, Offer, Privilege};

use super::Chosen;

#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    EveryEngine,
    /// Docker, with whatever runtime.
    Docker,
    /// Containers on the host's own kernel.
    HostsKernel,
    /// For an ordinary user.
    Rootless,
    /// Where the kernel was built or booted without it.
    KernelsWithoutLandlock,
    /// Docker with gVisor's runtime, which is started without cgroups of its own here.
    Gvisor,
}

const EXPECTED: [(Mechanism, On, &str); 10] = [
    (
        Mechanism::UserNamespace,
        On::Docker,
        "Docker's daemon makes none unless it was started with `userns-remap`",
    ),
    (
        Mechanism::DiskQuota,
        On::EveryEngine,
        "a container's writable layer has no bound; a box with a read-only root has one",
    ),
    (
        Mechanism::KernelBoundary,
        On::HostsKernel,
        "containers run on the host's own kernel",
    ),
    (
        Mechanism::Landlock,
        On::KernelsWithoutLandlock,
        "the kernel does not offer it",
    ),
    (
        Mechanism::CpuLimit,
        On::Rootless,
        "needs a cgroup, which an ordinary user cannot make without delegation",
    ),
    (
        Mechanism::MemoryLimit,
        On::Rootless,
        "needs a cgroup, which an ordinary user cannot make without delegation",
    ),
    (
        Mechanism::Landlock,
        On::Gvisor,
        "gVisor's kernel does not offer it",
    ),
    (
        Mechanism::PidsLimit,
        On::Gvisor,
        "the host counts threads of the sandbox, not processes of the box",
    ),
    (
        Mechanism::CpuLimit,
        On::Gvisor,
        "`runsc --ignore-cgroups` puts the sandbox into no cgroup",
    ),
    (
        Mechanism::MemoryLimit,
        On::Gvisor,
        "`runsc --ignore-cgroups` puts the sandbox into no cgroup",
    ),
];

pub(super) fn on(chosen: Chosen, privilege: Privilege, landlock: bool) -> Vec<Absence> {
    EXPECTED
        .into_iter()
        .filter(|(_, on, _)| match on {
            On::EveryEngine => true,
            On::Docker => chosen != Chosen::Podman,
            On::HostsKernel => chosen != Chosen::Gvisor,
            // A remote engine is as able as it is, whoever asks.
            On::Rootless => privilege != Privilege::Root && chosen != Chosen::Remote,
            // gVisor's kernel is not the one that was asked.
            On::KernelsWithoutLandlock => !landlock && chosen != Chosen::Gvisor,
            On::Gvisor => chosen == Chosen::Gvisor,
        })
        .map(|(mechanism, _, why)| Absence { mechanism, why })
        .collect()
}

/// What gVisor's boxes do without: no descriptor and no mount of the host's crosses its kernel.
const NOT_ON_GVISOR: [(Offer, &str); 6] = [
    (
        Offer::Adoption,
        "its init is reached by the engine's connection, which ends with the daemon",
    ),
    (
        Offer::Files,
        "an open file cannot be handed across another kernel",
    ),
    (
        Offer::LiveMounts,
        "a mount of the host's kernel cannot join a box on another",
    ),
    (
        Offer::Terminal,
        "gVisor's terminals know no interrupt, no end of input and no other size",
    ),
    (
        Offer::Owners,
        "no mount that translates owners can be handed across another kernel",
    ),
    (
        Offer::HostsOwnKernel,
        "the box's processes are the other kernel's, and the host sees none of them",
    ),
];

/// What boxes of an engine on another machine do without.
const NOT_REMOTE: [(Offer, &str); 5] = [
    (
        Offer::Adoption,
        "its init is reached by the engine's connection, which ends with the daemon",
    ),
    (
        Offer::Files,
        "an open file cannot be handed to another machine",
    ),
    (
        Offer::LiveMounts,
        "a mount of this machine cannot join a box on another",
    ),
    (
        Offer::HostMounts,
        "directories of this machine are not on the other",
    ),
    (Offer::Owners, "there are no mounts"),
];

pub(super) fn offers_of(chosen: Chosen) -> Vec<NotOffered> {
    let missing = match chosen {
        Chosen::Docker | Chosen::Podman => return Vec::new(),
        Chosen::Gvisor => NOT_ON_GVISOR.as_slice(),
        Chosen::Remote => &NOT_REMOTE,
    };
    missing
        .iter()
        .map(|&(offer, why)| NotOffered { offer, why })
        .collect()
}
