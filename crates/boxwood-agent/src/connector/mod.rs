//! The connection to a runtime that is not in this process.
//!
//! Comes in: where the runtime is. Goes out: a client of it while it is there, and otherwise the reason
//! and the fix. Looks at the runtime every 20 s, and at once when a call failed; a lost one is looked
//! for after 3 s, then 6 s and so on up to a minute, for as long as the connector lives. A runtime that
//! is a child of ours is started again in the same rhythm. Never here: what is said to the runtime.

mod child;
mod connect;
mod endpoint;
mod keeper;
mod link;
mod runtime;
mod schedule;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use boxwood_api::Status;
use boxwood_client::{Endpoint, Token};
use tokio::sync::{mpsc, oneshot, watch};

pub use child::ChildSettings;
pub use connect::{ConnectError, ConnectedAgent, Surroundings, connect};
pub use endpoint::{Place, runtime_endpoint};
pub use link::Outage;
pub use schedule::Timing;

pub(crate) use link::{Link, State, with_causes};

use child::Child;
use keeper::{Keeper, Order};
use runtime::Runtime;

use crate::Remote;

/// Calls that noticed something wait in line here; beyond that they find out by themselves.
const ORDERS: usize = 64;

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
    board: watch::Receiver<Link>,
    orders: mpsc::Sender<Order>,
    /// How many calls are under way.
    calls: watch::Sender<usize>,
    /// No call may begin any more.
    closing: AtomicBool,
    shares_filesystem: bool,
    timing: Timing,
}

impl Connector {
    /// Starts to connect to a runtime that somebody else runs. Needs a Tokio runtime.
    pub fn remote(endpoint: Endpoint, token: Option<Token>) -> Self {
        let shares = Place::Elsewhere(endpoint.clone()).shares_filesystem(None);
        let runtime = Runtime::Elsewhere { endpoint, token };
        Self::keep(runtime, shares, Timing::default())
    }

    /// Starts a runtime of our own. Needs a Tokio runtime.
    pub fn child(settings: ChildSettings) -> Self {
        let runtime = Runtime::Child(Box::new(Child::new(settings)));
        Self::keep(runtime, true, Timing::default())
    }

    /// Either, by what [`Place::choose`] came to.
    fn open(place: Place, token: Option<Token>, child: ChildSettings, shares: bool) -> Self {
        let runtime = match place {
            Place::Child => Runtime::Child(Box::new(Child::new(child))),
            Place::Elsewhere(endpoint) => Runtime::Elsewhere { endpoint, token },
        };
        Self::keep(runtime, shares, Timing::default())
    }

    fn keep(runtime: Runtime, shares_filesystem: bool, timing: Timing) -> Self {
        let (board, seen) = watch::channel(Link::new());
        let (orders, ordered) = mpsc::channel(ORDERS);
        let keeper = Keeper {
            runtime,
            board,
            orders: ordered,
            timing,
        };
        tokio::spawn(keeper.keep());
        Self(Arc::new(Inner {
            board: seen,
            orders,
            calls: watch::Sender::new(0),
            closing: AtomicBool::new(false),
            shares_filesystem,
            timing,
        }))
    }

    /// The boxes of the runtime.
    pub fn boxes(&self) -> Remote {
        Remote::over(self.clone())
    }

    pub fn shares_filesystem(&self) -> bool {
        self.0.shares_filesystem
    }

    pub fn availability(&self) -> Availability {
        match &self.0.board.borrow().state {
            State::Connecting => Availability::Connecting,
            State::Up { status, .. } => Availability::Available(status.clone()),
            State::Down(outage) => Availability::Unavailable(outage.clone()),
            State::Over => Availability::Disposed,
        }
    }

    /// Waits until the first try has come to something, good or bad.
    pub async fn settled(&self) -> Availability {
        let settled = |link: &Link| !matches!(link.state, State::Connecting);
        // The keeper says how it ends before it goes.
        let _ = self.0.board.clone().wait_for(settled).await;
        self.availability()
    }

    /// How often the runtime was connected to. What was read from it before may be out of date when
    /// this has changed.
    pub fn generation(&self) -> u64 {
        self.0.board.borrow().generation
    }

    /// Waits until [`Connector::generation`] is another than `known`, or for ever when the connection
    /// was given up.
    pub async fn renewed(&self, known: u64) -> u64 {
        let renewed = |link: &Link| link.generation != known;
        let mut board = self.0.board.clone();
        let generation = board.wait_for(renewed).await.map(|link| link.generation);
        match generation {
            Ok(generation) => generation,
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives the connection up: lets running calls end for a while, then lets go of the runtime. A child
    /// is told to stop, and then made to; afterwards there is nothing left of it or its boxes.
    pub async fn dispose(&self) {
        self.0.closing.store(true, Ordering::Release);
        let idle = |calls: &usize| *calls == 0;
        let mut calls = self.0.calls.subscribe();
        // Whoever is still at it then is cut off.
        let _ = tokio::time::timeout(self.0.timing.drain, calls.wait_for(idle)).await;
        let (done, is_done) = oneshot::channel();
        if self.0.orders.send(Order::Dispose(done)).await.is_ok() {
            let _ = is_done.await;
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.0.closing.load(Ordering::Acquire)
    }

    pub(crate) fn board(&self) -> watch::Receiver<Link> {
        self.0.board.clone()
    }

    /// Asks for a look at the runtime now, and waits until it is known whether it is there.
    pub(crate) async fn suspect(&self) {
        let (asker, answer) = oneshot::channel();
        if self.0.orders.send(Order::Look(asker)).await.is_ok() {
            // Dropped without a word when it is not there, which the board tells.
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
