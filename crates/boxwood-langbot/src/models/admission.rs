//! Admission grants and revocations of a workspace.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::context::{counter, name};
use super::errors::{Errors, Invalid, Location};
use super::model::Model;
use super::{coerce, timestamp};
use crate::v0_7::{Placement, Workspace};

/// Admits one generation of one workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdmissionGrant {
    pub(crate) instance_uuid: String,
    pub(crate) workspace_uuid: String,
    /// 1 or more, like the revision.
    pub(crate) execution_generation: u64,
    /// Incremented with every change of the entitlement.
    pub(crate) entitlement_revision: u64,
    pub(crate) expires_at: Timestamp,
    pub(crate) max_sessions: u64,
    pub(crate) max_managed_processes: u64,
}

impl AdmissionGrant {
    pub(crate) fn placement(&self) -> Placement {
        let workspace = Workspace::new(&self.instance_uuid, &self.workspace_uuid);
        Placement::new(workspace, self.execution_generation)
    }
}

/// Revokes the grants of this and all earlier revisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdmissionRevocation {
    pub(crate) instance_uuid: String,
    pub(crate) workspace_uuid: String,
    /// 1 or more.
    pub(crate) entitlement_revision: u64,
}

/// The error is the text after `BoxValidationError: `.
pub(crate) fn admission_grant(data: &Map<String, Value>) -> Result<AdmissionGrant, String> {
    let mut errors = Errors::of("SandboxAdmissionGrant");
    let mut model = Model::new(data, Location::default(), &mut errors);
    let grant = AdmissionGrant {
        instance_uuid: model.required("instance_uuid", name),
        workspace_uuid: model.required("workspace_uuid", name),
        execution_generation: model.required("execution_generation", at_least(1)),
        entitlement_revision: model.required("entitlement_revision", at_least(1)),
        expires_at: model.required("expires_at", timestamp::aware),
        max_sessions: model.required("max_sessions", at_least(0)),
        max_managed_processes: model.required("max_managed_processes", at_least(0)),
    };
    model.forbid_unknown();
    errors.check().map(|()| grant)
}

/// The error is the text after `BoxValidationError: `.
pub(crate) fn admission_revocation(
    data: &Map<String, Value>,
) -> Result<AdmissionRevocation, String> {
    let mut errors = Errors::of("SandboxAdmissionRevocation");
    let mut model = Model::new(data, Location::default(), &mut errors);
    let revocation = AdmissionRevocation {
        instance_uuid: model.required("instance_uuid", name),
        workspace_uuid: model.required("workspace_uuid", name),
        entitlement_revision: model.required("entitlement_revision", |input| {
            let number = coerce::only_integer(input, "entitlement_revision must be an integer")?;
            let rule = "entitlement_revision must be greater than or equal to 1";
            counter(number, 1, rule)
        }),
    };
    model.forbid_unknown();
    errors.check().map(|()| revocation)
}

fn at_least(min: i128) -> impl Fn(&Value) -> Result<u64, Invalid> {
    move |input| {
        let number = coerce::only_integer(input, "must be an integer")?;
        let rule = format!("must be greater than or equal to {min}");
        counter(number, min, &rule)
    }
}
