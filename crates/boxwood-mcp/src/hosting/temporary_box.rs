//! A box that is gone when whoever made it is done, or gives up, or is dropped, or dies; and after it the
//! copy that it works on.

use std::sync::Arc;

use boxwood_agent::Answer;
use boxwood_api::SessionId;

use super::kit::Kit;
use super::locks::Held;

pub(crate) struct TemporaryBox {
    kit: Arc<Kit>,
    session: Option<SessionId>,
    held: Option<Held>,
}

impl TemporaryBox {
    /// Nothing is made yet; from now on it is cleared away.
    pub(crate) fn named(kit: &Arc<Kit>, session: SessionId) -> Self {
        Self {
            kit: Arc::clone(kit),
            held: kit.temporary.try_hold(session.as_str()),
            session: Some(session),
        }
    }

    /// Waits until it is gone.
    pub(crate) async fn delete(mut self) -> Answer<()> {
        let Some(session) = self.session.clone() else {
            return Ok(());
        };
        // Still ours while it is deleted: should this future be dropped, the deletion is done anew.
        let deleted = delete(&self.kit, &session).await;
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
        let (kit, held) = (Arc::clone(&self.kit), self.held.take());
        self.kit.later(async move {
            let _until_done = held;
            if let Err(error) = delete(&kit, &session).await {
                tracing::warn!(%session, %error, "a box could not be removed yet");
            }
        });
    }
}

/// The copy stays while the box does: what still writes to it would be in the way.
async fn delete(kit: &Kit, session: &SessionId) -> Answer<()> {
    kit.delete_box(session).await?;
    kit.remove_work(session).await;
    Ok(())
}
