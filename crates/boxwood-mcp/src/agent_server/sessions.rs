//! MCP sessions of legacy protocol versions, limited in number and idle time.
//!
//! A box outlives the MCP session it was created for.

use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::{SessionId, SessionManager};

use crate::session_activity::{Kind, SessionActivity};

/// Each has a task and buffers.
pub(crate) const MAX_SESSIONS: usize = 256;
/// A client that returns later has to start a new session.
pub(crate) const MAX_IDLE: Duration = Duration::from_mins(30);
/// For clients that reconnect. All responses of this time stay in memory.
const RESPONSE_TTL: Duration = Duration::from_secs(10);

pub(crate) struct Sessions {
    inner: LocalSessionManager,
    activity: SessionActivity,
    limit: usize,
    max_idle: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("too many MCP sessions have running calls; try again later")]
    Full,
    #[error(transparent)]
    Inner(#[from] LocalSessionManagerError),
}

impl Sessions {
    pub(crate) fn new(activity: SessionActivity) -> Self {
        let mut inner = LocalSessionManager::default();
        // The SDK does not count running calls as activity. [`SessionActivity`] does.
        inner.session_config.keep_alive = None;
        inner.session_config.completed_cache_ttl = RESPONSE_TTL;
        Self {
            inner,
            activity,
            limit: MAX_SESSIONS,
            max_idle: MAX_IDLE,
        }
    }

    async fn make_room(&self) -> Result<(), SessionError> {
        for id in self.activity.idle(self.max_idle) {
            self.close_session(&id).await?;
        }
        if self.activity.is_full(self.limit) {
            let id = self
                .activity
                .least_active(|_| true)
                .ok_or(SessionError::Full)?;
            self.close_session(&id).await?;
        }
        Ok(())
    }
}

impl SessionManager for Sessions {
    type Error = SessionError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        self.make_room().await?;
        let (id, transport) = self.inner.create_session().await?;
        self.activity.opened(id.clone());
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        Ok(self.inner.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        if self.activity.is_idle(id, self.max_idle) {
            self.close_session(id).await?;
        }
        self.activity.touch(id);
        Ok(self.inner.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        self.activity.closed(id);
        Ok(self.inner.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let stream = self.inner.create_stream(id, message).await?;
        Ok(with_guard(stream, self.activity.hold(id, Kind::Stream)))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionError> {
        Ok(self.inner.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let stream = self.inner.create_standalone_stream(id).await?;
        Ok(with_guard(stream, self.activity.hold(id, Kind::Stream)))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let stream = self.inner.resume(id, last_event_id).await?;
        Ok(with_guard(stream, self.activity.hold(id, Kind::Stream)))
    }
}

/// Marks the session as in use while the stream is read.
fn with_guard<S: Stream + Send + Sync + 'static>(
    stream: S,
    guard: impl Send + Sync + 'static,
) -> impl Stream<Item = S::Item> + Send + Sync + 'static {
    stream.inspect(move |_| _ = &guard)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(limit: usize) -> Sessions {
        Sessions {
            limit,
            ..Sessions::new(SessionActivity::default())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_session_is_closed() {
        let sessions = sessions(8);
        let (id, _transport) = sessions.create_session().await.expect("session");
        tokio::time::advance(MAX_IDLE / 2).await;
        assert!(sessions.has_session(&id).await.expect("answer"));
        tokio::time::advance(MAX_IDLE * 2 / 3).await;
        assert!(sessions.has_session(&id).await.expect("answer"));
        tokio::time::advance(MAX_IDLE + Duration::from_secs(1)).await;
        assert!(!sessions.has_session(&id).await.expect("answer"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_session_is_evicted_unless_busy() {
        let sessions = sessions(2);
        let (one, _one) = sessions.create_session().await.expect("session");
        tokio::time::advance(Duration::from_secs(1)).await;
        let (two, _two) = sessions.create_session().await.expect("session");
        let busy = sessions.activity.hold(&one, Kind::Call);
        let (three, _three) = sessions.create_session().await.expect("session");
        assert!(sessions.has_session(&one).await.expect("answer"));
        assert!(!sessions.has_session(&two).await.expect("answer"));
        let also_busy = sessions.activity.hold(&three, Kind::Call);
        assert!(matches!(
            sessions.create_session().await,
            Err(SessionError::Full)
        ));
        drop((busy, also_busy));
        assert!(sessions.create_session().await.is_ok());
    }
}
