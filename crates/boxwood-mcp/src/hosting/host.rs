//! The registry of all hosted servers and the entry point of hosting.

use std::collections::BTreeMap;
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

use super::boxes::keyed_locks::Locks;
use super::boxes::{cleanup, ids};
use super::cache::install::Reuse;
use super::context::HostContext;
use super::definitions::store::Stored;
use super::definitions::validate::check;
use super::logs::progress;
use super::process::server::Server;
use super::process::{call, handshake};
use super::supervisor::handle::Command;
use super::supervisor::handle::ServerHandle;
use super::supervisor::retry::Retry;
use super::supervisor::state::{RunState, ServerState, ServerSummary, end_of_line};
use super::supervisor::test_run;
use super::supervisor::{Step, Supervisor};
use super::{HostingError, HostingSettings, Runtime};

/// Capacity of a supervisor's command queue. Senders wait while it is full.
const COMMAND_QUEUE: usize = 32;
/// How long [`Hosting::close`] waits for supervisors and pending removals.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// All hosted servers of the daemon. Cheap to clone.
#[derive(Clone)]
pub struct Hosting {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) context: Arc<HostContext>,
    pub(super) handles: Mutex<BTreeMap<McpServerName, ServerHandle>>,
    /// Held while a new server is stored, so that the limit on servers is kept.
    pub(super) adding: tokio::sync::Mutex<()>,
    /// Held while a server is added, updated or removed.
    pub(super) changing: Locks,
    pub(super) changes: watch::Sender<u64>,
    pub(super) closing: CancellationToken,
    /// Stored servers whose supervisors `begin` will start.
    waiting: Mutex<Vec<Stored>>,
    /// Stored servers whose definition could not be read at startup. They may still be running.
    pub(super) unread: Vec<McpServerName>,
}

impl Hosting {
    /// Reads the stored definitions. Starts nothing.
    pub fn new(runtime: Arc<dyn Runtime>, settings: HostingSettings) -> Result<Self, HostingError> {
        let context = HostContext::open(runtime, settings)?;
        let listed = context.store.list()?;
        for notice in &listed.notices {
            tracing::warn!(notice, "skipped an unreadable MCP server definition");
        }
        Ok(Self {
            inner: Arc::new(Inner {
                context,
                handles: Mutex::default(),
                adding: tokio::sync::Mutex::default(),
                changing: Locks::default(),
                changes: watch::Sender::new(0),
                closing: CancellationToken::new(),
                waiting: Mutex::new(listed.servers),
                unread: listed.unread,
            }),
        })
    }

    /// Adopts running servers and starts the others, a few at a time. Returns at once. Needs a Tokio runtime.
    pub fn begin(&self) {
        let waiting = std::mem::take(
            &mut *self
                .inner
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for stored in waiting {
            let first_step = if stored.spec.enabled {
                Step::Adopt
            } else {
                Step::RemoveBox
            };
            self.start_supervisor(stored, first_step);
        }
        let inner = Arc::clone(&self.inner);
        self.inner.context.spawn(async move {
            cleanup::clear_leftovers(&inner).await;
            let (context, closing) = (Arc::clone(&inner.context), inner.closing.clone());
            drop(inner);
            closing
                .run_until_cancelled(cleanup::run_periodically(&context))
                .await;
        });
    }

    /// Detaches from all servers. Their boxes keep running for the next daemon to adopt.
    pub async fn close(&self) {
        self.inner.closing.cancel();
        self.inner.context.tasks.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.inner.context.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("timed out while shutting down hosted MCP servers");
        }
    }

    /// All servers, with the number of their tools instead of the tools themselves, which may be large.
    pub fn list(&self) -> Vec<McpServerInfo> {
        let handles = self.handles();
        let state = handles.values().map(|handle| &handle.state);
        state.map(|state| state.info_without_tools()).collect()
    }

    pub fn summaries(&self) -> Vec<ServerSummary> {
        let handles = self.handles();
        handles
            .values()
            .map(|handle| handle.state.summary())
            .collect()
    }

    pub(crate) fn enabled_names(&self) -> Vec<McpServerName> {
        let handles = self.handles();
        let enabled = handles
            .iter()
            .filter(|(_, handle)| handle.state.spec().enabled);
        enabled.map(|(name, _)| name.clone()).collect()
    }

    pub fn get(&self, name: &McpServerName) -> Result<McpServerInfo, HostingError> {
        Ok(self.handle(name)?.state.info())
    }

    /// Changes whenever the definition or status of any server changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Returns once the start has begun. `progress` reports the rest.
    pub async fn start(&self, name: &McpServerName) -> Result<McpServerInfo, HostingError> {
        self.command(name, Command::Start).await
    }

    /// Returns once the box is removed. The server stays stopped until it is started explicitly.
    pub async fn stop(&self, name: &McpServerName) -> Result<McpServerInfo, HostingError> {
        self.command(name, Command::Stop).await
    }

    /// Returns once the restart has begun. `progress` reports the rest.
    pub async fn restart(&self, name: &McpServerName) -> Result<McpServerInfo, HostingError> {
        let restart = |reply| Command::Restart(reply, Reuse::IfPresent);
        self.command(name, restart).await
    }

    /// Restarts the server and installs its packages again instead of using the cached install.
    pub async fn reinstall(&self, name: &McpServerName) -> Result<McpServerInfo, HostingError> {
        let restart = |reply| Command::Restart(reply, Reuse::Never);
        self.command(name, restart).await
    }

    pub async fn logs(&self, name: &McpServerName) -> Result<McpLogs, HostingError> {
        let state = self.handle(name)?.state;
        let (context, main) = (&self.inner.context, ids::main_process());
        let current = handshake::stderr(context, &state.session, &main, &state.secrets()).await;
        let mut stderr = state.all_stderr(current.unwrap_or_default());
        if let RunState::Connected(live) = state.run_state() {
            let children = live.children.stderr().await;
            if !children.is_empty() {
                stderr.push_str(end_of_line(&stderr));
                stderr.push_str(&children);
            }
        }
        Ok(McpLogs {
            stderr,
            install: state.progress_log.install_log(),
            protocol: state.protocol.lines(),
        })
    }

    /// The phases so far, then all further events until the server is connected, stopped or failed.
    pub fn progress(
        &self,
        name: &McpServerName,
    ) -> Result<impl Stream<Item = McpProgress> + Send + use<>, HostingError> {
        Ok(progress::follow(self.handle(name)?.state))
    }

    /// Tests a definition without storing it. The box is removed afterwards, also if the future is dropped.
    pub async fn test(
        &self,
        spec: McpServerSpec,
        progress: mpsc::Sender<McpProgress>,
    ) -> Result<McpTestResult, HostingError> {
        check(&spec)?;
        if self.inner.closing.is_cancelled() {
            return Err(HostingError::Closing);
        }
        Ok(test_run::test(&self.inner.context, spec, progress).await)
    }

    /// Tests the stored definition with its secrets. The running server is not affected.
    pub async fn test_stored(
        &self,
        name: &McpServerName,
        progress: mpsc::Sender<McpProgress>,
    ) -> Result<McpTestResult, HostingError> {
        let spec = self.handle(name)?.state.spec();
        self.test(McpServerSpec::clone(&spec), progress).await
    }

    /// Calls a tool. Returns the result exactly as the server sent it.
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
            self.inner.context.settings.call_timeout,
        )
        .await
    }

    /// Waits until the server is connected. Starts it if it was stopped as idle.
    pub(crate) async fn server(&self, name: &McpServerName) -> Result<Server, HostingError> {
        self.handle(name)?.server().await
    }

    /// The run state, and when the definition was last updated.
    pub(crate) fn run_state_and_update_time(
        &self,
        name: &McpServerName,
    ) -> Option<(RunState, Timestamp)> {
        Some(self.handle(name).ok()?.state.run_state_and_update_time())
    }

    /// Neither waits nor starts the server.
    pub(crate) fn connected(&self, name: &McpServerName) -> Option<Server> {
        self.handle(name).ok()?.connected()
    }

    async fn command(
        &self,
        name: &McpServerName,
        command: impl FnOnce(oneshot::Sender<Result<(), HostingError>>) -> Command,
    ) -> Result<McpServerInfo, HostingError> {
        let handle = self.handle(name)?;
        handle.command(command).await?;
        Ok(handle.state.info())
    }

    pub(super) fn start_supervisor(&self, stored: Stored, first_step: Step) -> ServerHandle {
        let inner = &self.inner;
        let session = ids::session_of(&stored.spec.name);
        let state = Arc::new(ServerState::new(stored, session, inner.changes.clone()));
        let (commands, receiver) = mpsc::channel(COMMAND_QUEUE);
        let supervisor = Supervisor {
            context: Arc::clone(&inner.context),
            state: Arc::clone(&state),
            commands: receiver,
            closing: inner.closing.clone(),
            retry: Retry::new(&inner.context.settings),
            live: None,
            running_spec: state.spec(),
            unavailable_count: 0,
            connection_lost_at: None,
        };
        let handle = ServerHandle { state, commands };
        self.handles()
            .insert(handle.state.name.clone(), handle.clone());
        inner.context.spawn(supervisor.run(first_step));
        inner.changes.send_modify(|count| *count += 1);
        handle
    }

    pub(super) fn handle(&self, name: &McpServerName) -> Result<ServerHandle, HostingError> {
        self.handles()
            .get(name)
            .cloned()
            .ok_or_else(|| HostingError::NotFound {
                name: name.to_string(),
            })
    }

    pub(super) fn handles(&self) -> MutexGuard<'_, BTreeMap<McpServerName, ServerHandle>> {
        self.inner
            .handles
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
