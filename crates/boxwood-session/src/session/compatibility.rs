//! Checks whether a request fits the existing session.
//!
//! Returns the first field that differs, in the order that LangBot Box uses. Fields of a single command
//! (env, workdir, timeout) may differ.

use std::collections::BTreeSet;
use std::fmt::Display;

use boxwood_policy::{AdmittedMount, AdmittedSpec, Joining, SpecField as Field};

use crate::backends::Choice;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) field: &'static str,
    /// The value of the existing session.
    pub(crate) value: String,
}

/// Looks for the first difference in fields that the request contains.
struct Comparison<'a> {
    explicit_fields: &'a BTreeSet<Field>,
    difference: Option<Difference>,
}

impl Comparison<'_> {
    fn values<T: PartialEq + Display>(&mut self, field: Field, existing: &T, requested: &T) {
        if existing != requested {
            self.differs(field, existing);
        }
    }

    fn differs(&mut self, field: Field, existing: &impl Display) {
        if self.difference.is_none() && self.explicit_fields.contains(&field) {
            self.difference = Some(Difference {
                field: field.into(),
                value: existing.to_string(),
            });
        }
    }
}

/// Compares `existing`, the spec of the existing session, with a request. Only fields that the request
/// contains are compared: a request with a command only fits every session.
pub(crate) fn first_difference(
    existing: &AdmittedSpec,
    requested: &AdmittedSpec,
) -> Option<Difference> {
    let (limits, requested_limits) = (existing.limits(), requested.limits());
    let path = |spec: &AdmittedSpec| spec.host_path().unwrap_or("null").to_owned();
    let cpus = |cpus: f64| format!("{cpus:?}");
    let mut fields = Comparison {
        explicit_fields: requested.explicit_fields(),
        difference: None,
    };
    fields.values(Field::Network, &existing.network(), &requested.network());
    // An image name may refer to another image by now, which the caller did not ask for.
    if existing.image() != requested.image() {
        fields.values(
            Field::Image,
            &existing.image_text(),
            &requested.image_text(),
        );
    }
    fields.values(
        Field::ImageText,
        &existing.image_text(),
        &requested.image_text(),
    );
    fields.values(Field::HostPath, &path(existing), &path(requested));
    let (mode, requested_mode) = (existing.host_path_mode(), requested.host_path_mode());
    fields.values(Field::HostPathMode, &mode, &requested_mode);
    fields.values(
        Field::MountPath,
        &existing.mount_path(),
        &requested.mount_path(),
    );
    fields.values(
        Field::Persistent,
        &existing.persistent(),
        &requested.persistent(),
    );
    fields.values(
        Field::Cpus,
        &cpus(limits.cpus),
        &cpus(requested_limits.cpus),
    );
    fields.values(
        Field::MemoryMb,
        &limits.memory_mb,
        &requested_limits.memory_mb,
    );
    fields.values(Field::PidsLimit, &limits.pids, &requested_limits.pids);
    let (read_only, requested_read_only) = (existing.read_only_root(), requested.read_only_root());
    fields.values(Field::ReadOnlyRootfs, &read_only, &requested_read_only);
    let (quota, requested_quota) = (
        limits.workspace_quota_mb,
        requested_limits.workspace_quota_mb,
    );
    fields.values(Field::WorkspaceQuotaMb, &quota, &requested_quota);
    fields.values(Field::Profile, &existing.profile(), &requested.profile());
    let (mounts, requested_mounts) = (initial_mounts(existing), initial_mounts(requested));
    if !same_mounts(&mounts, &requested_mounts) {
        fields.differs(Field::ExtraMounts, &mounts_text(&mounts));
    }
    if !Choice::new(requested.backend().unwrap_or_default()).allows(existing.backend()) {
        fields.differs(Field::Backend, &existing.backend().unwrap_or("auto"));
    }
    fields.difference
}

/// The extra mounts that a box is created with. Those that can be added later fit every box.
fn initial_mounts(spec: &AdmittedSpec) -> Vec<&AdmittedMount> {
    spec.extra_mounts()
        .iter()
        .filter(|mount| mount.joining() == Joining::AtStart)
        .collect()
}

fn same_mounts(existing: &[&AdmittedMount], requested: &[&AdmittedMount]) -> bool {
    existing.len() == requested.len()
        && existing.iter().zip(requested).all(|(one, other)| {
            one.mount_path() == other.mount_path()
                && one.mode() == other.mode()
                && one.source().real_path == other.source().real_path
        })
}

/// Paths inside the box only: host paths are not shown to all callers.
fn mounts_text(mounts: &[&AdmittedMount]) -> String {
    let texts: Vec<_> = mounts
        .iter()
        .map(|mount| format!("{}:{}", mount.mount_path(), mount.mode()))
        .collect();
    format!("[{}]", texts.join(", "))
}
