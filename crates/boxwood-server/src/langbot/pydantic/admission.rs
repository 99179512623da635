//! What a platform grants one of its workspaces, and takes back.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::context::{counter, name};
use super::errors::{Errors, Location, Wrong};
use super::input::Input;
use super::model::{Extra, Model, entries};
use super::{coerce, instant};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::langbot) struct AdmissionGrant {
    pub(in crate::langbot) instance_uuid: String,
    pub(in crate::langbot) workspace_uuid: String,
    /// 1 or more, like the revision.
    pub(in crate::langbot) execution_generation: u64,
    pub(in crate::langbot) entitlement_revision: u64,
    pub(in crate::langbot) expires_at: Timestamp,
    pub(in crate::langbot) max_sessions: u64,
    pub(in crate::langbot) max_managed_processes: u64,
}

/// Grants of this revision and older ones no longer hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::langbot) struct AdmissionRevocation {
    pub(in crate::langbot) instance_uuid: String,
    pub(in crate::langbot) workspace_uuid: String,
    /// 1 or more.
    pub(in crate::langbot) entitlement_revision: u64,
}

/// The error is the text behind `BoxValidationError: `.
pub(in crate::langbot) fn admission_grant(
    data: &Map<String, Value>,
) -> Result<AdmissionGrant, String> {
    read_grant(&Input::from(data))
}

pub(super) fn read_grant(data: &Input<'_>) -> Result<AdmissionGrant, String> {
    let class = "SandboxAdmissionGrant";
    let mut errors = Errors::of(class);
    let Some(sent) = entries(data, class, &Location::default(), &mut errors) else {
        return Err(errors.text());
    };
    let mut model = Model::new(&sent, Location::default(), &mut errors);
    let grant = AdmissionGrant {
        instance_uuid: model.required("instance_uuid", name),
        workspace_uuid: model.required("workspace_uuid", name),
        execution_generation: model.required("execution_generation", revision),
        entitlement_revision: model.required("entitlement_revision", revision),
        expires_at: model.required("expires_at", instant::aware),
        max_sessions: model.required("max_sessions", limit),
        max_managed_processes: model.required("max_managed_processes", limit),
    };
    model.finish(Extra::Forbid);
    errors.check().map(|()| grant)
}

/// The error is the text behind `BoxValidationError: `.
pub(in crate::langbot) fn admission_revocation(
    data: &Map<String, Value>,
) -> Result<AdmissionRevocation, String> {
    read_revocation(&Input::from(data))
}

pub(super) fn read_revocation(data: &Input<'_>) -> Result<AdmissionRevocation, String> {
    let class = "SandboxAdmissionRevocation";
    let mut errors = Errors::of(class);
    let Some(sent) = entries(data, class, &Location::default(), &mut errors) else {
        return Err(errors.text());
    };
    let mut model = Model::new(&sent, Location::default(), &mut errors);
    let revocation = AdmissionRevocation {
        instance_uuid: model.required("instance_uuid", name),
        workspace_uuid: model.required("workspace_uuid", name),
        entitlement_revision: model.required("entitlement_revision", |input| {
            let number = coerce::only_integer(input, "entitlement_revision must be an integer")?;
            counter(
                number,
                1,
                "entitlement_revision must be greater than or equal to 1",
            )
        }),
    };
    model.finish(Extra::Forbid);
    errors.check().map(|()| revocation)
}

fn revision(input: &Input<'_>) -> Result<u64, Wrong> {
    let number = coerce::only_integer(input, "must be an integer")?;
    counter(number, 1, "must be greater than or equal to 1")
}

fn limit(input: &Input<'_>) -> Result<u64, Wrong> {
    let number = coerce::only_integer(input, "must be an integer")?;
    counter(number, 0, "must be greater than or equal to 0")
}
