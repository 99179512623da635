//! Reports an image pull as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use boxwood_api::{ErrorBody, ErrorCode, ImageInfo, ImageName, ImageProgress};
use boxwood_backend::{Backend, BoxFuture, ImageError, Progress};
use boxwood_session::Sessions;
use futures_util::stream;
use tokio::sync::{mpsc, watch};

use super::refusal;
use crate::http::error::{ApiError, ApiResult};
use crate::http::exec::sse::{KEEP_ALIVE, event};

/// Progress events queued for a slow client. Further ones are dropped.
const KEPT_NEWS: usize = 64;
/// An error within this time is a plain response; afterwards a stream is opened.
const FIRST_WORD: Duration = Duration::from_secs(1);

pub(crate) async fn pull(
    sessions: Sessions,
    backend: Arc<dyn Backend>,
    name: ImageName,
    stopping: watch::Receiver<bool>,
) -> ApiResult<Response> {
    let (tell, news) = mpsc::channel(KEPT_NEWS);
    let progress = Progress::to(move |piece| {
        // Full: the client is slow. Closed: it has disconnected, and the pull is cancelled.
        let _ = tell.try_send(piece);
    });
    let pulling = Box::pin(async move {
        let pulled = backend.images().pull(&name, &progress).await;
        // Prewarmed boxes may use the previous image of this name.
        sessions.remove_prewarmed(backend.name()).await;
        pulled
    });
    let mut following = Following {
        pulling: Some(pulling),
        news,
        ending: None,
        stopping,
    };
    let first = match tokio::time::timeout(FIRST_WORD, following.next()).await {
        Ok(Some(LastSeen::Failed(error))) => return Err(error),
        Ok(last_seen) => last_seen,
        Err(_) => None,
    };
    let first = first.map(LastSeen::into_event);
    let rest = stream::unfold(following, |mut following| async move {
        let last_seen = following.next().await?;
        Some((last_seen.into_event(), following))
    });
    let events = futures_util::StreamExt::chain(stream::iter(first), rest);
    let events = futures_util::StreamExt::map(events, Ok::<_, Infallible>);
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(events).keep_alive(keep_alive).into_response())
}

enum LastSeen {
    News(ImageProgress),
    Done(ImageInfo),
    Failed(ApiError),
}

impl LastSeen {
    fn into_event(self) -> Event {
        match self {
            Self::News(news) => event("progress", &news),
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
    news: mpsc::Receiver<ImageProgress>,
    /// Sent after the pending progress events.
    ending: Option<LastSeen>,
    stopping: watch::Receiver<bool>,
}

impl Following {
    /// `None` after the last event.
    async fn next(&mut self) -> Option<LastSeen> {
        if let Some(pulling) = &mut self.pulling {
            tokio::select! {
                biased;
                Some(news) = self.news.recv() => return Some(LastSeen::News(news)),
                outcome = pulling => {
                    self.ending = Some(match outcome {
                        Ok(info) => LastSeen::Done(info),
                        Err(error) => LastSeen::Failed(refusal(&error)),
                    });
                }
                _ = self.stopping.wait_for(|stopping| *stopping) => {
                    let words = "the pull was cancelled: the daemon is stopping";
                    self.ending = Some(LastSeen::Failed(
                        ApiError::new(ErrorCode::BackendUnavailable, words)
                            .hint("pull again after the daemon has restarted"),
                    ));
                }
            }
            self.pulling = None;
        }
        match self.news.try_recv() {
            Ok(news) => Some(LastSeen::News(news)),
            Err(_) => self.ending.take(),
        }
    }
}
