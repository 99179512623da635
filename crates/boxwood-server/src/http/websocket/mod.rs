//! Common parts of all WebSocket routes: limits, pings and closing.

pub(super) mod relay;
pub(super) mod stdin;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::request::Parts;
use axum::response::Response;
use boxwood_api::ErrorCode;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};

use super::App;
use super::error::{ApiError, ApiResult};
use crate::load::ConnectionPermit;

const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// The buffer is zeroed before every read, even if nothing has arrived. With the default of 128 KiB
/// this dominates the cost of a short message.
const READ_BYTES: usize = 8 * 1024;

const SUPERSEDED: u16 = 4409;

const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A request to a WebSocket route. [`Upgrade::accept`] refuses it if it is not an upgrade request.
pub(crate) struct Upgrade {
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    connection: Option<Arc<ConnectionPermit>>,
}

impl<S: Send + Sync> FromRequestParts<S> for Upgrade {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        Ok(Self {
            connection: parts.extensions.get().cloned(),
            upgrade: WebSocketUpgrade::from_request_parts(parts, state).await,
        })
    }
}

/// A WebSocket that is about to be opened, with the permits that it holds until it is closed.
pub(crate) struct Accepted {
    upgrade: WebSocketUpgrade,
    permits: (OwnedSemaphorePermit, Option<Arc<ConnectionPermit>>),
}

impl Upgrade {
    pub(crate) fn accept(self, app: &App) -> ApiResult<Accepted> {
        let upgrade = self.upgrade.map_err(|_| {
            ApiError::validation("this route requires a WebSocket upgrade")
                .hint("connect with a WebSocket client (`Upgrade: websocket`, version 13)")
        })?;
        let permit = Arc::clone(&app.sockets).try_acquire_owned().map_err(|_| {
            ApiError::new(ErrorCode::Capacity, "too many open WebSockets")
                .hint("close one, or raise `http.max_connections`")
        })?;
        Ok(Accepted {
            upgrade: upgrade
                .read_buffer_size(READ_BYTES)
                .max_message_size(MAX_MESSAGE_BYTES)
                .max_frame_size(MAX_MESSAGE_BYTES),
            permits: (permit, self.connection),
        })
    }
}

impl Accepted {
    pub(crate) fn protocol(mut self, name: &'static str) -> Self {
        self.upgrade = self.upgrade.protocols([name]);
        self
    }

    pub(crate) fn serve<F: Future<Output = ()> + Send + 'static>(
        self,
        serve: impl FnOnce(WebSocket) -> F + Send + 'static,
    ) -> Response {
        self.upgrade.on_upgrade(async move |socket| {
            serve(socket).await;
            drop(self.permits);
        })
    }
}

/// The code and reason of the close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    Normal,
    /// With the reason text that LangBot's clients expect.
    ShuttingDown,
    /// The next daemon continues; the client should reconnect.
    HandingOver,
    /// Another client has attached. The code is in the range for applications.
    Superseded,
}

pub(crate) fn text_frame(frame: &impl Serialize) -> Message {
    // Cannot fail for the types of frames; clients ignore an empty object.
    Message::text(serde_json::to_string(frame).unwrap_or_else(|_| "{}".to_owned()))
}

/// Closes a socket. Reads until the peer confirms, because closing with unread data would discard the
/// last frames.
pub(crate) async fn close_with(
    mut sink: SplitSink<WebSocket, Message>,
    mut stream: SplitStream<WebSocket>,
    reason: CloseReason,
) {
    let (code, reason) = match reason {
        CloseReason::Normal => (close_code::NORMAL, ""),
        CloseReason::ShuttingDown => (close_code::AWAY, "Box runtime shutting down"),
        CloseReason::HandingOver => (close_code::AWAY, "the daemon is restarting; reconnect"),
        CloseReason::Superseded => (SUPERSEDED, "another client has attached"),
    };
    let closing = async {
        let frame = CloseFrame {
            code,
            reason: reason.into(),
        };
        if sink.send(Message::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = stream.next().await {}
        }
    };
    // A client that does not confirm is disconnected.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
}

/// Schedules pings. They keep a peer that sends nothing from timing out.
pub(crate) fn heartbeat(every: Duration) -> (Interval, LastSeen) {
    let mut pings = interval_at(Instant::now() + every, every);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let last_seen = LastSeen {
        every,
        start: Instant::now(),
        last_ms: Arc::new(AtomicU64::new(0)),
    };
    (pings, last_seen)
}

/// When the last frame of the peer arrived.
#[derive(Clone)]
pub(crate) struct LastSeen {
    every: Duration,
    start: Instant,
    last_ms: Arc<AtomicU64>,
}

impl LastSeen {
    pub(crate) fn touch(&self) {
        let since = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(since, Ordering::Relaxed);
    }

    /// Runs `work` while no frames are read, without letting the peer time out.
    pub(crate) async fn while_blocked<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                // No timer if the work completes at once.
                biased;
                outcome = &mut work => {
                    self.touch();
                    return outcome;
                }
                () = sleep(self.every) => self.touch(),
            }
        }
    }

    /// Resolves when no frame has arrived for two ping intervals.
    pub(crate) async fn timeout(&self) {
        loop {
            let last = self.start + Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let until = last + 2 * self.every;
            if Instant::now() >= until {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_times_out_after_two_ping_intervals() {
        let (_, last_seen) = heartbeat(Duration::from_secs(20));
        let start = Instant::now();
        sleep(Duration::from_secs(30)).await;
        last_seen.touch();
        last_seen.timeout().await;
        assert_eq!(start.elapsed().as_secs(), 70);
    }
}
