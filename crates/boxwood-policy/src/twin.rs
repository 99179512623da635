//! Decides whether a prewarmed box can serve a request. It must be exactly the box that the request
//! would create.

use crate::{AdmittedSpec, Limits};

impl AdmittedSpec {
    /// Whether the box can be prewarmed: it must not contain host paths.
    pub fn can_be_made_ahead(&self) -> bool {
        self.workspace.is_none() && self.host_path.is_none() && self.extra_mounts.is_empty()
    }

    /// Whether both specs create the same box. Destructures all fields, so that new ones must be
    /// considered here.
    pub fn is_twin_of(&self, other: &Self) -> bool {
        let Self {
            // Has no effect on the box.
            session: _,
            profile,
            image,
            image_text,
            network,
            limits,
            read_only_root,
            workspace: _,
            host_path: _,
            // Has no effect without a host path.
            host_path_mode: _,
            mount_path,
            extra_mounts: _,
            // Affects the session, not the box.
            persistent: _,
            user,
            require,
            backend,
            // Affects the session, not the box.
            owner: _,
            // Only relevant when requests are compared.
            asked: _,
        } = self;
        self.can_be_made_ahead()
            && other.can_be_made_ahead()
            && *profile == other.profile
            && *image == other.image
            && *image_text == other.image_text
            && *network == other.network
            && same(limits, &other.limits)
            && *read_only_root == other.read_only_root
            && *mount_path == other.mount_path
            && *user == other.user
            && *require == other.require
            && *backend == other.backend
    }
}

fn same(one: &Limits, other: &Limits) -> bool {
    let Limits {
        cpus,
        memory_mb,
        pids,
        tmp_mb,
        workspace_quota_mb,
    } = one;
    // Both values come from the same parser, so equal values have equal bits.
    cpus.to_bits() == other.cpus.to_bits()
        && *memory_mb == other.memory_mb
        && *pids == other.pids
        && *tmp_mb == other.tmp_mb
        && *workspace_quota_mb == other.workspace_quota_mb
}
