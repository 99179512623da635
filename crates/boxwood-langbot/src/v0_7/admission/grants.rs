//! Admission grants of workspaces for managed sandboxes: install, revoke, expire.
//!
//! Pure bookkeeping: callers pass the time and delete the sessions that are no longer covered.

use std::collections::HashMap;
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};

use super::policy::AdmissionPolicy;
use crate::ActionError;
use crate::error::{denied, not_ready};
use crate::langbot::lock;
use crate::models::AdmissionGrant;
use crate::v0_7::placement::{Placement, Workspace};

impl AdmissionGrant {
    fn limits(&self) -> (u64, u64) {
        (self.max_sessions, self.max_managed_processes)
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now
    }
}

/// Which sessions of a workspace are kept when a grant is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    /// Only the managed session of this placement.
    Managed(Placement),
    /// Nothing has changed.
    Everything,
}

/// Kept until the daemon exits, so that a delayed message cannot restore a revoked entitlement.
#[derive(Debug, Default)]
struct Record {
    grant: Option<AdmissionGrant>,
    revision: u64,
    generation: u64,
    limits: Option<(u64, u64)>,
    revoked: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Grants {
    records: Mutex<HashMap<Workspace, Record>>,
}

impl Grants {
    /// The grant of a placement, if it is valid and within the policy.
    pub(crate) fn require(
        &self,
        placement: Placement,
        policy: &AdmissionPolicy,
        now: Timestamp,
    ) -> Result<AdmissionGrant, ActionError> {
        check_enabled(policy)?;
        let records = lock(&self.records);
        let grant = records
            .get(&placement.workspace)
            .and_then(|record| record.grant.as_ref())
            .ok_or_else(|| denied("Sandbox admission grant is missing"))?;
        if grant.is_expired(now) {
            return Err(denied("Sandbox admission grant has expired"));
        }
        if grant.execution_generation != placement.generation {
            return Err(denied(
                "Sandbox admission grant belongs to another execution generation",
            ));
        }
        if grant.max_sessions == 0 {
            return Err(denied("Sandbox admission grant does not permit sessions"));
        }
        if grant.max_sessions > policy.max_sessions
            || grant.max_managed_processes > policy.max_managed_processes
        {
            return Err(denied(
                "Sandbox admission grant exceeds the active runtime policy",
            ));
        }
        Ok(grant.clone())
    }

    /// Returns the grant in force: an older one if that expires later.
    pub(crate) fn install(
        &self,
        grant: AdmissionGrant,
        policy: &AdmissionPolicy,
        max_records: usize,
        now: Timestamp,
    ) -> Result<(AdmissionGrant, Keep), ActionError> {
        check_enabled(policy)?;
        check_policy(&grant, policy, now)?;
        let placement = grant.placement();
        let mut records = lock(&self.records);
        let record = record_of(&mut records, placement.workspace, max_records)?;
        if grant.entitlement_revision <= record.revoked {
            return Err(denied("Sandbox admission grant revision was revoked"));
        }
        if grant.entitlement_revision < record.revision {
            return Err(denied("Sandbox admission grant revision is stale"));
        }
        if grant.execution_generation < record.generation {
            return Err(denied("Sandbox admission execution generation is stale"));
        }
        if grant.entitlement_revision == record.revision
            && record.limits.is_some_and(|limits| limits != grant.limits())
        {
            return Err(denied(
                "Sandbox admission limits changed without a new entitlement revision",
            ));
        }
        let previous = record.grant.take().filter(|it| {
            !it.is_expired(now) && it.execution_generation == grant.execution_generation
        });
        let is_renewal = previous.is_some();
        if let Some(longer) = previous.filter(|it| {
            it.entitlement_revision == grant.entitlement_revision
                && it.expires_at > grant.expires_at
        }) {
            // Two servers of one platform renew the same entitlement by their own clocks. A shorter
            // renewal changes nothing.
            record.grant = Some(longer.clone());
            return Ok((longer, Keep::Everything));
        }
        record.revision = grant.entitlement_revision;
        record.generation = grant.execution_generation;
        record.limits = Some(grant.limits());
        record.grant = Some(grant.clone());
        let keep = if is_renewal && grant.max_sessions > 0 {
            Keep::Managed(placement)
        } else {
            Keep::Nothing
        };
        Ok((grant, keep))
    }

    /// Revokes the grant of a workspace. Also valid in advance: the revision cannot be installed any more.
    pub(crate) fn revoke(
        &self,
        workspace: Workspace,
        revision: u64,
        policy: &AdmissionPolicy,
        max_records: usize,
    ) -> Result<(), ActionError> {
        if !policy.required {
            return Err(not_enabled());
        }
        let mut records = lock(&self.records);
        let record = record_of(&mut records, workspace, max_records)?;
        if revision < record.revision.max(record.revoked) {
            return Err(denied("Sandbox admission revocation is stale"));
        }
        record.grant = None;
        record.revision = revision;
        record.revoked = revision;
        Ok(())
    }

    /// Removes expired grants and returns their workspaces.
    pub(crate) fn expire(&self, now: Timestamp) -> Vec<Workspace> {
        let mut records = lock(&self.records);
        records
            .iter_mut()
            .filter_map(|(workspace, record)| {
                let expired = record.grant.take_if(|grant| grant.is_expired(now));
                expired.map(|_| *workspace)
            })
            .collect()
    }
}

fn record_of(
    records: &mut HashMap<Workspace, Record>,
    workspace: Workspace,
    max_records: usize,
) -> Result<&mut Record, ActionError> {
    if records.len() >= max_records && !records.contains_key(&workspace) {
        return Err(denied(
            "Sandbox admission record capacity reached; \
             refusing an unbounded Workspace fence allocation",
        ));
    }
    Ok(records.entry(workspace).or_default())
}

fn check_enabled(policy: &AdmissionPolicy) -> Result<(), ActionError> {
    if !policy.required {
        return Err(not_enabled());
    }
    match &policy.error {
        None => Ok(()),
        Some(error) => Err(not_ready(format!(
            "Invalid sandbox admission configuration: {error}"
        ))),
    }
}

fn check_policy(
    grant: &AdmissionGrant,
    policy: &AdmissionPolicy,
    now: Timestamp,
) -> Result<(), ActionError> {
    if grant.is_expired(now) {
        return Err(denied("Cannot install an expired sandbox admission grant"));
    }
    let max_lifetime = i64::try_from(policy.max_grant_ttl_sec)
        .map_or(SignedDuration::MAX, SignedDuration::from_secs);
    if grant.expires_at.duration_since(now) > max_lifetime {
        return Err(denied(
            "Sandbox admission grant lifetime exceeds the configured maximum",
        ));
    }
    if grant.max_sessions > policy.max_sessions {
        return Err(denied("Sandbox admission grant exceeds the session cap"));
    }
    if grant.max_managed_processes > policy.max_managed_processes {
        return Err(denied(
            "Sandbox admission grant exceeds the managed-process cap",
        ));
    }
    Ok(())
}

fn not_enabled() -> ActionError {
    denied("Sandbox admission enforcement is not enabled")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-06-01T12:00:00Z".parse().expect("a time")
    }

    fn at(seconds: i64) -> Timestamp {
        now() + SignedDuration::from_secs(seconds)
    }

    fn policy() -> AdmissionPolicy {
        AdmissionPolicy::read(Some(&json!({"required": true})))
    }

    fn placement(generation: u64) -> Placement {
        Placement::new(Workspace::new("platform", "w"), generation)
    }

    fn grant(generation: u64, revision: u64, seconds: i64) -> AdmissionGrant {
        AdmissionGrant {
            instance_uuid: "platform".to_owned(),
            workspace_uuid: "w".to_owned(),
            execution_generation: generation,
            entitlement_revision: revision,
            expires_at: at(seconds),
            max_sessions: 1,
            max_managed_processes: 0,
        }
    }

    fn install(grants: &Grants, grant: AdmissionGrant) -> Result<Keep, String> {
        grants
            .install(grant, &policy(), 10, now())
            .map(|(_, keep)| keep)
            .map_err(|error| error.message().to_owned())
    }

    fn refused(outcome: Result<impl std::fmt::Debug, impl ToString>, expected: &str) {
        let text = outcome.expect_err("refused").to_string();
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_granted_placement_is_admitted_until_its_grant_expires() {
        let grants = Grants::default();
        let require =
            |generation, seconds| grants.require(placement(generation), &policy(), at(seconds));
        refused(require(1, 0), "missing");
        assert_eq!(install(&grants, grant(1, 1, 60)), Ok(Keep::Nothing));
        assert!(require(1, 59).is_ok());
        refused(require(1, 60), "expired");
        refused(require(2, 0), "another execution generation");
        assert_eq!(grants.expire(at(59)), []);
        assert_eq!(grants.expire(at(60)), [placement(1).workspace]);
        refused(require(1, 0), "missing");
    }

    #[test]
    fn older_revisions_and_generations_are_rejected() {
        let grants = Grants::default();
        assert_eq!(install(&grants, grant(2, 5, 60)), Ok(Keep::Nothing));
        refused(install(&grants, grant(2, 4, 60)), "revision is stale");
        refused(install(&grants, grant(1, 5, 60)), "generation is stale");
        let wider = AdmissionGrant {
            max_sessions: 0,
            ..grant(2, 5, 60)
        };
        refused(install(&grants, wider.clone()), "without a new entitlement");
        let none = AdmissionGrant {
            entitlement_revision: 6,
            ..wider
        };
        assert_eq!(install(&grants, none), Ok(Keep::Nothing));
        refused(
            grants.require(placement(2), &policy(), now()),
            "does not permit sessions",
        );
        assert_eq!(install(&grants, grant(3, 7, 60)), Ok(Keep::Nothing));
    }

    #[test]
    fn a_renewal_keeps_the_session_and_never_shortens_the_grant() {
        let grants = Grants::default();
        assert_eq!(install(&grants, grant(1, 1, 60)), Ok(Keep::Nothing));
        assert_eq!(
            install(&grants, grant(1, 1, 90)),
            Ok(Keep::Managed(placement(1)))
        );
        let (installed, keep) = grants
            .install(grant(1, 1, 70), &policy(), 10, now())
            .expect("idempotent");
        assert_eq!(keep, Keep::Everything);
        assert_eq!(installed.expires_at, at(90));
    }

    #[test]
    fn a_revoked_revision_cannot_be_installed_again() {
        let grants = Grants::default();
        assert!(install(&grants, grant(1, 3, 60)).is_ok());
        let revoke = |revision| grants.revoke(placement(1).workspace, revision, &policy(), 10);
        refused(revoke(2), "stale");
        revoke(3).expect("revoked");
        refused(install(&grants, grant(1, 3, 60)), "was revoked");
        refused(grants.require(placement(1), &policy(), now()), "missing");
        assert!(install(&grants, grant(1, 4, 60)).is_ok());
        refused(revoke(3), "stale");
    }

    #[test]
    fn grants_stay_within_the_policy() {
        let grants = Grants::default();
        refused(install(&grants, grant(1, 1, 0)), "expired");
        refused(install(&grants, grant(1, 1, 301)), "lifetime");
        assert!(install(&grants, grant(1, 1, 300)).is_ok());
        let many = AdmissionGrant {
            max_sessions: 2,
            ..grant(1, 2, 60)
        };
        refused(install(&grants, many), "session cap");
        let busy = AdmissionGrant {
            max_managed_processes: 1,
            ..grant(1, 2, 60)
        };
        refused(install(&grants, busy), "managed-process cap");
        let strict = AdmissionPolicy {
            max_sessions: 0,
            ..policy()
        };
        refused(
            grants.require(placement(1), &strict, now()),
            "active runtime policy",
        );
    }

    #[test]
    fn without_a_valid_policy_no_grant_is_installed() {
        let grants = Grants::default();
        let off = AdmissionPolicy::default();
        refused(
            grants.install(grant(1, 1, 60), &off, 10, now()),
            "not enabled",
        );
        refused(
            grants.revoke(placement(1).workspace, 1, &off, 10),
            "not enabled",
        );
        let broken = AdmissionPolicy::read(Some(&json!({"require": true})));
        let error = grants
            .install(grant(1, 1, 60), &broken, 10, now())
            .expect_err("broken");
        assert_eq!(error.class(), "BoxReadinessError");
        let none: &Grants = &Grants::default();
        refused(
            none.install(grant(1, 1, 60), &policy(), 0, now()),
            "capacity",
        );
    }
}
