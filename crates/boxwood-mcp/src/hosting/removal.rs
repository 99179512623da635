//! How a server goes: nothing of it is left, or it is still there and can be removed again.

use std::sync::Arc;

use super::HostingError;
use super::hosted::Hosted;
use super::kit::{Kit, blocking};

/// After its box is gone. The store comes last: what is still in it can be removed once more.
pub(crate) async fn forget(kit: &Arc<Kit>, hosted: &Hosted) -> Result<(), HostingError> {
    kit.remove_work(&hosted.session).await;
    let (held, name) = (Arc::clone(kit), hosted.name.clone());
    let run = blocking(move || {
        let run = held.run_record(&name);
        held.store.remove(&name).map_err(std::io::Error::other)?;
        Ok(run)
    });
    let run = run.await.map_err(|source| HostingError::Storage {
        doing: "removing an MCP server",
        source,
    })?;
    if let Some(key) = run.and_then(|run| run.cache_key) {
        kit.drop_when_unused(key);
    }
    Ok(())
}

/// For a server that nobody attends to any more.
pub(crate) async fn of_abandoned(kit: &Arc<Kit>, hosted: &Hosted) -> Result<(), HostingError> {
    if kit.journal.holds(&hosted.session) {
        kit.delete_box(&hosted.session).await?;
    }
    forget(kit, hosted).await
}
