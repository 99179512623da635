//! All hosted servers: what there are, what is done to them, and the way to each.
//!
//! Comes in: wishes of people and clients. Goes out: servers, and how they are. What happens to one
//! server is its supervisor's business; here they are kept apart and found.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_api::{
    McpLogs, McpProgress, McpServerInfo, McpServerName, McpServerSpec, McpTestResult,
};
use futures_util::Stream;
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::check::check;
use super::hosted::{Condition, Hosted, ServerStanding, end_of_line};
use super::install::Reuse;
use super::kit::Kit;
use super::locks::Locks;
use super::orders::Order;
use super::retry::Retry;
use super::seat::Seat;
use super::server::Server;
use super::store::Stored;
use super::supervisor::{Mode, Supervisor};
use super::{HostingError, HostingSettings, Runtime, call, following, greeting, sweep, transient};

/// Orders that wait for a supervisor that is busy; whoever sends more waits too.
const WAITING_ORDERS: usize = 32;
/// At the daemon's end, for what still has to be cleared away.
const TO_CLOSE: Duration = Duration::from_secs(10);

/// Cheap to clone.
#[derive(Clone)]
pub struct Hosting {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) kit: Arc<Kit>,
    pub(super) seats: Mutex<BTreeMap<McpServerName, Seat>>,
    /// Servers that are being added. Moves with `seats` locked.
    pub(super) coming: AtomicUsize,
    /// Held while a server is added, described anew or taken away.
    pub(super) changing: Locks,
    pub(super) changes: watch::Sender<u64>,
    pub(super) closing: CancellationToken,
    /// What could not be read when the daemon started.
    notices: Vec<String>,
    /// Stored servers that nobody attends to before `begin`.
    waiting: Mutex<Vec<Stored>>,
    left_over: sweep::LeftOver,
}

impl Hosting {
    /// Reads what is stored. Nothing is started yet.
    pub fn new(runtime: Arc<dyn Runtime>, settings: HostingSettings) -> Result<Self, HostingError> {
        let kit = Kit::open(runtime, settings)?;
        let listed = kit.store.list()?;
        for notice in &listed.notices {
            tracing::warn!(notice, "a stored MCP server was left out");
        }
        let left_over = sweep::LeftOver::find(&kit, &listed);
        Ok(Self {
            inner: Arc::new(Inner {
                kit,
                seats: Mutex::default(),
                coming: AtomicUsize::default(),
                changing: Locks::default(),
                changes: watch::Sender::new(0),
                closing: CancellationToken::new(),
                notices: listed.notices,
                waiting: Mutex::new(listed.servers),
                left_over,
            }),
        })
    }

    /// Takes over what runs, then starts the others in turns. Returns at once; needs a Tokio runtime.
    pub fn begin(&self) {
        let waiting = std::mem::take(
            &mut *self
                .inner
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for stored in waiting {
            let first = if stored.spec.enabled {
                Mode::Adopt
            } else {
                Mode::Clear
            };
            self.attend(stored, first);
        }
        let inner = Arc::clone(&self.inner);
        self.inner.kit.later(async move {
            inner.left_over.clear(&inner).await;
            let (kit, closing) = (Arc::clone(&inner.kit), inner.closing.clone());
            drop(inner);
            closing.run_until_cancelled(sweep::every_hour(&kit)).await;
        });
    }

    /// Lets go of all servers. Their boxes go on, for the next daemon to take over.
    pub async fn close(&self) {
        self.inner.closing.cancel();
        self.inner.kit.tasks.close();
        if tokio::time::timeout(TO_CLOSE, self.inner.kit.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("some work for hosted MCP servers was not done in time");
        }
    }

    /// Without their tools, of which there are only numbers: all together they may be long.
    pub fn list(&self) -> Vec<McpServerInfo> {
        let seats = self.seats();
        let hosted = seats.values().map(|seat| &seat.hosted);
        hosted.map(|hosted| hosted.info_without_tools()).collect()
    }

    pub fn standings(&self) -> Vec<ServerStanding> {
        let seats = self.seats();
        seats.values().map(|seat| seat.hosted.summary()).collect()
    }

    pub fn names(&self) -> Vec<McpServerName> {
        self.seats().keys().cloned().collect()
    }

    /// Those that may be started.
    pub(crate) fn enabled_names(&self) -> Vec<McpServerName> {
        let seats = self.seats();
        let enabled = seats.iter().filter(|(_, seat)| seat.hosted.spec().enabled);
        enabled.map(|(name, _)| name.clone()).collect()
    }

    pub fn get(&self, name: &McpServerName) -> Result<McpServerInfo, HostingError> {
        Ok(self.seat(name)?.hosted.info())
    }

    /// Counts up whenever any server is another than before, in what it is or how it is.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// What is wrong with stored servers that are not listed.
    pub fn notices(&self) -> &[String] {
        &self.inner.notices
    }

    /// Returns once it is under way; `progress` tells the rest.
    pub async fn start(&self, name: &McpServerName) -> Result<McpServerInfo, HostingError> {
        self.order(name, Order::Start).await
    }

    /// Returns once its box is gone. It is not started again until somebody asks by hand.
    pub async fn stop(&self, name: &McpServerName) -> Result<McpServerInfo, HostingError> {
        self.order(name, Order::Stop).await
    }

    /// Returns once it is under way; `progress` tells the rest.
    pub async fn restart(&self, name: &McpServerName) -> Result<McpServerInfo, HostingError> {
        let restart = |reply| Order::Restart(reply, Reuse::IfThere);
        self.order(name, restart).await
    }

    /// A restart that installs the server's packages anew, and not from what is there: a newer version
    /// of them, or the same once more.
    pub async fn reinstall(&self, name: &McpServerName) -> Result<McpServerInfo, HostingError> {
        let restart = |reply| Order::Restart(reply, Reuse::Never);
        self.order(name, restart).await
    }

    pub async fn logs(&self, name: &McpServerName) -> Result<McpLogs, HostingError> {
        let hosted = self.seat(name)?.hosted;
        let now = greeting::stderr(&self.inner.kit, &hosted.session, &hosted.secrets()).await;
        let mut stderr = hosted.all_stderr(now.unwrap_or_default());
        if let Condition::Connected(live) = hosted.condition() {
            let children = live.children.stderr().await;
            if !children.is_empty() {
                stderr.push_str(end_of_line(&stderr));
                stderr.push_str(&children);
            }
        }
        Ok(McpLogs {
            stderr,
            install: hosted.track.install_log(),
            protocol: hosted.protocol.lines(),
        })
    }

    /// The phases so far, then everything as it comes, until it is connected, stopped or has failed.
    pub fn progress(
        &self,
        name: &McpServerName,
    ) -> Result<impl Stream<Item = McpProgress> + Send + use<>, HostingError> {
        Ok(following::follow(self.seat(name)?.hosted))
    }

    /// Tries it out without storing it. Its box is gone afterwards, also when the future is dropped.
    pub async fn test(
        &self,
        spec: McpServerSpec,
        progress: mpsc::Sender<McpProgress>,
    ) -> Result<McpTestResult, HostingError> {
        check(&spec)?;
        if self.inner.closing.is_cancelled() {
            return Err(HostingError::Closing);
        }
        Ok(transient::test(&self.inner.kit, spec, progress).await)
    }

    /// Tries out a stored one as it is described now, with its secrets. The one that runs is left alone.
    pub async fn test_stored(
        &self,
        name: &McpServerName,
        progress: mpsc::Sender<McpProgress>,
    ) -> Result<McpTestResult, HostingError> {
        let spec = self.seat(name)?.hosted.spec();
        self.test(McpServerSpec::clone(&spec), progress).await
    }

    /// Calls a tool by hand. What comes back is the result as the server wrote it.
    pub async fn call(
        &self,
        name: &McpServerName,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Box<RawValue>, HostingError> {
        let server = self.server(name).await?;
        call::call(
            &server,
            tool,
            arguments,
            self.inner.kit.settings.call_timeout,
        )
        .await
    }

    /// Waits until it is connected. One that was stopped because nobody called it is started.
    pub(crate) async fn server(&self, name: &McpServerName) -> Result<Server, HostingError> {
        self.seat(name)?.server().await
    }

    /// How it is, and when it was last described anew.
    pub(crate) fn standing(&self, name: &McpServerName) -> Option<(Condition, Timestamp)> {
        Some(self.seat(name).ok()?.hosted.standing())
    }

    /// Neither waits nor starts.
    pub(crate) fn connected(&self, name: &McpServerName) -> Option<Server> {
        self.seat(name).ok()?.connected()
    }

    async fn order(
        &self,
        name: &McpServerName,
        order: impl FnOnce(oneshot::Sender<Result<(), HostingError>>) -> Order,
    ) -> Result<McpServerInfo, HostingError> {
        let seat = self.seat(name)?;
        seat.order(order).await?;
        Ok(seat.hosted.info())
    }

    pub(super) fn attend(&self, stored: Stored, first: Mode) -> Seat {
        let inner = &self.inner;
        let hosted = Arc::new(Hosted::new(stored, inner.changes.clone()));
        let (orders, taken) = mpsc::channel(WAITING_ORDERS);
        let supervisor = Supervisor {
            kit: Arc::clone(&inner.kit),
            hosted: Arc::clone(&hosted),
            orders: taken,
            closing: inner.closing.clone(),
            retry: Retry::new(&inner.kit.settings),
            live: None,
            ran_as: hosted.spec(),
            found_no_boxes: 0,
        };
        let seat = Seat { hosted, orders };
        self.seats().insert(seat.hosted.name.clone(), seat.clone());
        inner.kit.later(supervisor.run(first));
        inner.changes.send_modify(|count| *count += 1);
        seat
    }

    pub(super) fn seat(&self, name: &McpServerName) -> Result<Seat, HostingError> {
        self.seats()
            .get(name)
            .cloned()
            .ok_or_else(|| HostingError::NotFound {
                name: name.to_string(),
            })
    }

    pub(super) fn seats(&self) -> MutexGuard<'_, BTreeMap<McpServerName, Seat>> {
        self.inner
            .seats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
