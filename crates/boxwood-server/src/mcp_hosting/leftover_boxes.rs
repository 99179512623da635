//! Boxes of hosted servers that an earlier daemon left, when this daemon does not host servers.

use boxwood_session::{Access, Sessions};

use crate::http::{BACKEND_TIMEOUT, with_timeout};

/// Removes them. Without hosting they are unsupervised, and no client can remove them.
pub(super) async fn remove_all(sessions: Sessions) {
    let sessions = sessions.with_access(Access::Hosting);
    for leftover in sessions.list() {
        let session = leftover.session_id;
        let deleting = sessions.delete(&session, "hosting of MCP servers is disabled");
        match with_timeout(BACKEND_TIMEOUT, deleting).await {
            Ok(()) => {
                tracing::info!(%session, "removed the box of a hosted MCP server: hosting is disabled");
            }
            Err(error) => {
                let error = error.detail().message;
                tracing::warn!(%session, error, "failed to remove the box of a hosted MCP server, although hosting is disabled; remove it with `BOXWOOD_OPERATOR=1 boxwood rm {session}`");
            }
        }
    }
}

/// Logs them. They are adopted once the state directory is writable again.
pub(super) fn warn(sessions: &Sessions) {
    for leftover in sessions.with_access(Access::Hosting).list() {
        let session = leftover.session_id;
        tracing::warn!(%session, "this box of a hosted MCP server is not supervised until hosting works again; to remove it, run `BOXWOOD_OPERATOR=1 boxwood rm {session}`");
    }
}
