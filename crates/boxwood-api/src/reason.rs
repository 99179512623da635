//! Why something stopped, in words a program can branch on.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What stopped a command, when something did. On the wire: `{"kind": "timeout"}`,
/// `{"kind": "seccomp", "syscall": "mount"}`, `{"kind": "signal", "signal": 9}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// The command ran longer than its timeout; its whole process tree was killed.
    Timeout,
    /// The box reached its memory limit.
    Oom,
    /// The box reached its limit of processes.
    PidsLimit,
    /// A private area of the box is full, its workspace is over its quota, or the host has too little room.
    DiskQuota,
    /// More output than is kept.
    OutputLimit,
    /// A system call that boxes may not use.
    Seccomp { syscall: String },
    /// A host that the box may not reach.
    NetworkDenied { host: String },
    /// Death by a signal nobody else explains.
    Signal { signal: i32 },
    /// The box died while the command ran.
    BoxGone,
    /// The caller asked for the end (signal, stop, delete, disconnect).
    Cancelled,
}
