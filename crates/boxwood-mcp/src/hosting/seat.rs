//! One server and the way to its supervisor.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::HostingError;
use super::hosted::{Condition, Hosted, Stop};
use super::orders::Order;
use super::server::Server;

/// Beyond the server's own time, for what comes between two of its attempts.
const MARGIN: Duration = Duration::from_secs(5);

/// What a caller waits for.
enum WaitsFor {
    /// Their turns end.
    Others,
    /// It has a clock of its own, which stands still while it waits for others.
    FirstAttempt,
    NextAttempt,
}

#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) hosted: Arc<Hosted>,
    pub(crate) orders: mpsc::Sender<Order>,
}

impl Seat {
    pub(crate) async fn order(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<(), HostingError>>) -> Order,
    ) -> Result<(), HostingError> {
        let (reply, answered) = oneshot::channel();
        let sent = self.orders.send(order(reply)).await;
        sent.map_err(|_| HostingError::Closing)?;
        answered.await.unwrap_or(Err(HostingError::Closing))
    }

    /// Asking for it does not keep it awake.
    pub(crate) fn connected(&self) -> Option<Server> {
        let live = self.hosted.live()?;
        Some(Server::new(Arc::clone(&self.hosted), live))
    }

    /// While others are in the way of its start, the caller's patience does not run out.
    pub(crate) async fn server(&self) -> Result<Server, HostingError> {
        let mut moves = self.hosted.watch();
        let seconds = self.hosted.spec().settings.startup_timeout_sec;
        let mut left = Duration::from_secs(seconds.min(24 * 3600)) + MARGIN;
        // Why the last attempt failed says more than that the next one takes too long.
        let mut failed = None;
        loop {
            moves.borrow_and_update();
            let waits = match self.hosted.condition() {
                Condition::Connected(live) => {
                    self.hosted.touch();
                    return Ok(Server::new(Arc::clone(&self.hosted), live));
                }
                Condition::Disabled => {
                    let name = self.hosted.name.clone();
                    return Err(HostingError::Disabled { name });
                }
                Condition::Stopped(Stop::ByHand) => {
                    let name = self.hosted.name.clone();
                    return Err(HostingError::Stopped { name });
                }
                Condition::Failed(fault) => return Err(fault.into()),
                Condition::Stopped(Stop::Idle) => {
                    let sent = self.orders.send(Order::Wake).await;
                    sent.map_err(|_| HostingError::Closing)?;
                    WaitsFor::NextAttempt
                }
                Condition::Queued => WaitsFor::Others,
                Condition::Connecting if failed.is_none() => WaitsFor::FirstAttempt,
                Condition::Connecting => WaitsFor::NextAttempt,
                Condition::Pausing { fault, .. } => {
                    failed = Some(fault);
                    WaitsFor::NextAttempt
                }
            };
            let since = Instant::now();
            let moved = match waits {
                WaitsFor::Others => {
                    moves.changed().await.map_err(|_| HostingError::Closing)?;
                    continue;
                }
                WaitsFor::FirstAttempt => Ok(moves.changed().await),
                WaitsFor::NextAttempt => tokio::time::timeout(left, moves.changed()).await,
            };
            match moved {
                Ok(Ok(())) => left = left.saturating_sub(since.elapsed()),
                Ok(Err(_)) => return Err(HostingError::Closing),
                Err(_) => {
                    let name = self.hosted.name.clone();
                    let late = HostingError::TimedOut {
                        name,
                        seconds,
                        phase: self.hosted.track.phase(),
                    };
                    return Err(failed.map_or(late, HostingError::from));
                }
            }
        }
    }
}
