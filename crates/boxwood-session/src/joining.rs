//! How a living session comes by the mounts that a request brings along.
//!
//! Comes in: a session that fits the request in everything else. Goes out: the same session with
//! more mounts, or word that it has to be made anew. Never here: the lock over all sessions while a
//! box works.

use std::sync::Arc;

use boxwood_policy::AdmittedSpec;

use crate::SessionError;
use crate::mounts::Brought;
use crate::registry::{Found, Registry};
use crate::session::{Ending, Lease, Session};

impl Registry {
    /// Whether the session has every mount that the request brings, or its box can be given them.
    pub(crate) fn has_or_takes(session: &Session, spec: &AdmittedSpec, brought: &Brought) -> bool {
        session.mounts.has_all(&session.spec, spec, brought)
            || (session.mounts.may_grow() && session.backend.capabilities().live_mounts)
    }

    /// Ends an idle session whose box cannot take the mounts that a request brings, or is no longer
    /// what its profile means, so that it can be made as it should be.
    pub(crate) fn remake(
        self: &Arc<Self>,
        session: &Arc<Session>,
        spec: &AdmittedSpec,
        brought: &Brought,
        why: &str,
    ) -> Found {
        let mounts = session.mounts.together(&session.spec, spec, brought);
        let mut start_as = session.spec.with_mounts(mounts);
        if session.spec.drifted_from(spec).is_some() {
            start_as = start_as.brought_up_to_date(spec);
        }
        tracing::info!(session = %session.id, why, "an idle box is made anew");
        // Judged again under the lock: somebody may have begun to use it meanwhile.
        self.close_if(session, Ending::Asked, why, Session::is_idle);
        Found::Remake(self.closing(&session.id), Arc::new(start_as))
    }

    /// Brings the mounts of `spec` that may join into the leased session, where its box takes them.
    pub(crate) async fn join_mounts(
        self: &Arc<Self>,
        lease: Lease,
        spec: &Arc<AdmittedSpec>,
        brought: &Arc<Brought>,
    ) -> Result<Lease, SessionError> {
        let session = &lease.session;
        if session.mounts.has_all(&session.spec, spec, brought)
            || !session.mounts.may_grow()
            || !session.backend.capabilities().live_mounts
        {
            return Ok(lease);
        }
        let (spec, brought) = (Arc::clone(spec), Arc::clone(brought));
        let ledger = self.ledger.clone();
        // A task of its own: a caller that vanishes leaves no mount that nobody knows of.
        let joining = tokio::spawn(async move {
            let session = &lease.session;
            let (living, sandbox) = (&session.spec, &*session.sandbox);
            let joined = session.mounts.join(sandbox, living, &spec, &brought).await;
            // Also after a failure: some may have joined before it.
            if let Err(error) = session.remember().await {
                tracing::warn!(session = %session.id, %error, "a box was not told of its new mounts");
            }
            ledger.update_spec(session.incarnation, session.spec_text());
            joined
                .map_err(|source| {
                    tracing::warn!(session = %session.id, error = %source, "a mount did not join");
                    session.mount_failed(source)
                })
                .map(|()| lease)
        });
        joining.await.unwrap_or(Err(SessionError::Internal {
            step: "adding mounts to a running box",
        }))
    }
}
