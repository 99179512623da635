//! Boxes of hosted servers that an earlier daemon left to one that hosts none.
//!
//! Comes in: the sessions that were taken over. Goes out: none of a hosted server's, or a word about each.
//! Never here: boxes of anybody else, and what is stored of a server.

use boxwood_session::{Reach, Sessions};

use crate::http::{PATIENCE, within};

/// Nobody attends to them, and no client could remove them: whoever turns hosting off turns them off.
pub(super) async fn end(sessions: Sessions) {
    let sessions = sessions.reaching(Reach::Hosting);
    for left in sessions.list() {
        let session = left.session_id;
        let deleting = sessions.delete(&session, "hosting of MCP servers is turned off");
        match within(PATIENCE, deleting).await {
            Ok(()) => {
                tracing::info!(%session, "a server was ended: hosting is turned off");
            }
            Err(error) => {
                let error = error.message();
                tracing::warn!(%session, error, "a server runs on although hosting is turned off; `BOXWOOD_OPERATOR=1 boxwood rm` removes it");
            }
        }
    }
}

/// A directory that cannot be written to today may be mended tomorrow, and they are taken over then.
pub(super) fn tell(sessions: &Sessions) {
    for left in sessions.reaching(Reach::Hosting).list() {
        let session = left.session_id;
        tracing::warn!(%session, "nobody attends to this server until hosting works again; `BOXWOOD_OPERATOR=1 boxwood rm` removes it");
    }
}
