//! One server as everybody sees it: what it is, how it is, and what it said.
//!
//! Only its supervisor moves it; everybody else reads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_api::{
    McpPhase, McpRuntimeInfo, McpServerInfo, McpServerName, McpServerSpec, McpStatus, McpToolInfo,
    SessionId,
};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::ToolFilter;
use super::fault::Fault;
use super::naming;
use super::redact::Secrets;
use super::server::Live;
use super::store::Stored;
use super::tail::tail_of_lines;
use super::track::Track;
use crate::wire::ProtocolLog;

/// Between what one process wrote and what the next did.
const STARTED_AGAIN: &str = "--- started again ---\n";
/// Of what processes wrote that are gone.
const EARLIER_BYTES: usize = 256 * 1024;

pub(crate) struct Hosted {
    pub(crate) name: McpServerName,
    pub(crate) session: SessionId,
    pub(crate) track: Track,
    pub(crate) protocol: Arc<ProtocolLog>,
    kept: Mutex<Kept>,
    /// Counts what changed here.
    moved: watch::Sender<u64>,
    /// Counts what changed anywhere.
    changes: watch::Sender<u64>,
}

struct Kept {
    spec: Arc<McpServerSpec>,
    created_at: Timestamp,
    updated_at: Timestamp,
    condition: Condition,
    retry_count: u32,
    tools: Arc<[McpToolInfo]>,
    has_box: bool,
    /// Somebody asked for it, so that it is not idle even before the first call.
    touched_at: Instant,
    last_stderr: String,
    /// Of what runs, or ran last.
    secrets: Arc<Secrets>,
}

/// How one server is, without what it offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStanding {
    pub name: McpServerName,
    pub session: SessionId,
    pub status: McpStatus,
    pub error_phase: Option<McpPhase>,
    pub error_message: Option<String>,
}

/// How it is. What belongs to a state alone stands in it.
#[derive(Clone)]
pub(crate) enum Condition {
    Disabled,
    Queued,
    Connecting,
    /// It failed and is tried again.
    Pausing {
        fault: Fault,
        until: Timestamp,
    },
    Connected(Arc<Live>),
    Stopped(Stop),
    Failed(Fault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    ByHand,
    /// Nobody called it; the next call starts it.
    Idle,
}

impl Hosted {
    pub(crate) fn new(stored: Stored, changes: watch::Sender<u64>) -> Self {
        let name = stored.spec.name.clone();
        let secrets = Arc::new(Secrets::of(&stored.spec.env));
        let condition = if stored.spec.enabled {
            Condition::Queued
        } else {
            Condition::Disabled
        };
        Self {
            session: naming::session_of(&name),
            name,
            track: Track::new(),
            protocol: Arc::new(ProtocolLog::default()),
            kept: Mutex::new(Kept {
                spec: Arc::new(stored.spec),
                created_at: stored.created_at,
                updated_at: stored.updated_at,
                condition,
                retry_count: 0,
                tools: Arc::default(),
                has_box: false,
                touched_at: Instant::now(),
                last_stderr: String::new(),
                secrets,
            }),
            moved: watch::Sender::new(0),
            changes,
        }
    }

    pub(crate) fn spec(&self) -> Arc<McpServerSpec> {
        Arc::clone(&self.kept().spec)
    }

    pub(crate) fn filter(&self) -> ToolFilter {
        ToolFilter::from(&self.kept().spec.tools)
    }

    pub(crate) fn condition(&self) -> Condition {
        self.kept().condition.clone()
    }

    /// How it is, and when it was last described anew.
    pub(crate) fn standing(&self) -> (Condition, Timestamp) {
        let kept = self.kept();
        (kept.condition.clone(), kept.updated_at)
    }

    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        match &self.kept().condition {
            Condition::Connected(live) => Some(Arc::clone(live)),
            _ => None,
        }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    pub(crate) fn touch(&self) {
        self.kept().touched_at = Instant::now();
    }

    pub(crate) fn untouched_for(&self) -> Duration {
        self.kept().touched_at.elapsed()
    }

    /// What the process says now, behind what those before it said: a server that ends and is started
    /// again said why before.
    pub(crate) fn all_stderr(&self, now: String) -> String {
        let before = self.kept().last_stderr.clone();
        if before.is_empty() {
            return now;
        }
        if now.is_empty() {
            return before;
        }
        format!("{before}{}{STARTED_AGAIN}{now}", end_of_line(&before))
    }

    /// Its process is gone, or about to go.
    pub(crate) fn keep_stderr(&self, text: String) {
        let all = self.all_stderr(text);
        tail_of_lines(&all, EARLIER_BYTES).clone_into(&mut self.kept().last_stderr);
    }

    /// What is said from now on is said by a process with these variables.
    pub(crate) fn runs_as(&self, spec: &McpServerSpec) {
        let secrets = Arc::new(Secrets::of(&spec.env));
        self.protocol.hides(Arc::clone(&secrets));
        self.kept().secrets = secrets;
    }

    pub(crate) fn secrets(&self) -> Arc<Secrets> {
        Arc::clone(&self.kept().secrets)
    }

    pub(crate) fn replace(&self, stored: Stored) {
        let mut kept = self.kept();
        kept.spec = Arc::new(stored.spec);
        kept.created_at = stored.created_at;
        kept.updated_at = stored.updated_at;
        drop(kept);
        self.bump();
    }

    pub(crate) fn retries(&self, count: u32) {
        let mut kept = self.kept();
        if kept.retry_count != count {
            kept.retry_count = count;
            drop(kept);
            self.bump();
        }
    }

    pub(crate) fn list_tools(&self, mut tools: Vec<McpToolInfo>) {
        self.secrets().hide_in_tools(&mut tools);
        let mut kept = self.kept();
        if *kept.tools != *tools {
            kept.tools = tools.into();
            drop(kept);
            self.bump();
        }
    }

    pub(crate) fn has_box(&self, has_box: bool) {
        self.kept().has_box = has_box;
    }

    /// From now on it is like this. Whoever follows a start hears how it ended.
    pub(crate) fn becomes(&self, condition: Condition) {
        let is_settled = condition.is_settled();
        let is_connected = matches!(condition, Condition::Connected(_));
        // The next call starts it, and has to know what its arguments are.
        let is_asleep = matches!(condition, Condition::Stopped(Stop::Idle));
        let mut kept = self.kept();
        kept.condition = condition;
        if !is_connected && !is_asleep {
            kept.tools = Arc::default();
        }
        drop(kept);
        if is_settled && !is_connected {
            self.track.rest();
        }
        self.bump();
        // Whoever begins to follow now sees for himself that it is settled.
        if is_settled && self.track.is_watched() {
            self.track.done(self.runtime());
        }
    }

    pub(crate) fn summary(&self) -> ServerStanding {
        let kept = self.kept();
        let fault = kept.condition.fault();
        ServerStanding {
            name: self.name.clone(),
            session: self.session.clone(),
            status: kept.condition.status(),
            error_phase: fault.map(|fault| fault.phase),
            error_message: fault.map(|fault| fault.message.clone()),
        }
    }

    pub(crate) fn runtime(&self) -> McpRuntimeInfo {
        let mut runtime = self.runtime_without_tools();
        let (tools, filter) = self.tools();
        let tools = tools.iter().filter(|tool| filter.admits(&tool.name));
        runtime.tools = tools.cloned().collect();
        runtime.tool_count = runtime.tools.len();
        runtime
    }

    fn tools(&self) -> (Arc<[McpToolInfo]>, ToolFilter) {
        let kept = self.kept();
        let filter = ToolFilter::from(&kept.spec.tools);
        (Arc::clone(&kept.tools), filter)
    }

    /// Only how many there are.
    fn runtime_without_tools(&self) -> McpRuntimeInfo {
        let (tools, filter) = self.tools();
        let tools = tools.iter().filter(|tool| filter.admits(&tool.name));
        let tool_count = tools.count();
        let kept = self.kept();
        // In this order: whoever is on its way has a step to show.
        let steps = self.track.steps();
        let fault = kept.condition.fault();
        let retry_at = match &kept.condition {
            Condition::Pausing { until, .. } => Some(*until),
            _ => None,
        };
        let greeting = match &kept.condition {
            Condition::Connected(live) => Some(&live.greeting),
            _ => None,
        };
        McpRuntimeInfo {
            status: kept.condition.status(),
            error_message: fault.map(|fault| fault.message.clone()),
            error_phase: fault.map(|fault| fault.phase),
            retry_count: kept.retry_count,
            tool_count,
            tools: Vec::new(),
            box_session_id: kept.has_box.then(|| self.session.clone()),
            box_enabled: kept.has_box.then_some(true),
            steps,
            notices: self.track.notices(),
            retry_at,
            hint: fault.and_then(|fault| fault.hint.clone()),
            protocol_version: greeting.map(|greeting| kept.secrets.shown_version(greeting)),
            server_info: greeting.and_then(|greeting| kept.secrets.shown_info(greeting)),
        }
    }

    pub(crate) fn info(&self) -> McpServerInfo {
        self.info_with(self.runtime())
    }

    /// For lists, which would be long otherwise.
    pub(crate) fn info_without_tools(&self) -> McpServerInfo {
        self.info_with(self.runtime_without_tools())
    }

    fn info_with(&self, runtime: McpRuntimeInfo) -> McpServerInfo {
        let kept = self.kept();
        let spec = &kept.spec;
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
            created_at: kept.created_at,
            updated_at: kept.updated_at,
            path: format!("/mcp/{}", self.name),
            runtime,
        }
    }

    fn bump(&self) {
        self.moved.send_modify(|count| *count += 1);
        self.changes.send_modify(|count| *count += 1);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn end_of_line(text: &str) -> &'static str {
    if text.ends_with('\n') { "" } else { "\n" }
}

impl Condition {
    fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Failed(fault) | Self::Pausing { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// Nothing further happens by itself.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Queued | Self::Connecting | Self::Pausing { .. } => false,
            Self::Disabled | Self::Connected(_) | Self::Stopped(_) | Self::Failed(_) => true,
        }
    }

    pub(crate) fn status(&self) -> McpStatus {
        match self {
            Self::Disabled => McpStatus::Disabled,
            Self::Queued => McpStatus::Queued,
            Self::Connecting | Self::Pausing { .. } => McpStatus::Connecting,
            Self::Connected(_) => McpStatus::Connected,
            Self::Stopped(_) => McpStatus::Stopped,
            Self::Failed(_) => McpStatus::Error,
        }
    }
}
