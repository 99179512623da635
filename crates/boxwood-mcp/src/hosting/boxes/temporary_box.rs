//! A box that is removed on drop.

use std::sync::Arc;

use boxwood_agent::Answer;
use boxwood_api::SessionId;

use super::keyed_locks::Held;
use crate::hosting::context::HostContext;

pub(crate) struct TemporaryBox {
    context: Arc<HostContext>,
    session: Option<SessionId>,
    held: Option<Held>,
}

impl TemporaryBox {
    /// From here on the box is removed on drop, even though it does not exist yet.
    pub(crate) fn named(context: &Arc<HostContext>, session: SessionId) -> Self {
        Self {
            context: Arc::clone(context),
            held: context.temporary.try_hold(session.as_str()),
            session: Some(session),
        }
    }

    /// Waits until the box is removed.
    pub(crate) async fn delete(mut self) -> Answer<()> {
        let Some(session) = self.session.clone() else {
            return Ok(());
        };
        // The session is kept until the deletion succeeds. If this future is dropped, `Drop` deletes it again.
        let deleted = self.context.delete_box(&session).await;
        if deleted.is_ok() {
            self.session = None;
        }
        deleted
    }
}

impl Drop for TemporaryBox {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        let (context, held) = (Arc::clone(&self.context), self.held.take());
        self.context.spawn(async move {
            let _until_done = held;
            if let Err(error) = context.delete_box(&session).await {
                tracing::warn!(%session, %error, "failed to remove a temporary box; it is retried later");
            }
        });
    }
}
