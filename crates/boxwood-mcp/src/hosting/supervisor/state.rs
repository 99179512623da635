//! The observable state of one server: definition, run state, tools and output.
//!
//! Only its supervisor changes the run state.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_api::{
    McpPhase, McpRuntimeInfo, McpServerInfo, McpServerName, McpServerSpec, McpStatus, McpToolInfo,
    SessionId,
};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::fault::Fault;
use crate::hosting::ToolFilter;
use crate::hosting::definitions::store::Stored;
use crate::hosting::logs::progress::ProgressLog;
use crate::hosting::logs::redact::Secrets;
use crate::hosting::logs::tail::tail_of_lines;
use crate::hosting::process::server::RunningServer;
use crate::wire::ProtocolLog;

/// Separates the stderr of consecutive processes.
const RESTART_MARKER: &str = "--- started again ---\n";
/// Limit for the stderr of earlier processes.
const EARLIER_BYTES: usize = 256 * 1024;

pub(crate) struct ServerState {
    pub(crate) name: McpServerName,
    pub(crate) session: SessionId,
    pub(crate) progress_log: ProgressLog,
    pub(crate) protocol: Arc<ProtocolLog>,
    /// The next start does not use the cached install.
    pub(crate) must_reinstall: AtomicBool,
    inner: Mutex<Inner>,
    /// Incremented on every change of this server.
    server_changes: watch::Sender<u64>,
    /// Incremented on every change of any server.
    all_changes: watch::Sender<u64>,
}

struct Inner {
    spec: Arc<McpServerSpec>,
    created_at: Timestamp,
    updated_at: Timestamp,
    run_state: RunState,
    retry_count: u32,
    tools: Arc<[McpToolInfo]>,
    has_box: bool,
    /// Time of the last request for the server. It counts as use, also before the first call.
    touched_at: Instant,
    last_stderr: String,
    /// Secrets of the current or last run.
    secrets: Arc<Secrets>,
}

/// Status of one server, without its tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSummary {
    pub name: McpServerName,
    pub session: SessionId,
    pub status: McpStatus,
    pub error_phase: Option<McpPhase>,
    pub error_message: Option<String>,
}

#[derive(Clone)]
pub(crate) enum RunState {
    Disabled,
    Queued,
    Connecting,
    /// Failed and waiting for its next attempt.
    RetryWait {
        fault: Fault,
        until: Timestamp,
    },
    Connected(Arc<RunningServer>),
    Stopped(StopCause),
    Failed(Fault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopCause {
    Requested,
    /// Stopped after its idle time. The next call starts it.
    Idle,
}

impl ServerState {
    pub(crate) fn new(stored: Stored, session: SessionId, all_changes: watch::Sender<u64>) -> Self {
        let name = stored.spec.name.clone();
        let secrets = Arc::new(Secrets::of(&stored.spec.env));
        let run_state = if stored.spec.enabled {
            RunState::Queued
        } else {
            RunState::Disabled
        };
        Self {
            session,
            name,
            progress_log: ProgressLog::new(),
            protocol: Arc::new(ProtocolLog::default()),
            must_reinstall: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                spec: Arc::new(stored.spec),
                created_at: stored.created_at,
                updated_at: stored.updated_at,
                run_state,
                retry_count: 0,
                tools: Arc::default(),
                has_box: false,
                touched_at: Instant::now(),
                last_stderr: String::new(),
                secrets,
            }),
            server_changes: watch::Sender::new(0),
            all_changes,
        }
    }

    pub(crate) fn spec(&self) -> Arc<McpServerSpec> {
        Arc::clone(&self.inner().spec)
    }

    pub(crate) fn filter(&self) -> ToolFilter {
        ToolFilter::from(&self.inner().spec.tools)
    }

    pub(crate) fn run_state(&self) -> RunState {
        self.inner().run_state.clone()
    }

    /// The run state, and when the definition was last updated.
    pub(crate) fn run_state_and_update_time(&self) -> (RunState, Timestamp) {
        let inner = self.inner();
        (inner.run_state.clone(), inner.updated_at)
    }

    pub(crate) fn live(&self) -> Option<Arc<RunningServer>> {
        match &self.inner().run_state {
            RunState::Connected(live) => Some(Arc::clone(live)),
            _ => None,
        }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.server_changes.subscribe()
    }

    pub(crate) fn touch(&self) {
        self.inner().touched_at = Instant::now();
    }

    pub(crate) fn untouched_for(&self) -> Duration {
        self.inner().touched_at.elapsed()
    }

    /// Stderr of the current process after that of earlier ones, which often contains the reason of a restart.
    pub(crate) fn all_stderr(&self, current: String) -> String {
        let earlier = self.inner().last_stderr.clone();
        if earlier.is_empty() {
            return current;
        }
        if current.is_empty() {
            return earlier;
        }
        format!(
            "{earlier}{}{RESTART_MARKER}{current}",
            end_of_line(&earlier)
        )
    }

    /// Call before the process is removed.
    pub(crate) fn keep_stderr(&self, current: String) {
        let all = self.all_stderr(current);
        tail_of_lines(&all, EARLIER_BYTES).clone_into(&mut self.inner().last_stderr);
    }

    /// Uses the variables of `spec` to redact output from now on.
    pub(crate) fn redact_as(&self, spec: &McpServerSpec) {
        let secrets = Arc::new(Secrets::of(&spec.env));
        self.protocol.set_secrets(Arc::clone(&secrets));
        self.inner().secrets = secrets;
    }

    pub(crate) fn secrets(&self) -> Arc<Secrets> {
        Arc::clone(&self.inner().secrets)
    }

    pub(crate) fn replace(&self, stored: Stored) {
        let mut inner = self.inner();
        inner.spec = Arc::new(stored.spec);
        inner.created_at = stored.created_at;
        inner.updated_at = stored.updated_at;
        drop(inner);
        self.bump();
    }

    pub(crate) fn set_retry_count(&self, count: u32) {
        let mut inner = self.inner();
        if inner.retry_count != count {
            inner.retry_count = count;
            drop(inner);
            self.bump();
        }
    }

    pub(crate) fn set_tools(&self, mut tools: Vec<McpToolInfo>) {
        self.secrets().hide_in_tools(&mut tools);
        let mut inner = self.inner();
        if *inner.tools != *tools {
            inner.tools = tools.into();
            drop(inner);
            self.bump();
        }
    }

    pub(crate) fn set_has_box(&self, has_box: bool) {
        self.inner().has_box = has_box;
    }

    /// Changes the run state and notifies followers.
    pub(crate) fn set_run_state(&self, run_state: RunState) {
        let is_settled = run_state.is_settled();
        let is_connected = matches!(run_state, RunState::Connected(_));
        // Clients still list the tools of an idle server, and the next call starts it.
        let is_idle = matches!(run_state, RunState::Stopped(StopCause::Idle));
        let mut inner = self.inner();
        inner.run_state = run_state;
        if !is_connected && !is_idle {
            inner.tools = Arc::default();
        }
        drop(inner);
        if is_settled && !is_connected {
            self.progress_log.end_phase();
        }
        self.bump();
        // A follower that subscribes now sees the settled state itself.
        if is_settled && self.progress_log.is_watched() {
            self.progress_log.done(self.runtime());
        }
    }

    pub(crate) fn summary(&self) -> ServerSummary {
        let inner = self.inner();
        let fault = inner.run_state.fault();
        ServerSummary {
            name: self.name.clone(),
            session: self.session.clone(),
            status: inner.run_state.status(),
            error_phase: fault.map(|fault| fault.phase),
            error_message: fault.map(|fault| fault.message.clone()),
        }
    }

    pub(crate) fn runtime(&self) -> McpRuntimeInfo {
        // Read before the tools, so that a connected server has its tools.
        let runtime = self.runtime_without_tools();
        let (tools, filter) = self.tools();
        let tools = tools.iter().filter(|tool| filter.admits(&tool.name));
        let tools: Vec<_> = tools.cloned().collect();
        McpRuntimeInfo {
            tool_count: tools.len(),
            tools,
            ..runtime
        }
    }

    fn tools(&self) -> (Arc<[McpToolInfo]>, ToolFilter) {
        let inner = self.inner();
        let filter = ToolFilter::from(&inner.spec.tools);
        (Arc::clone(&inner.tools), filter)
    }

    /// Only with the number of tools.
    fn runtime_without_tools(&self) -> McpRuntimeInfo {
        let (tools, filter) = self.tools();
        let tools = tools.iter().filter(|tool| filter.admits(&tool.name));
        let tool_count = tools.count();
        let inner = self.inner();
        // Read after the run state, so that a connecting server has a step.
        let steps = self.progress_log.steps();
        let fault = inner.run_state.fault();
        let retry_at = match &inner.run_state {
            RunState::RetryWait { until, .. } => Some(*until),
            _ => None,
        };
        let handshake = match &inner.run_state {
            RunState::Connected(live) => Some(&live.handshake),
            _ => None,
        };
        McpRuntimeInfo {
            status: inner.run_state.status(),
            error_message: fault.map(|fault| fault.message.clone()),
            error_phase: fault.map(|fault| fault.phase),
            retry_count: inner.retry_count,
            tool_count,
            tools: Vec::new(),
            box_session_id: inner.has_box.then(|| self.session.clone()),
            box_enabled: inner.has_box.then_some(true),
            steps,
            notices: self.progress_log.notices(),
            retry_at,
            hint: fault.and_then(|fault| fault.hint.clone()),
            protocol_version: handshake.map(|handshake| inner.secrets.shown_version(handshake)),
            server_info: handshake.and_then(|handshake| inner.secrets.shown_info(handshake)),
        }
    }

    pub(crate) fn info(&self) -> McpServerInfo {
        self.info_with(self.runtime())
    }

    pub(crate) fn info_without_tools(&self) -> McpServerInfo {
        self.info_with(self.runtime_without_tools())
    }

    fn info_with(&self, runtime: McpRuntimeInfo) -> McpServerInfo {
        let inner = self.inner();
        let spec = &inner.spec;
        McpServerInfo {
            name: self.name.clone(),
            command: spec.command.clone(),
            args: spec.args.clone(),
            env_keys: spec.env.keys().cloned().collect(),
            cwd: spec.cwd.clone(),
            enabled: spec.enabled,
            settings: spec.settings.clone(),
            tools: spec.tools.clone(),
            idle_stop_sec: spec.idle_stop_sec,
            with: spec.with.clone(),
            created_at: inner.created_at,
            updated_at: inner.updated_at,
            path: format!("/mcp/{}", self.name),
            runtime,
        }
    }

    fn bump(&self) {
        self.server_changes.send_modify(|count| *count += 1);
        self.all_changes.send_modify(|count| *count += 1);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn end_of_line(text: &str) -> &'static str {
    if text.ends_with('\n') { "" } else { "\n" }
}

impl RunState {
    fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Failed(fault) | Self::RetryWait { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// Returns true if the state changes only through a command or a failure.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Queued | Self::Connecting | Self::RetryWait { .. } => false,
            Self::Disabled | Self::Connected(_) | Self::Stopped(_) | Self::Failed(_) => true,
        }
    }

    pub(crate) fn status(&self) -> McpStatus {
        match self {
            Self::Disabled => McpStatus::Disabled,
            Self::Queued => McpStatus::Queued,
            Self::Connecting | Self::RetryWait { .. } => McpStatus::Connecting,
            Self::Connected(_) => McpStatus::Connected,
            Self::Stopped(_) => McpStatus::Stopped,
            Self::Failed(_) => McpStatus::Error,
        }
    }
}
