//! A server's progress as a stream that ends.

use std::collections::VecDeque;
use std::sync::Arc;

use boxwood_api::McpProgress;
use futures_util::{Stream, stream};
use tokio::sync::broadcast;

use super::hosted::Hosted;

struct Following {
    hosted: Arc<Hosted>,
    /// What was there before.
    ready: VecDeque<McpProgress>,
    rest: broadcast::Receiver<McpProgress>,
    is_over: bool,
}

/// The phases so far, then everything as it comes. The last is always how it ended.
pub(crate) fn follow(hosted: Arc<Hosted>) -> impl Stream<Item = McpProgress> + Send + use<> {
    let (so_far, rest) = hosted.track.follow();
    let mut following = Following {
        ready: so_far.into(),
        rest,
        is_over: false,
        hosted,
    };
    // From before the stream was made: what comes after is in the channel.
    if following.hosted.condition().is_settled() {
        let last = following.last();
        following.ready.push_back(last);
    }
    stream::unfold(following, |mut following| async move {
        let next = following.next().await?;
        Some((next, following))
    })
}

impl Following {
    async fn next(&mut self) -> Option<McpProgress> {
        if self.is_over {
            return None;
        }
        let next = match self.ready.pop_front() {
            Some(next) => next,
            None => self.heard().await,
        };
        self.is_over = matches!(next, McpProgress::Done { .. });
        Some(next)
    }

    async fn heard(&mut self) -> McpProgress {
        loop {
            match self.rest.recv().await {
                Ok(progress) => return progress,
                // Lines were lost, and perhaps the last one with them.
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    if self.hosted.condition().is_settled() {
                        return self.last();
                    }
                }
                Err(broadcast::error::RecvError::Closed) => return self.last(),
            }
        }
    }

    fn last(&self) -> McpProgress {
        McpProgress::Done {
            runtime: Box::new(self.hosted.runtime()),
        }
    }
}
