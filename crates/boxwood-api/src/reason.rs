//! Machine-readable reasons why something stopped.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What stopped a command. JSON: `{"kind": "timeout"}`, `{"kind": "seccomp", "syscall": "mount"}`,
/// `{"kind": "signal", "signal": 9}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// The command exceeded its timeout; its process tree was killed.
    Timeout,
    /// The box reached its memory limit.
    Oom,
    /// The box reached its process limit.
    PidsLimit,
    /// A private file system of the box is full, its workspace exceeds the quota, or the host is
    /// low on space.
    DiskQuota,
    /// The output exceeded the kept size.
    OutputLimit,
    /// A system call that is blocked in boxes.
    Seccomp { syscall: String },
    /// A destination that the box may not reach.
    NetworkDenied { host: String },
    /// Killed by a signal for another reason.
    Signal { signal: i32 },
    /// The box died while the command ran.
    BoxGone,
    /// The caller ended it (signal, stop, delete, disconnect).
    Cancelled,
}
