//! The fields that the caller set explicitly.
//!
//! An existing session is compared only with these: a command that sets nothing else matches every
//! session.

use std::collections::BTreeSet;

use boxwood_api::SpecRequest;

use crate::{Facts, Origin};

/// The fields that distinguish boxes, and the working directory of a command.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SpecField {
    Network,
    /// The root file system, whichever name selected it.
    Image,
    /// The image name itself, for clients that treat different names as different boxes.
    #[strum(serialize = "image")]
    ImageText,
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
    Backend,
}

/// The fields that a platform's request always sets. Without `host_path` it means a box without
/// one. The profile is not compared, and mounts can change.
const WHOLE_SPEC: [SpecField; 12] = [
    SpecField::Network,
    SpecField::Image,
    SpecField::ImageText,
    SpecField::HostPath,
    SpecField::HostPathMode,
    SpecField::MountPath,
    SpecField::Persistent,
    SpecField::Cpus,
    SpecField::MemoryMb,
    SpecField::PidsLimit,
    SpecField::ReadOnlyRootfs,
    SpecField::WorkspaceQuotaMb,
];

pub(crate) fn collect(request: &SpecRequest, origin: Origin, facts: &Facts) -> BTreeSet<SpecField> {
    match origin {
        Origin::Operator | Origin::Client => named_fields(request),
        // A box without these directories is a different box.
        Origin::Hosting => {
            let own = (!facts.own.is_empty()).then_some(SpecField::ExtraMounts);
            named_fields(request).into_iter().chain(own).collect()
        }
        Origin::LangBotPlatform => {
            let workdir = names_workdir(request).then_some(SpecField::Workdir);
            WHOLE_SPEC.into_iter().chain(workdir).collect()
        }
    }
}

/// Whether the request sets a working directory.
pub(crate) fn names_workdir(request: &SpecRequest) -> bool {
    is_named(request.workdir.as_deref())
}

fn is_named(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.trim().is_empty())
}

fn named_fields(request: &SpecRequest) -> BTreeSet<SpecField> {
    [
        (SpecField::Network, request.network.is_some()),
        (SpecField::Image, is_named(request.image.as_deref())),
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
        (SpecField::Workdir, names_workdir(request)),
        (SpecField::Backend, is_named(request.backend.as_deref())),
    ]
    .into_iter()
    .filter_map(|(field, is_set)| is_set.then_some(field))
    .collect()
}
