//! Checks whether a request fits the existing session.
//!
//! Returns the first field that differs, in the order that LangBot Box uses. Fields of a single command
//! (env, workdir, timeout) may differ.

use boxwood_api::{MountMode, Network};
use boxwood_policy::{AdmittedMount, AdmittedSpec, Joining, SpecField};

use crate::backends::Choice;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) field: &'static str,
    /// The value of the existing session.
    pub(crate) value: String,
}

/// Compares only fields that the request contains: a request with a command only fits every session.
pub(crate) fn first_difference(living: &AdmittedSpec, asked: &AdmittedSpec) -> Option<Difference> {
    let (limits, wanted) = (living.limits(), asked.limits());
    let (mounts, wanted_mounts) = (made_with(living), made_with(asked));
    let checks: [(SpecField, &'static str, bool, String); 15] = [
        (
            SpecField::Network,
            "network",
            living.network() == asked.network(),
            network_word(living.network()).to_owned(),
        ),
        (
            SpecField::Image,
            "image",
            // An image name may refer to another image by now, which the caller did not ask for.
            living.image() == asked.image() || living.image_text() == asked.image_text(),
            living.image_text().to_owned(),
        ),
        (
            SpecField::ImageText,
            "image",
            living.image_text() == asked.image_text(),
            living.image_text().to_owned(),
        ),
        (
            SpecField::HostPath,
            "host_path",
            living.host_path() == asked.host_path(),
            living.host_path().unwrap_or("null").to_owned(),
        ),
        (
            SpecField::HostPathMode,
            "host_path_mode",
            living.host_path_mode() == asked.host_path_mode(),
            mode_word(living.host_path_mode()).to_owned(),
        ),
        (
            SpecField::MountPath,
            "mount_path",
            living.mount_path() == asked.mount_path(),
            living.mount_path().to_owned(),
        ),
        (
            SpecField::Persistent,
            "persistent",
            living.persistent() == asked.persistent(),
            living.persistent().to_string(),
        ),
        (
            SpecField::Cpus,
            "cpus",
            // Both were parsed the same way, so equal values have equal bits.
            limits.cpus.to_bits() == wanted.cpus.to_bits(),
            format!("{:?}", limits.cpus),
        ),
        (
            SpecField::MemoryMb,
            "memory_mb",
            limits.memory_mb == wanted.memory_mb,
            limits.memory_mb.to_string(),
        ),
        (
            SpecField::PidsLimit,
            "pids_limit",
            limits.pids == wanted.pids,
            limits.pids.to_string(),
        ),
        (
            SpecField::ReadOnlyRootfs,
            "read_only_rootfs",
            living.read_only_root() == asked.read_only_root(),
            living.read_only_root().to_string(),
        ),
        (
            SpecField::WorkspaceQuotaMb,
            "workspace_quota_mb",
            limits.workspace_quota_mb == wanted.workspace_quota_mb,
            limits.workspace_quota_mb.to_string(),
        ),
        (
            SpecField::Profile,
            "profile",
            living.profile() == asked.profile(),
            living.profile().to_owned(),
        ),
        (
            SpecField::ExtraMounts,
            "extra_mounts",
            same_mounts(&mounts, &wanted_mounts),
            mounts_text(&mounts),
        ),
        (
            SpecField::Backend,
            "backend",
            Choice::new(asked.backend().unwrap_or_default()).allows(living.backend()),
            living.backend().unwrap_or("auto").to_owned(),
        ),
    ];
    checks
        .into_iter()
        .find(|(field, _, same, _)| !same && asked.asked().contains(field))
        .map(|(_, field, _, value)| Difference { field, value })
}

/// The identity of a box. Mounts that can be added later are not part of it.
fn made_with(spec: &AdmittedSpec) -> Vec<&AdmittedMount> {
    spec.extra_mounts()
        .iter()
        .filter(|mount| mount.joining() == Joining::WhenMade)
        .collect()
}

fn same_mounts(living: &[&AdmittedMount], asked: &[&AdmittedMount]) -> bool {
    living.len() == asked.len()
        && living.iter().zip(asked).all(|(one, other)| {
            one.mount_path() == other.mount_path()
                && one.mode() == other.mode()
                && one.source().real_path == other.source().real_path
        })
}

/// Paths inside the box only: host paths are not shown to all callers.
fn mounts_text(mounts: &[&AdmittedMount]) -> String {
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
