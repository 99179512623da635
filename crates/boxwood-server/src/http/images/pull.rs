//! Reports an image pull as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use axum::response::sse::Event;
use boxwood_api::{ErrorBody, ErrorCode, ImageInfo, ImageName, ImageProgress};
use boxwood_backend::{Backend, BoxFuture, ImageError, Progress};
use boxwood_session::Sessions;
use futures_util::{StreamExt as _, stream};
use tokio::sync::{mpsc, watch};

use super::refusal;
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
    stopping: watch::Receiver<bool>,
) -> ApiResult<Response> {
    let (sender, events) = mpsc::channel(QUEUED_EVENTS);
    let progress = Progress::to(move |piece| {
        // Full: the client is slow. Closed: it has disconnected, and the pull is cancelled.
        let _ = sender.try_send(piece);
    });
    let pulling = Box::pin(async move {
        let pulled = backend.images().pull(&name, &progress).await;
        // Prewarmed boxes may use the previous image of this name.
        sessions.remove_prewarmed(backend.name()).await;
        pulled
    });
    let mut following = Following {
        pulling: Some(pulling),
        events,
        ending: None,
        stopping,
    };
    let first = match tokio::time::timeout(FIRST_EVENT, following.next()).await {
        Ok(Some(PullEvent::Failed(error))) => return Err(error),
        Ok(event) => event,
        Err(_) => None,
    };
    let first = first.map(PullEvent::into_event);
    let rest = stream::unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((event.into_event(), following))
    });
    Ok(respond(stream::iter(first).chain(rest)))
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

struct Following {
    pulling: Option<BoxFuture<'static, Result<ImageInfo, ImageError>>>,
    events: mpsc::Receiver<ImageProgress>,
    /// Sent after the pending progress events.
    ending: Option<PullEvent>,
    stopping: watch::Receiver<bool>,
}

impl Following {
    /// `None` after the last event.
    async fn next(&mut self) -> Option<PullEvent> {
        if let Some(pulling) = &mut self.pulling {
            tokio::select! {
                biased;
                Some(progress) = self.events.recv() => return Some(PullEvent::Progress(progress)),
                outcome = pulling => {
                    self.ending = Some(match outcome {
                        Ok(info) => PullEvent::Done(info),
                        Err(error) => PullEvent::Failed(refusal(&error)),
                    });
                }
                _ = self.stopping.wait_for(|stopping| *stopping) => {
                    let message = "the pull was cancelled: the daemon is stopping";
                    self.ending = Some(PullEvent::Failed(
                        ApiError::new(ErrorCode::BackendUnavailable, message)
                            .hint("pull again after the daemon has restarted"),
                    ));
                }
            }
            self.pulling = None;
        }
        match self.events.try_recv() {
            Ok(progress) => Some(PullEvent::Progress(progress)),
            Err(_) => self.ending.take(),
        }
    }
}
