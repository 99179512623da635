//! Whether a request fits the session that already has its name.
//!
//! Comes in: the living session's spec and the new one. Goes out: the first field that differs, in
//! the order the seed's clients know. Never here: what a single command may change (env, workdir,
//! timeout).

use boxwood_api::{MountMode, Network};
use boxwood_policy::{AdmittedMount, AdmittedSpec};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) field: &'static str,
    /// What the living session has.
    pub(crate) value: String,
}

pub(crate) fn first_difference(living: &AdmittedSpec, asked: &AdmittedSpec) -> Option<Difference> {
    let (limits, asked_limits) = (living.limits(), asked.limits());
    let differ = |field, same: bool, value: &dyn Fn() -> String| {
        (!same).then(|| Difference {
            field,
            value: value(),
        })
    };
    None.or_else(|| {
        differ("network", living.network() == asked.network(), &|| {
            network_word(living.network()).to_owned()
        })
    })
    .or_else(|| {
        differ("image", living.image_text() == asked.image_text(), &|| {
            living.image_text().to_owned()
        })
    })
    .or_else(|| {
        differ(
            "host_path",
            living.host_path() == asked.host_path(),
            &|| living.host_path().unwrap_or("null").to_owned(),
        )
    })
    .or_else(|| {
        let same = living.host_path_mode() == asked.host_path_mode();
        differ("host_path_mode", same, &|| {
            mode_word(living.host_path_mode()).to_owned()
        })
    })
    .or_else(|| {
        differ(
            "mount_path",
            living.mount_path() == asked.mount_path(),
            &|| living.mount_path().to_owned(),
        )
    })
    .or_else(|| {
        differ(
            "persistent",
            living.persistent() == asked.persistent(),
            &|| living.persistent().to_string(),
        )
    })
    .or_else(|| {
        // Both went through the same parser, so equal wishes are equal bits.
        let same = limits.cpus.to_bits() == asked_limits.cpus.to_bits();
        differ("cpus", same, &|| format!("{:?}", limits.cpus))
    })
    .or_else(|| {
        differ(
            "memory_mb",
            limits.memory_mb == asked_limits.memory_mb,
            &|| limits.memory_mb.to_string(),
        )
    })
    .or_else(|| {
        differ("pids_limit", limits.pids == asked_limits.pids, &|| {
            limits.pids.to_string()
        })
    })
    .or_else(|| {
        let same = living.read_only_root() == asked.read_only_root();
        differ("read_only_rootfs", same, &|| {
            living.read_only_root().to_string()
        })
    })
    .or_else(|| {
        let same = limits.workspace_quota_mb == asked_limits.workspace_quota_mb;
        differ("workspace_quota_mb", same, &|| {
            limits.workspace_quota_mb.to_string()
        })
    })
    .or_else(|| {
        differ("profile", living.profile() == asked.profile(), &|| {
            living.profile().to_owned()
        })
    })
    .or_else(|| {
        let same = same_mounts(living.extra_mounts(), asked.extra_mounts());
        differ("extra_mounts", same, &|| mounts_text(living.extra_mounts()))
    })
}

fn same_mounts(living: &[AdmittedMount], asked: &[AdmittedMount]) -> bool {
    living.len() == asked.len()
        && living.iter().zip(asked).all(|(one, other)| {
            one.mount_path() == other.mount_path()
                && one.mode() == other.mode()
                && one.source().real_path == other.source().real_path
        })
}

/// Places inside the box only: where they come from on the host is not everybody's business.
fn mounts_text(mounts: &[AdmittedMount]) -> String {
    let places: Vec<_> = mounts
        .iter()
        .map(|mount| format!("{}:{}", mount.mount_path(), mode_word(mount.mode())))
        .collect();
    format!("[{}]", places.join(", "))
}

fn network_word(network: Network) -> &'static str {
    match network {
        Network::Off => "off",
        Network::On => "on",
    }
}

fn mode_word(mode: MountMode) -> &'static str {
    match mode {
        MountMode::None => "none",
        MountMode::Ro => "ro",
        MountMode::Rw => "rw",
    }
}
