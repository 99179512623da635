//! Whether a box that was made ahead of time is the box that a request asks for.
//!
//! Comes in: two admitted specs. Goes out: yes, when the two make the same box. Never here: what is
//! nearly the same. A box that is quietly different, or weaker, is nobody's.

use crate::{AdmittedSpec, Limits};

impl AdmittedSpec {
    /// Whether its box can be made before anybody asks for it: nothing of the host's is in it.
    pub fn can_be_made_ahead(&self) -> bool {
        self.workspace.is_none() && self.host_path.is_none() && self.extra_mounts.is_empty()
    }

    /// Whether the two make the same box. Every field is named, so that a new one has to be thought
    /// of here.
    pub fn is_twin_of(&self, other: &Self) -> bool {
        let Self {
            // Whose box it is. Nothing in the box depends on it.
            session: _,
            profile,
            image,
            image_text,
            network,
            limits,
            read_only_root,
            workspace: _,
            host_path: _,
            // Without a path there is nothing that has a mode.
            host_path_mode: _,
            mount_path,
            extra_mounts: _,
            // How long the session lives, which the box does not know.
            persistent: _,
            user,
            require,
            host_network_allowed,
            backend,
            // Who may use the session, which the box does not know.
            owner: _,
            // Who named a value is a matter between requests.
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
            && *host_network_allowed == other.host_network_allowed
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
    // Both went through the same parser, so equal wishes are equal bits.
    cpus.to_bits() == other.cpus.to_bits()
        && *memory_mb == other.memory_mb
        && *pids == other.pids
        && *tmp_mb == other.tmp_mb
        && *workspace_quota_mb == other.workspace_quota_mb
}
