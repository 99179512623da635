//! The isolation label: the mechanisms that are in force for one session.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An isolation mechanism. A profile can `require` it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    UserNamespace,
    MountNamespace,
    PidNamespace,
    NetNamespace,
    IpcNamespace,
    UtsNamespace,
    CgroupNamespace,
    CpuLimit,
    MemoryLimit,
    PidsLimit,
    DiskQuota,
    Seccomp,
    NoNewPrivileges,
    CapabilitiesDropped,
    Landlock,
    /// Commands run with another uid than the init process of the box.
    SeparateInitUid,
    /// A timeout kills all descendants.
    TreeKill,
    /// A kernel separate from the host's (gVisor, a microVM).
    KernelBoundary,
}

impl Mechanism {
    pub const ALL: [Self; 18] = [
        Self::UserNamespace,
        Self::MountNamespace,
        Self::PidNamespace,
        Self::NetNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::CgroupNamespace,
        Self::CpuLimit,
        Self::MemoryLimit,
        Self::PidsLimit,
        Self::DiskQuota,
        Self::Seccomp,
        Self::NoNewPrivileges,
        Self::CapabilitiesDropped,
        Self::Landlock,
        Self::SeparateInitUid,
        Self::TreeKill,
        Self::KernelBoundary,
    ];

    /// The name as used in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UserNamespace => "user_namespace",
            Self::MountNamespace => "mount_namespace",
            Self::PidNamespace => "pid_namespace",
            Self::NetNamespace => "net_namespace",
            Self::IpcNamespace => "ipc_namespace",
            Self::UtsNamespace => "uts_namespace",
            Self::CgroupNamespace => "cgroup_namespace",
            Self::CpuLimit => "cpu_limit",
            Self::MemoryLimit => "memory_limit",
            Self::PidsLimit => "pids_limit",
            Self::DiskQuota => "disk_quota",
            Self::Seccomp => "seccomp",
            Self::NoNewPrivileges => "no_new_privileges",
            Self::CapabilitiesDropped => "capabilities_dropped",
            Self::Landlock => "landlock",
            Self::SeparateInitUid => "separate_init_uid",
            Self::TreeKill => "tree_kill",
            Self::KernelBoundary => "kernel_boundary",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkIsolation {
    /// An empty network namespace: loopback only.
    Off,
    /// A network namespace with outbound access, isolated from the host.
    Private,
    /// The host's network.
    Host,
}

/// Mechanisms in force, and missing ones with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IsolationLabel {
    pub backend: String,
    /// The OCI runtime, if the operator configured one instead of the engine's default. With
    /// `kernel_boundary` in force, it provides the separate kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    pub network: NetworkIsolation,
    /// Mechanisms in force, in the order of [`Mechanism::ALL`].
    pub in_force: Vec<Mechanism>,
    /// Mechanisms that are not available on this host, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingMechanism>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingMechanism {
    pub mechanism: Mechanism,
    pub why: String,
}

impl IsolationLabel {
    pub fn has(&self, mechanism: Mechanism) -> bool {
        self.in_force.contains(&mechanism)
    }
}
