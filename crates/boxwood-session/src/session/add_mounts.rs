//! Adds mounts of a request to an existing session.
//!
//! If its box cannot take them, an idle session is recreated.

use std::sync::Arc;

use boxwood_policy::AdmittedSpec;

use crate::SessionError;
use crate::session::mounts::RequestMounts;
use crate::session::registry::{Found, Registry};
use crate::session::{Ending, Lease, Session};

impl Registry {
    /// Returns true if the session has all mounts of the request, or its box can add them.
    pub(crate) fn has_or_can_add(
        session: &Session,
        spec: &AdmittedSpec,
        request_mounts: &RequestMounts,
    ) -> bool {
        session.mounts.has_all(&session.spec, spec, request_mounts)
            || (session.mounts.may_grow() && session.backend.capabilities().live_mounts)
    }

    /// Closes an idle session whose box cannot add the mounts of a request, or differs from its profile
    /// by now, so that it is recreated.
    pub(crate) fn recreate(
        self: &Arc<Self>,
        session: &Arc<Session>,
        spec: &AdmittedSpec,
        request_mounts: &RequestMounts,
        why: &str,
    ) -> Found {
        let mounts = session.mounts.together(&session.spec, spec, request_mounts);
        let mut start_as = session.spec.with_mounts(mounts);
        if session.spec.drifted_from(spec).is_some() {
            start_as = start_as.brought_up_to_date(spec);
        }
        tracing::info!(session = %session.id, why, "recreating an idle box");
        // Checked again under the lock, because it may be in use by now.
        self.close_if(session, Ending::Asked, why, Session::is_idle);
        Found::Recreate(self.closing(&session.id), Arc::new(start_as))
    }
}

impl Lease {
    /// Adds the mounts of `spec` to the session if its box supports it.
    pub(crate) async fn with_mounts(
        self,
        spec: &Arc<AdmittedSpec>,
        request_mounts: &Arc<RequestMounts>,
    ) -> Result<Lease, SessionError> {
        let session = &self.session;
        if session.mounts.has_all(&session.spec, spec, request_mounts)
            || !session.mounts.may_grow()
            || !session.backend.capabilities().live_mounts
        {
            return Ok(self);
        }
        let (spec, request_mounts) = (Arc::clone(spec), Arc::clone(request_mounts));
        // In a task, so that a mount is recorded even if the caller disconnects.
        let joining = tokio::spawn(async move {
            let session = &self.session;
            let (living, sandbox) = (&session.spec, &*session.sandbox);
            let joined = session
                .mounts
                .join(sandbox, living, &spec, &request_mounts)
                .await;
            // Also after a failure, because some mounts may have been added.
            if let Err(error) = session.write_record().await {
                tracing::warn!(session = %session.id, %error, "failed to record the new mounts of a box; they are lost after a restart");
            }
            joined
                .map_err(|source| {
                    tracing::warn!(session = %session.id, error = %source, "failed to add a mount to a running box");
                    session.mount_failed(source)
                })
                .map(|()| self)
        });
        joining.await.unwrap_or(Err(SessionError::Internal {
            step: "adding mounts to a running box",
        }))
    }
}
