//! Keeps the connection: tries, looks, waits, tries again.
//!
//! Publishes the state of the [`Link`] in a watch channel. One failed probe means that the connection is lost: a runtime
//! that does not answer a status request within seconds does not answer other requests either.

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::link::{Link, Outage, ProbeError, look, with_causes};
use super::runtime::Runtime;
use super::schedule::{Schedule, Timing};

pub(super) enum MonitorRequest {
    /// A call failed: probe the runtime. Answered if it is available, dropped if not.
    Probe(oneshot::Sender<()>),
    Dispose(oneshot::Sender<()>),
}

/// A request to disconnect, with its sender if one waits for it. `None` if all connectors were dropped.
type Disposal = Option<oneshot::Sender<()>>;

pub(super) struct Monitor {
    pub(super) runtime: Runtime,
    pub(super) link_state: watch::Sender<Link>,
    pub(super) requests: mpsc::Receiver<MonitorRequest>,
    pub(super) timing: Timing,
}

impl Monitor {
    pub(super) async fn run(mut self) {
        let asked = self.work().await;
        self.link_state.send_modify(Link::over);
        self.runtime.end(self.timing.farewell).await;
        if let Some(done) = asked {
            // The sender may have stopped waiting.
            let _ = done.send(());
        }
    }

    async fn work(&mut self) -> Disposal {
        let mut schedule = Schedule::new(&self.timing);
        loop {
            let tried = tokio::select! {
                tried = timeout(self.timing.connect, self.runtime.reach(&self.timing)) => tried,
                disposal = disposal(&mut self.requests) => return disposal,
            };
            let outage = match tried {
                Ok(Ok((client, status))) => {
                    tracing::info!(runtime = %self.runtime, "connected to the box runtime");
                    self.link_state
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
            self.link_state.send_modify(|link| link.failed(outage));
            tokio::select! {
                () = sleep(wait) => {}
                disposal = disposal(&mut self.requests) => return disposal,
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
                order = self.requests.recv() => match order {
                    Some(MonitorRequest::Probe(asker)) => askers.push(asker),
                    Some(MonitorRequest::Dispose(done)) => return Err(Some(done)),
                    None => return Err(None),
                },
            }
            let seen = tokio::select! {
                seen = look(client, self.timing.answer) => seen,
                why = self.runtime.ended() => return Ok(why),
                disposal = collect(&mut self.requests, &mut askers) => return Err(disposal),
            };
            match seen {
                Ok(status) => self.link_state.send_modify(|link| link.seen(status)),
                Err(ProbeError::Failed(error)) => return Ok(with_causes(&error)),
                Err(ProbeError::Late) => {
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

/// Waits for the request to disconnect. Dropped probes report that the runtime is not available.
async fn disposal(requests: &mut mpsc::Receiver<MonitorRequest>) -> Disposal {
    loop {
        match requests.recv().await {
            Some(MonitorRequest::Probe(_)) => {}
            Some(MonitorRequest::Dispose(done)) => return Some(done),
            None => return None,
        }
    }
}

/// The same, and remembers them: a look is under way that will tell.
async fn collect(
    requests: &mut mpsc::Receiver<MonitorRequest>,
    askers: &mut Vec<oneshot::Sender<()>>,
) -> Disposal {
    loop {
        match requests.recv().await {
            Some(MonitorRequest::Probe(asker)) => askers.push(asker),
            Some(MonitorRequest::Dispose(done)) => return Some(done),
            None => return None,
        }
    }
}
