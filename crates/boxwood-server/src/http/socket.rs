//! What every WebSocket of the daemon has in common: limits, pings, and a clean end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use boxwood_api::ErrorCode;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};

use super::App;
use super::error::{ApiError, ApiResult};

const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// What one read takes at most. The whole of it is zeroed before every look at the socket, also one
/// that finds nothing: with the usual 128 KiB that is the dearest thing we do for a short line.
const READ_BYTES: usize = 8 * 1024;

const SUCCEEDED: u16 = 4409;

/// For the other side to answer our goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// The permit is held for as long as the socket is open.
pub(crate) fn accept(
    app: &App,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<(WebSocketUpgrade, OwnedSemaphorePermit)> {
    let upgrade = upgrade.map_err(|_| {
        ApiError::validation("this route speaks WebSocket only")
            .hint("connect with a WebSocket client (`Upgrade: websocket`, version 13)")
    })?;
    let permit = Arc::clone(&app.sockets).try_acquire_owned().map_err(|_| {
        ApiError::new(
            ErrorCode::Capacity,
            "the daemon has too many WebSockets open",
        )
    })?;
    let upgrade = upgrade
        .read_buffer_size(READ_BYTES)
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES);
    Ok((upgrade, permit))
}

/// What the other side is told at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goodbye {
    /// Code 1000 and no words.
    Done,
    /// In the words that LangBot's clients know.
    ShuttingDown,
    /// Another daemon will go on with it.
    Leaving,
    /// Another client has its place now. Of the numbers that applications may choose themselves.
    Succeeded,
}

/// Resolves when boxes are about to be left to another daemon.
pub(crate) async fn left(leaving: &watch::Receiver<bool>) {
    let mut leaving = leaving.clone();
    if leaving.wait_for(|leaving| *leaving).await.is_err() {
        // Nobody is there to say so any more, and nothing else follows from that.
        std::future::pending::<()>().await;
    }
}

/// Ends a socket with a code and its words. Reads on until the other side agrees, because a socket
/// closed with unread data takes the last frames down with it.
pub(crate) async fn close_with(
    mut sink: SplitSink<WebSocket, Message>,
    mut stream: SplitStream<WebSocket>,
    goodbye: Goodbye,
) {
    let (code, reason) = match goodbye {
        Goodbye::Done => (close_code::NORMAL, ""),
        Goodbye::ShuttingDown => (close_code::AWAY, "Box runtime shutting down"),
        Goodbye::Leaving => (close_code::AWAY, "the daemon is about to end; come back"),
        Goodbye::Succeeded => (SUCCEEDED, "another client follows it now"),
    };
    let goodbye = async {
        let frame = CloseFrame {
            code,
            reason: reason.into(),
        };
        if sink.send(Message::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = stream.next().await {}
        }
    };
    // A client that does not answer is cut off, which is what it expects by then.
    let _ = tokio::time::timeout(GOODBYE, goodbye).await;
}

/// Tells when to ping, and hands out ears.
pub(crate) struct Heartbeat {
    ticks: Interval,
    heard: Heard,
}

impl Heartbeat {
    /// With so much time between two pings.
    pub(crate) fn new(every: Duration) -> Self {
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            ticks,
            heard: Heard {
                every,
                start: Instant::now(),
                last_ms: Arc::new(AtomicU64::new(0)),
            },
        }
    }

    /// Resolves when it is time for a ping.
    pub(crate) async fn tick(&mut self) {
        self.ticks.tick().await;
    }

    pub(crate) fn heard(&self) -> Heard {
        self.heard.clone()
    }
}

/// When the other side was last heard of. Any frame counts.
#[derive(Clone)]
pub(crate) struct Heard {
    every: Duration,
    start: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Heard {
    pub(crate) fn now(&self) {
        let since = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(since, Ordering::Relaxed);
    }

    /// Does something during which the other side cannot be heard, and must not be thought dead.
    pub(crate) async fn while_deaf<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                // Work that is done at once needs no timer.
                biased;
                outcome = &mut work => {
                    self.now();
                    return outcome;
                }
                () = sleep(self.every) => self.now(),
            }
        }
    }

    /// Resolves when nothing was heard for two pings.
    pub(crate) async fn silence(&self) {
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
    async fn silence_is_two_pings_without_a_word() {
        let heartbeat = Heartbeat::new(Duration::from_secs(20));
        let heard = heartbeat.heard();
        let start = Instant::now();
        sleep(Duration::from_secs(30)).await;
        heard.now();
        heard.silence().await;
        assert_eq!(start.elapsed().as_secs(), 70);
    }
}
