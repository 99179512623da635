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
    asked: &'a BTreeSet<Field>,
    found: Option<Difference>,
}

impl Comparison<'_> {
    fn values<T: PartialEq + Display>(&mut self, field: Field, living: &T, asked: &T) {
        if living != asked {
            self.differs(field, living);
        }
    }

    fn differs(&mut self, field: Field, living: &impl Display) {
        if self.found.is_none() && self.asked.contains(&field) {
            self.found = Some(Difference {
                field: field.into(),
                value: living.to_string(),
            });
        }
    }
}

/// Compares `living`, the spec of the existing session, with a request. Only fields that the request
/// contains are compared: a request with a command only fits every session.
pub(crate) fn first_difference(living: &AdmittedSpec, asked: &AdmittedSpec) -> Option<Difference> {
    let (limits, wanted) = (living.limits(), asked.limits());
    let path = |spec: &AdmittedSpec| spec.host_path().unwrap_or("null").to_owned();
    let cpus = |cpus: f64| format!("{cpus:?}");
    let mut fields = Comparison {
        asked: asked.explicit_fields(),
        found: None,
    };
    fields.values(Field::Network, &living.network(), &asked.network());
    // An image name may refer to another image by now, which the caller did not ask for.
    if living.image() != asked.image() {
        fields.values(Field::Image, &living.image_text(), &asked.image_text());
    }
    fields.values(Field::ImageText, &living.image_text(), &asked.image_text());
    fields.values(Field::HostPath, &path(living), &path(asked));
    let (mode, wanted_mode) = (living.host_path_mode(), asked.host_path_mode());
    fields.values(Field::HostPathMode, &mode, &wanted_mode);
    fields.values(Field::MountPath, &living.mount_path(), &asked.mount_path());
    fields.values(Field::Persistent, &living.persistent(), &asked.persistent());
    fields.values(Field::Cpus, &cpus(limits.cpus), &cpus(wanted.cpus));
    fields.values(Field::MemoryMb, &limits.memory_mb, &wanted.memory_mb);
    fields.values(Field::PidsLimit, &limits.pids, &wanted.pids);
    let (read_only, wanted_read_only) = (living.read_only_root(), asked.read_only_root());
    fields.values(Field::ReadOnlyRootfs, &read_only, &wanted_read_only);
    let (quota, wanted_quota) = (limits.workspace_quota_mb, wanted.workspace_quota_mb);
    fields.values(Field::WorkspaceQuotaMb, &quota, &wanted_quota);
    fields.values(Field::Profile, &living.profile(), &asked.profile());
    let (mounts, wanted_mounts) = (made_with(living), made_with(asked));
    if !same_mounts(&mounts, &wanted_mounts) {
        fields.differs(Field::ExtraMounts, &mounts_text(&mounts));
    }
    if !Choice::new(asked.backend().unwrap_or_default()).allows(living.backend()) {
        fields.differs(Field::Backend, &living.backend().unwrap_or("auto"));
    }
    fields.found
}

/// The extra mounts that a box is created with. Those that can be added later fit every box.
fn made_with(spec: &AdmittedSpec) -> Vec<&AdmittedMount> {
    spec.extra_mounts()
        .iter()
        .filter(|mount| mount.joining() == Joining::AtStart)
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
    let texts: Vec<_> = mounts
        .iter()
        .map(|mount| format!("{}:{}", mount.mount_path(), mount.mode()))
        .collect();
    format!("[{}]", texts.join(", "))
}
