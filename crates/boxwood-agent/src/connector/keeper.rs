//! Keeps the connection: tries, looks, waits, tries again.
//!
//! Comes in: a runtime, and what callers noticed. Goes out: the state of the [`Link`], on a board that
//! everybody can read. One look that fails is a loss: a runtime that does not answer a question about
//! itself within seconds does not answer anything else either.

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::link::{Blind, Link, Outage, look, with_causes};
use super::runtime::Runtime;
use super::schedule::{Schedule, Timing};

/// What the keeper is asked.
pub(super) enum Order {
    /// Somebody's call failed: is the runtime there? Answered when it is, dropped when not.
    Look(oneshot::Sender<()>),
    Dispose(oneshot::Sender<()>),
}

/// The end was asked for: by somebody who waits, or by everybody going away.
type Disposal = Option<oneshot::Sender<()>>;

pub(super) struct Keeper {
    pub(super) runtime: Runtime,
    pub(super) board: watch::Sender<Link>,
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) timing: Timing,
}

impl Keeper {
    pub(super) async fn keep(mut self) {
        let asked = self.work().await;
        self.board.send_modify(Link::over);
        self.runtime.end(self.timing.farewell).await;
        if let Some(done) = asked {
            // Whoever asked may have stopped waiting.
            let _ = done.send(());
        }
    }

    async fn work(&mut self) -> Disposal {
        let mut schedule = Schedule::new(&self.timing);
        loop {
            let tried = tokio::select! {
                tried = timeout(self.timing.connect, self.runtime.reach(&self.timing)) => tried,
                disposal = disposal(&mut self.orders) => return disposal,
            };
            let outage = match tried {
                Ok(Ok((client, status))) => {
                    tracing::info!(runtime = %self.runtime, "connected to the box runtime");
                    self.board
                        .send_modify(|link| link.reached(client.clone(), status));
                    match self.watch_over(&client, &mut schedule).await {
                        Ok(why) => {
                            tracing::warn!(runtime = %self.runtime, why, "the box runtime is lost");
                            Outage::disconnected(&self.runtime.fix())
                        }
                        Err(disposal) => return disposal,
                    }
                }
                Ok(Err(outage)) => outage,
                Err(_) => self.runtime.give_up().await,
            };
            let wait = schedule.next_wait();
            tracing::debug!(
                reason = outage.reason,
                ?wait,
                "the box runtime is not there"
            );
            self.board.send_modify(|link| link.failed(outage));
            tokio::select! {
                () = sleep(wait) => {}
                disposal = disposal(&mut self.orders) => return disposal,
            }
        }
    }

    /// Why the runtime was lost, or who wants no more of it.
    async fn watch_over(
        &mut self,
        client: &boxwood_client::Client,
        schedule: &mut Schedule,
    ) -> Result<String, Disposal> {
        let mut next = Instant::now() + self.timing.heartbeat;
        loop {
            let mut askers = Vec::new();
            tokio::select! {
                () = sleep_until(next) => {}
                why = self.runtime.ended() => return Ok(why),
                order = self.orders.recv() => match order {
                    Some(Order::Look(asker)) => askers.push(asker),
                    Some(Order::Dispose(done)) => return Err(Some(done)),
                    None => return Err(None),
                },
            }
            let seen = tokio::select! {
                seen = look(client, self.timing.answer) => seen,
                why = self.runtime.ended() => return Ok(why),
                disposal = collect(&mut self.orders, &mut askers) => return Err(disposal),
            };
            match seen {
                Ok(status) => self.board.send_modify(|link| link.seen(status)),
                Err(Blind::Failed(error)) => return Ok(with_causes(&error)),
                Err(Blind::Late) => {
                    return Ok(format!("no answer within {:?}", self.timing.answer));
                }
            }
            for asker in askers {
                let _ = asker.send(());
            }
            if Instant::now() >= next {
                // It has lasted, so the next loss is a new one. One that comes and goes is not.
                schedule.start_over();
                next = Instant::now() + self.timing.heartbeat;
            }
        }
    }
}

/// Waits for the end. Those who ask meanwhile learn from the silence that nobody is there.
async fn disposal(orders: &mut mpsc::Receiver<Order>) -> Disposal {
    loop {
        match orders.recv().await {
            Some(Order::Look(_)) => {}
            Some(Order::Dispose(done)) => return Some(done),
            None => return None,
        }
    }
}

/// The same, and remembers them: a look is under way that will tell.
async fn collect(
    orders: &mut mpsc::Receiver<Order>,
    askers: &mut Vec<oneshot::Sender<()>>,
) -> Disposal {
    loop {
        match orders.recv().await {
            Some(Order::Look(asker)) => askers.push(asker),
            Some(Order::Dispose(done)) => return Some(done),
            None => return None,
        }
    }
}
