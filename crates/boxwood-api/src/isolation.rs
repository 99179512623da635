//! The isolation label: the mechanisms that are in force for one session.

use serde::{Deserialize, Serialize};
use strum::{EnumCount, VariantArray};
use utoipa::ToSchema;

/// An isolation mechanism. A profile can `require` it.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
    strum::Display,
    strum::IntoStaticStr,
    EnumCount,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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
    pub const ALL: [Self; Self::COUNT] = *Self::VARIANTS.first_chunk().unwrap();

    /// The name as used in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
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
