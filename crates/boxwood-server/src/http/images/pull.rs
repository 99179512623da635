//! Reports an image pull as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use boxwood_api::{ErrorBody, ErrorCode, ImageInfo, ImageName, ImageProgress};
use boxwood_backend::{Backend, Progress};
use boxwood_session::Sessions;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::http::error::{ApiError, ApiResult};
use crate::http::sessions::exec::sse::{event, respond};

/// Progress events queued for a slow client. Further ones are dropped.
const QUEUED_EVENTS: usize = 64;
/// An error within this time is a plain response; afterwards a stream is opened.
const FIRST_EVENT: Duration = Duration::from_secs(1);

pub(crate) async fn pull(
    sessions: Sessions,
    backend: Arc<dyn Backend>,
    name: ImageName,
    stopped: BoxFuture<'static, ()>,
) -> ApiResult {
    let (sender, progress) = mpsc::channel(QUEUED_EVENTS);
    let sender = Progress::to(move |update| {
        // Full: the client is slow. Closed: it has disconnected, and the pull is cancelled.
        let _ = sender.try_send(update);
    });
    let mut pulling = JoinSet::new();
    pulling.spawn(async move {
        let pull = async {
            let pulled = backend.images().pull(&name, &sender).await;
            // Prewarmed boxes may use the previous image of this name.
            sessions.remove_prewarmed(backend.name()).await;
            pulled
        };
        tokio::select! {
            pulled = pull => pulled.map_err(ApiError::from),
            () = stopped => {
                let message = "the pull was cancelled: the daemon is stopping";
                Err(ApiError::new(ErrorCode::BackendUnavailable, message)
                    .hint("pull again after the daemon has restarted"))
            }
        }
    });
    let mut events = PullEvents { pulling, progress };
    let first = match tokio::time::timeout(FIRST_EVENT, events.next()).await {
        Ok(Some(PullEvent::Failed(error))) => return Err(error),
        Ok(event) => event,
        Err(_) => None,
    };
    let rest = stream::unfold(events, async |mut events| {
        Some((events.next().await?, events))
    });
    let events = stream::iter(first).chain(rest);
    Ok(respond(events.map(PullEvent::into_event)))
}

enum PullEvent {
    Progress(ImageProgress),
    Done(ImageInfo),
    Failed(ApiError),
}

impl PullEvent {
    fn into_event(self) -> Event {
        match self {
            Self::Progress(progress) => event("progress", &progress),
            Self::Done(info) => event("done", &info),
            Self::Failed(error) => {
                let error = error.detail();
                event("error", &ErrorBody { error })
            }
        }
    }
}

/// A pull in a task of its own. Dropping it cancels the pull.
struct PullEvents {
    pulling: JoinSet<ApiResult<ImageInfo>>,
    progress: mpsc::Receiver<ImageProgress>,
}

impl PullEvents {
    /// `None` after the last event.
    async fn next(&mut self) -> Option<PullEvent> {
        // Closed when the task has ended.
        if let Some(progress) = self.progress.recv().await {
            return Some(PullEvent::Progress(progress));
        }
        Some(match self.pulling.join_next().await? {
            Ok(Ok(info)) => PullEvent::Done(info),
            Ok(Err(error)) => PullEvent::Failed(error),
            Err(error) => PullEvent::Failed(ApiError::internal("the pull failed", &error)),
        })
    }
}
