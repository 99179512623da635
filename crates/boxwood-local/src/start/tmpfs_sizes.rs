//! Sizes of the tmpfs mounts of a box.

use boxwood_api::MountMode;
use boxwood_init::{RootPlan, Watched};
use boxwood_policy::AdmittedSpec;

/// Sizes in MiB of the private writable areas. They count as the box's memory, so all of them together
/// must leave room for programs: otherwise the OOM killer might choose init.
pub struct TmpfsSizes {
    /// Size of `/tmp` and of `/dev/shm`.
    pub tmp: u64,
    /// Home, and each further writable area if the root is not read-only.
    pub home: u64,
    pub workspace: u64,
}

impl TmpfsSizes {
    pub fn of(spec: &AdmittedSpec) -> Self {
        let limits = spec.limits();
        let share = |sixteenths: u64| (limits.memory_mb * sixteenths / 16).max(1);
        let tmp = limits.tmp_mb.min(share(3));
        // Home, `/opt` and `/usr/local`, or an image's layer and root's home: at most three.
        let homes = if spec.read_only_root() { 1 } else { 3 };
        let workspaces = u64::from(spec.workspace().is_none());
        let each = share(12).saturating_sub(2 * tmp) / (homes + workspaces);
        let bound = match limits.workspace_quota_mb {
            0 => each,
            quota => quota.min(each),
        }
        .max(1);
        Self {
            tmp,
            home: bound,
            workspace: bound,
        }
    }
}

const MIB: u64 = 1024 * 1024;

/// Limits for a box whose workspace is a host directory with a quota. `RLIMIT_FSIZE` is slightly above
/// the quota, so that an overrun is still visible, and at least as large as the private areas.
pub fn quota_limits(spec: &AdmittedSpec, root: &RootPlan) -> Option<Watched> {
    let quota_mb = spec.limits().workspace_quota_mb;
    let writable = |mode| mode == MountMode::Rw;
    let workspace = spec.workspace()?;
    if quota_mb == 0 || !writable(workspace.mode()) {
        return None;
    }
    // The quota must not limit files on other writable mounts.
    let elsewhere = spec
        .extra_mounts()
        .iter()
        .any(|mount| writable(mount.mode()))
        || (matches!(root, RootPlan::Engine) && !spec.read_only_root());
    let areas = TmpfsSizes::of(spec);
    let largest = quota_mb.max(areas.tmp).max(areas.home);
    Some(Watched {
        file_bytes: (!elsewhere).then(|| (largest + 1).saturating_mul(MIB)),
    })
}
