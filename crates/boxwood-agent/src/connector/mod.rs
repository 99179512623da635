//! The connection to a runtime in another process.
//!
//! The runtime is probed every 20 s and after a failed call. A lost runtime is reconnected, or a child restarted, after 3 s, then
//! 6 s and so on up to a minute.

mod child;
mod connect;
mod endpoint;
mod link;
mod monitor;
mod runtime;
mod schedule;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use boxwood_api::Status;
use boxwood_client::{Endpoint, Token};
use tokio::sync::{mpsc, oneshot, watch};

pub use child::ChildSettings;
pub use connect::{ConnectError, ConnectOptions, ConnectedAgent, connect};
pub use endpoint::{RuntimeLocation, runtime_endpoint};
pub use link::Outage;
pub use schedule::Timing;

pub(crate) use link::{Link, State, with_causes};

use child::Child;
use monitor::{Monitor, MonitorRequest};
use runtime::Runtime;

use crate::Remote;

/// Calls that noticed something wait in line here; beyond that they find out by themselves.
const REQUESTS: usize = 64;

/// Whether the runtime is there.
#[derive(Clone, Debug, PartialEq)]
pub enum Availability {
    /// The first try is under way.
    Connecting,
    /// With what it said of itself when it was last looked at.
    Available(Option<Status>),
    Unavailable(Outage),
    /// The connection was given up on purpose.
    Disposed,
}

/// A connection that is kept. Cheap to clone; when the last clone goes, so do the connection and a
/// child, in the background.
#[derive(Clone)]
pub struct Connector(Arc<Inner>);

struct Inner {
    link_state: watch::Receiver<Link>,
    requests: mpsc::Sender<MonitorRequest>,
    /// Number of running calls.
    calls: watch::Sender<usize>,
    /// Set by `dispose`: new calls fail.
    closing: AtomicBool,
    shares_filesystem: bool,
    timing: Timing,
}

impl Connector {
    /// Starts to connect to a runtime that this process did not start. Needs a Tokio runtime.
    pub fn remote(endpoint: Endpoint, token: Option<Token>) -> Self {
        let shares = RuntimeLocation::Elsewhere(endpoint.clone()).shares_filesystem(None);
        let runtime = Runtime::Elsewhere { endpoint, token };
        Self::start(runtime, shares, Timing::default())
    }

    /// Starts a runtime as a child process. Needs a Tokio runtime.
    pub fn child(settings: ChildSettings) -> Self {
        let runtime = Runtime::Child(Box::new(Child::new(settings)));
        Self::start(runtime, true, Timing::default())
    }

    fn open(
        place: RuntimeLocation,
        token: Option<Token>,
        child: ChildSettings,
        shares: bool,
    ) -> Self {
        let runtime = match place {
            RuntimeLocation::Child => Runtime::Child(Box::new(Child::new(child))),
            RuntimeLocation::Elsewhere(endpoint) => Runtime::Elsewhere { endpoint, token },
        };
        Self::start(runtime, shares, Timing::default())
    }

    fn start(runtime: Runtime, shares_filesystem: bool, timing: Timing) -> Self {
        let (link_state, seen) = watch::channel(Link::new());
        let (requests, received) = mpsc::channel(REQUESTS);
        let monitor = Monitor {
            runtime,
            link_state,
            requests: received,
            timing,
        };
        tokio::spawn(monitor.run());
        Self(Arc::new(Inner {
            link_state: seen,
            requests,
            calls: watch::Sender::new(0),
            closing: AtomicBool::new(false),
            shares_filesystem,
            timing,
        }))
    }

    /// The boxes of the runtime.
    pub fn boxes(&self) -> Remote {
        Remote::new(self.clone())
    }

    pub fn shares_filesystem(&self) -> bool {
        self.0.shares_filesystem
    }

    pub fn availability(&self) -> Availability {
        match &self.0.link_state.borrow().state {
            State::Connecting => Availability::Connecting,
            State::Up { status, .. } => Availability::Available(status.clone()),
            State::Down(outage) => Availability::Unavailable(outage.clone()),
            State::Over => Availability::Disposed,
        }
    }

    /// Waits until the first attempt has succeeded or failed.
    pub async fn settled(&self) -> Availability {
        let settled = |link: &Link| !matches!(link.state, State::Connecting);
        // The monitor publishes its last state before it ends.
        let _ = self.0.link_state.clone().wait_for(settled).await;
        self.availability()
    }

    /// Number of connections so far. Data read earlier may be out of date when it has changed.
    pub fn generation(&self) -> u64 {
        self.0.link_state.borrow().generation
    }

    /// Waits until [`Connector::generation`] differs from `known`. Never returns after `dispose`.
    pub async fn renewed(&self, known: u64) -> u64 {
        let renewed = |link: &Link| link.generation != known;
        let mut link_state = self.0.link_state.clone();
        let generation = link_state
            .wait_for(renewed)
            .await
            .map(|link| link.generation);
        match generation {
            Ok(generation) => generation,
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits for running calls, then disconnects. A child process is stopped, and killed if it does not stop; its boxes are
    /// removed.
    pub async fn dispose(&self) {
        self.0.closing.store(true, Ordering::Release);
        let idle = |calls: &usize| *calls == 0;
        let mut calls = self.0.calls.subscribe();
        // Calls that take longer are cancelled.
        let _ = tokio::time::timeout(self.0.timing.drain, calls.wait_for(idle)).await;
        let (done, is_done) = oneshot::channel();
        if self
            .0
            .requests
            .send(MonitorRequest::Dispose(done))
            .await
            .is_ok()
        {
            let _ = is_done.await;
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.0.closing.load(Ordering::Acquire)
    }

    pub(crate) fn link_state(&self) -> watch::Receiver<Link> {
        self.0.link_state.clone()
    }

    /// Probes the runtime now, and waits until its state is known.
    pub(crate) async fn probe(&self) {
        let (asker, answer) = oneshot::channel();
        if self
            .0
            .requests
            .send(MonitorRequest::Probe(asker))
            .await
            .is_ok()
        {
            // Dropped if the runtime is not available, which the link state shows.
            let _ = answer.await;
        }
    }

    /// Held while a call is under way.
    pub(crate) fn begin_call(&self) -> UnderWay {
        self.0.calls.send_modify(|calls| *calls += 1);
        UnderWay(Arc::clone(&self.0))
    }
}

pub(crate) struct UnderWay(Arc<Inner>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0
            .calls
            .send_modify(|calls| *calls = calls.saturating_sub(1));
    }
}
