//! Adds mounts of a request to an existing session.
//!
//! If its box cannot take them, an idle session is recreated.

use std::sync::Arc;

use boxwood_api::with_causes;

use crate::session::mounts::SessionRequest;
use crate::session::registry::{Found, Registry};
use crate::session::{Ending, Lease, Session};
use crate::{Result, SessionError};

impl Session {
    pub(crate) fn has_all_mounts(&self, request: &SessionRequest) -> bool {
        self.mounts.has_all(&self.spec, request)
    }

    pub(crate) fn can_add_mounts(&self) -> bool {
        self.mounts.may_grow() && self.backend.capabilities().live_mounts
    }
}

impl Registry {
    /// Closes an idle session whose box cannot add the mounts of a request, or differs from its profile
    /// by now, so that it is recreated.
    pub(crate) fn recreate(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: &SessionRequest,
        why: &str,
    ) -> Found {
        let mounts = session.mounts.merged_with(&session.spec, request);
        let mut new_spec = session.spec.with_mounts(mounts);
        if session.spec.drifted_from(&request.spec).is_some() {
            new_spec = new_spec.brought_up_to_date(&request.spec);
        }
        tracing::info!(session = %session.id, why, "recreating an idle box");
        // Checked again under the lock, because it may be in use by now.
        self.close_if(session, Ending::Requested, why, Session::is_idle);
        Found::Recreate(self.closing(&session.id), Arc::new(new_spec))
    }
}

impl Lease {
    /// Adds the mounts of the request to the session if its box supports it.
    pub(crate) async fn with_mounts(self, request: &Arc<SessionRequest>) -> Result<Self> {
        if self.session.has_all_mounts(request) || !self.session.can_add_mounts() {
            return Ok(self);
        }
        let request = Arc::clone(request);
        // In a task, so that a mount is recorded even if the caller disconnects.
        let joining = tokio::spawn(async move {
            let session = &self.session;
            let (spec, sandbox) = (&session.spec, &*session.sandbox);
            let joined = session.mounts.join(sandbox, spec, &request).await;
            // Also after a failure, because some mounts may have been added.
            if let Err(error) = session.write_record().await {
                tracing::warn!(session = %session.id, error = %with_causes(&error), "failed to record the new mounts of a box; they are lost after a restart");
            }
            joined
                .map_err(|source| {
                    tracing::warn!(session = %session.id, error = %with_causes(&source), "failed to add a mount to a running box");
                    session.mount_failed(source)
                })
                .map(|()| self)
        });
        joining.await.unwrap_or(Err(SessionError::internal(
            "adding mounts to a running box",
        )))
    }
}
