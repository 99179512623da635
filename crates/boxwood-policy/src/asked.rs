//! Which fields the caller really named.
//!
//! A session that exists is compared only with what the caller said about it: an exec that names
//! nothing but its command fits every session.

use std::collections::BTreeSet;

use boxwood_api::SpecRequest;

/// The fields that make one box differ from another, and where in it a command starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpecField {
    Network,
    Image,
    HostPath,
    HostPathMode,
    MountPath,
    ExtraMounts,
    Persistent,
    Cpus,
    MemoryMb,
    PidsLimit,
    ReadOnlyRootfs,
    WorkspaceQuotaMb,
    Profile,
    Workdir,
}

pub(crate) fn fields(request: &SpecRequest) -> BTreeSet<SpecField> {
    let named = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.trim().is_empty());
    [
        (SpecField::Network, request.network.is_some()),
        (SpecField::Image, named(&request.image)),
        (SpecField::HostPath, request.host_path.is_some()),
        (SpecField::HostPathMode, request.host_path_mode.is_some()),
        (SpecField::MountPath, request.mount_path.is_some()),
        (SpecField::ExtraMounts, !request.extra_mounts.is_empty()),
        (SpecField::Persistent, request.persistent.is_some()),
        (SpecField::Cpus, request.cpus.is_some()),
        (SpecField::MemoryMb, request.memory_mb.is_some()),
        (SpecField::PidsLimit, request.pids_limit.is_some()),
        (
            SpecField::ReadOnlyRootfs,
            request.read_only_rootfs.is_some(),
        ),
        (
            SpecField::WorkspaceQuotaMb,
            request.workspace_quota_mb.is_some(),
        ),
        (SpecField::Profile, request.profile.is_some()),
        (SpecField::Workdir, named(&request.workdir)),
    ]
    .into_iter()
    .filter_map(|(field, asked)| asked.then_some(field))
    .collect()
}
