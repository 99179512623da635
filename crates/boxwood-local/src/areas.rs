//! How large the private areas of a box are.

use boxwood_api::MountMode;
use boxwood_init::{RootPlan, Watched};
use boxwood_policy::AdmittedSpec;

/// Sizes in MiB of what a box may write that is not the host's. It is made of the box's memory: all of
/// it full must still leave room for programs, or the kernel would have to end one, and it might
/// choose init.
pub struct Areas {
    /// `/tmp` and `/dev/shm`, each.
    pub tmp: u64,
    /// Home, and each further writable area of a root that is not read-only.
    pub home: u64,
    pub workspace: u64,
}

impl Areas {
    pub fn of(spec: &AdmittedSpec) -> Self {
        let limits = spec.limits();
        let share = |sixteenths: u64| (limits.memory_mb * sixteenths / 16).max(1);
        let tmp = limits.tmp_mb.min(share(3));
        // Home, `/opt`, `/usr/local`, or an image's layer and root's home: never more than three.
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

/// How a box is held back whose workspace is the host's and has a quota. One file can have no more than
/// the quota and a little: enough to be seen as over it, and never less than the box's own areas hold.
pub fn watched(spec: &AdmittedSpec, root: &RootPlan) -> Option<Watched> {
    let quota_mb = spec.limits().workspace_quota_mb;
    let writable = |mode| mode == MountMode::Rw;
    let workspace = spec.workspace()?;
    if quota_mb == 0 || !writable(workspace.mode()) {
        return None;
    }
    // What bounds other places is not for this quota to say.
    let elsewhere = spec
        .extra_mounts()
        .iter()
        .any(|mount| writable(mount.mode()))
        || (matches!(root, RootPlan::Engine) && !spec.read_only_root());
    let areas = Areas::of(spec);
    let largest = quota_mb.max(areas.tmp).max(areas.home);
    Some(Watched {
        file_bytes: (!elsewhere).then(|| (largest + 1).saturating_mul(MIB)),
    })
}
