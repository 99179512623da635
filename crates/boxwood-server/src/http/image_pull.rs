//! A pull as server-sent events: its news, and how it ended.

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

use super::error::{ApiError, ApiResult};
use super::exec_stream::{KEEP_ALIVE, event};
use super::images::refusal;

/// News that wait for a slow caller. What is more is left out: the next says as much.
const KEPT_NEWS: usize = 64;
/// So long an answer may be a plain refusal; after it, the caller gets a stream to wait on.
const FIRST_WORD: Duration = Duration::from_secs(1);

pub(super) async fn pull(
    sessions: Sessions,
    backend: Arc<dyn Backend>,
    name: ImageName,
    stopping: watch::Receiver<bool>,
) -> ApiResult<Response> {
    let (tell, news) = mpsc::channel(KEPT_NEWS);
    let progress = Progress::to(move |piece| {
        // Full: the caller is slow. Closed: it has left, and the pull ends with it.
        let _ = tell.try_send(piece);
    });
    let pulling = Box::pin(async move {
        let pulled = backend.images().pull(&name, &progress).await;
        // What was made ahead may have been made from what had the name before.
        sessions.forget_warm(backend.name()).await;
        pulled
    });
    let mut following = Following {
        pulling: Some(pulling),
        news,
        ending: None,
        stopping,
    };
    let first = match tokio::time::timeout(FIRST_WORD, following.next()).await {
        Ok(Some(Heard::Failed(error))) => return Err(error),
        Ok(heard) => heard,
        Err(_) => None,
    };
    let first = first.map(Heard::into_event);
    let rest = stream::unfold(following, |mut following| async move {
        let heard = following.next().await?;
        Some((heard.into_event(), following))
    });
    let events = futures_util::StreamExt::chain(stream::iter(first), rest);
    let events = futures_util::StreamExt::map(events, Ok::<_, Infallible>);
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(events).keep_alive(keep_alive).into_response())
}

enum Heard {
    News(ImageProgress),
    Done(ImageInfo),
    Failed(ApiError),
}

impl Heard {
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
    /// Waits for the news that came before it.
    ending: Option<Heard>,
    stopping: watch::Receiver<bool>,
}

impl Following {
    /// `None` after the end.
    async fn next(&mut self) -> Option<Heard> {
        if let Some(pulling) = &mut self.pulling {
            tokio::select! {
                biased;
                Some(news) = self.news.recv() => return Some(Heard::News(news)),
                outcome = pulling => {
                    self.ending = Some(match outcome {
                        Ok(info) => Heard::Done(info),
                        Err(error) => Heard::Failed(refusal(&error)),
                    });
                }
                _ = self.stopping.wait_for(|stopping| *stopping) => {
                    let words = "the daemon stops, and the pull with it";
                    self.ending = Some(Heard::Failed(
                        ApiError::new(ErrorCode::BackendUnavailable, words)
                            .hint("pull again when it runs"),
                    ));
                }
            }
            self.pulling = None;
        }
        match self.news.try_recv() {
            Ok(news) => Some(Heard::News(news)),
            Err(_) => self.ending.take(),
        }
    }
}
