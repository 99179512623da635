//! The mechanisms that native boxes are expected to lack, by host.
//!
//! The suites fail if an unlisted mechanism is missing, or a listed one is in force.

use boxwood_api::Mechanism;
use boxwood_suites::{MissingMechanism, Privilege};

#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    EveryHost,
    /// For an ordinary user.
    Rootless,
    /// For an ordinary user who has no subordinate uids to give to a box.
    RootlessWithoutSubuids,
    /// Where the kernel was built or booted without it.
    KernelsWithoutLandlock,
}

const EXPECTED: [(Mechanism, On, &str); 7] = [
    (
        Mechanism::KernelBoundary,
        On::EveryHost,
        "native boxes run on the host's own kernel",
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
    // `PidsLimit` is not here: RLIMIT_NPROC counts per user namespace and holds without a cgroup.
    (
        Mechanism::CgroupNamespace,
        On::Rootless,
        "the box has no cgroup of its own",
    ),
    (
        Mechanism::SeparateInitUid,
        On::RootlessWithoutSubuids,
        "only the caller's own uid can be mapped; seccomp protects init instead",
    ),
    (
        Mechanism::TreeKill,
        On::RootlessWithoutSubuids,
        "the supervisor shares the command's uid, so a command could end it first",
    ),
];

pub(super) fn on(privilege: Privilege, landlock: bool) -> Vec<MissingMechanism> {
    EXPECTED
        .into_iter()
        .filter(|(_, on, _)| match on {
            On::EveryHost => true,
            On::Rootless => privilege != Privilege::Root,
            On::RootlessWithoutSubuids => privilege == Privilege::Rootless { subuids: false },
            On::KernelsWithoutLandlock => !landlock,
        })
        .map(|(mechanism, _, why)| MissingMechanism { mechanism, why })
        .collect()
}
