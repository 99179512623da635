//! The background task of a connector: connects, probes, and connects again.
//!
//! One failed probe means that the connection is lost: a daemon that does not answer a status request within seconds does
//! not answer other requests either.

use std::collections::hash_map::RandomState;
use std::convert::Infallible;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use boxwood_api::ErrorCode;
use boxwood_client::{Client, ClientError, Endpoint, Token};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::connector::{Availability, Link, Outage};
use super::failure::with_causes;

const HEARTBEAT: Duration = Duration::from_secs(20);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const FIRST_DELAY: Duration = Duration::from_secs(3);
const MAX_DELAY: Duration = Duration::from_mins(1);

pub(super) struct Monitor {
    pub(super) endpoint: Endpoint,
    pub(super) token: Option<Token>,
    pub(super) link: watch::Sender<Link>,
    /// Requests to probe now. A sender is dropped when the availability is known.
    pub(super) probes: mpsc::Receiver<oneshot::Sender<()>>,
}

impl Monitor {
    /// Runs until it is aborted.
    pub(super) async fn run(mut self) {
        let mut delay = FIRST_DELAY;
        loop {
            let outage = self.connect(&mut delay).await;
            let wait = shortened(delay);
            tracing::debug!(
                reason = outage.reason,
                ?wait,
                "the box runtime is not available"
            );
            self.publish(|link| link.availability = Availability::Unavailable(outage));
            delay = (delay * 2).min(MAX_DELAY);
            tokio::select! {
                () = sleep(wait) => {}
                never = drop_all(&mut self.probes) => match never {},
            }
        }
    }

    /// Connects, and returns when the connection failed or was lost.
    async fn connect(&mut self, delay: &mut Duration) -> Outage {
        // A new client: connections of the last one may be dead without notice.
        let client = Client::new(self.endpoint.clone(), self.token.clone());
        let seen = tokio::select! {
            seen = probe(&client, CONNECT_TIMEOUT) => seen,
            never = drop_all(&mut self.probes) => match never {},
        };
        match seen {
            Ok(()) => {}
            Err(ProbeError::Failed(error)) => return self.failed(&error),
            Err(ProbeError::Late) => return self.timed_out(),
        }
        tracing::info!(runtime = %self.endpoint, "connected to the box runtime");
        self.publish(|link| {
            link.connection.client = client.clone();
            link.connection.generation += 1;
            link.availability = Availability::Available;
        });
        let why = self.watch_over(&client, delay).await;
        tracing::warn!(runtime = %self.endpoint, why, "the box runtime is lost");
        Outage {
            reason: "Disconnected from Box runtime".to_owned(),
            fix: self.start_it(),
        }
    }

    /// Returns why the connection was lost.
    async fn watch_over(&mut self, client: &Client, delay: &mut Duration) -> String {
        let mut next = Instant::now() + HEARTBEAT;
        loop {
            // Dropped after the probe.
            let mut waiting = Vec::new();
            tokio::select! {
                () = sleep_until(next) => {}
                Some(request) = self.probes.recv() => waiting.push(request),
            }
            let probing = probe(client, PROBE_TIMEOUT);
            tokio::pin!(probing);
            let seen = loop {
                tokio::select! {
                    seen = &mut probing => break seen,
                    Some(request) = self.probes.recv() => waiting.push(request),
                }
            };
            match seen {
                Ok(()) => {}
                Err(ProbeError::Failed(error)) => return with_causes(&error),
                Err(ProbeError::Late) => return format!("no answer within {PROBE_TIMEOUT:?}"),
            }
            if Instant::now() >= next {
                // The connection has lasted, so delays begin anew with the next loss.
                *delay = FIRST_DELAY;
                next = Instant::now() + HEARTBEAT;
            }
        }
    }

    fn publish(&self, change: impl FnOnce(&mut Link)) {
        self.link.send_if_modified(|link| {
            // `dispose` may run while this task is being aborted.
            let open = link.availability != Availability::Disposed;
            if open {
                change(link);
            }
            open
        });
    }

    fn failed(&self, error: &ClientError) -> Outage {
        let hint = match error {
            // The daemon has answered, so its own hint is the better one.
            ClientError::Refused { .. } | ClientError::Unexpected { .. } => error.hint(),
            _ => None,
        };
        Outage {
            reason: format!("box runtime connection failed: {}", with_causes(error)),
            fix: hint.unwrap_or_else(|| self.start_it()),
        }
    }

    fn start_it(&self) -> String {
        let endpoint = &self.endpoint;
        format!(
            "start `boxwood serve` so that it listens at {endpoint}, or correct box.runtime.endpoint; the agent reconnects by itself"
        )
    }

    fn timed_out(&self) -> Outage {
        let endpoint = &self.endpoint;
        Outage {
            reason: format!("box runtime connection timed out ({endpoint})"),
            fix: format!(
                "a program at {endpoint} accepts connections and does not answer: check it, or correct box.runtime.endpoint; the agent reconnects by itself"
            ),
        }
    }
}

enum ProbeError {
    Failed(ClientError),
    Late,
}

/// A daemon that is at its capacity is available.
async fn probe(client: &Client, within: Duration) -> Result<(), ProbeError> {
    match timeout(within, client.status()).await {
        Ok(
            Ok(_)
            | Err(ClientError::Refused {
                code: ErrorCode::Capacity,
                ..
            }),
        ) => Ok(()),
        Ok(Err(error)) => Err(ProbeError::Failed(error)),
        Err(_) => Err(ProbeError::Late),
    }
}

/// Drops requests to probe, without end: the daemon is known not to be available.
async fn drop_all(probes: &mut mpsc::Receiver<oneshot::Sender<()>>) -> Infallible {
    while probes.recv().await.is_some() {}
    std::future::pending().await
}

/// Shortened by up to a fifth at random, so that clients of one daemon do not all reconnect at once.
fn shortened(delay: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 1001;
    let thousandths = u32::try_from(random).unwrap_or_default();
    delay.saturating_sub(delay / 5 * thousandths / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_shortened_by_at_most_a_fifth() {
        let delays: std::collections::BTreeSet<_> =
            (0..200).map(|_| shortened(MAX_DELAY)).collect();
        assert!(
            delays
                .iter()
                .all(|delay| (MAX_DELAY * 4 / 5..=MAX_DELAY).contains(delay))
        );
        assert!(delays.len() > 50, "{} different delays", delays.len());
    }

    fn outage(error: &ClientError) -> Outage {
        let endpoint = Endpoint::local();
        let client = Client::new(endpoint.clone(), None);
        let monitor = Monitor {
            link: watch::Sender::new(Link::new(client)),
            endpoint,
            token: None,
            probes: mpsc::channel(1).1,
        };
        monitor.failed(error)
    }

    #[test]
    fn the_fix_is_the_hint_of_a_daemon_that_answered() {
        let refused = ClientError::Refused {
            status: 401,
            code: ErrorCode::Unauthorized,
            message: "a token is needed".to_owned(),
            hint: None,
            phase: None,
        };
        let outage = outage(&refused);
        assert_eq!(
            outage.reason,
            "box runtime connection failed: a token is needed"
        );
        assert!(outage.fix.contains("BOXWOOD_TOKEN"), "{}", outage.fix);
    }

    #[test]
    fn the_fix_is_to_start_a_daemon_that_did_not() {
        let outage = outage(&ClientError::Unreachable {
            endpoint: "http://x:1".to_owned(),
            source: "Connection refused".into(),
        });
        assert_eq!(
            outage.reason,
            "box runtime connection failed: no daemon answers at http://x:1: Connection refused"
        );
        assert!(
            outage.fix.starts_with("start `boxwood serve`"),
            "{}",
            outage.fix
        );
    }
}
