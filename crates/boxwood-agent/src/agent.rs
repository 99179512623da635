//! The entry point for tool calls, used by HTTP, MCP and embedding programs. The tools are in `tools`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{
    AgentErrorRecord, AgentGuidance, AgentQuery, AgentState, AgentStatus, ErrorCode, SessionId,
    SessionInfo, ToolAnswer, ToolCall, ToolInfo, ToolList, Unavailable,
};
use jiff::Timestamp;

use crate::boxes::{Answer, Boxes, BoxesError};
use crate::error::ToolError;
use crate::error_ring::ErrorRing;
use crate::guidance::guidance;
use crate::progress::Progress;
use crate::remote::Remote;
use crate::settings::AgentSettings;
use crate::settings::operator;
use crate::skills::activation::{self, Activations};
use crate::state::{self, RuntimeState};
use crate::tools::schemas;
use crate::{skills, template, tools};

/// Timeout of requests about the runtime itself.
const STATE_TIMEOUT: Duration = Duration::from_secs(5);

/// Boxes for the conversations of one platform. Cheap to clone.
#[derive(Clone)]
pub struct Agent {
    pub(crate) inner: Arc<Inner>,
    settings: Arc<AgentSettings>,
}

pub(crate) struct Inner {
    boxes: Option<Arc<dyn Boxes>>,
    /// The daemon whose agent settings take precedence.
    daemon: Option<Remote>,
    pub(crate) activations: Activations,
    pub(crate) saved_numbers: crate::output::saved::Numbers,
    pub(crate) capture_budget: crate::output::capture::CaptureBudget,
    /// Held while a file of the store is edited.
    pub(crate) skill_edits: tokio::sync::Mutex<()>,
    errors: ErrorRing,
}

impl Agent {
    /// With `enabled = false` all calls are refused.
    pub fn new(boxes: Arc<dyn Boxes>, settings: AgentSettings) -> Self {
        Self::with(Some(boxes), None, settings)
    }

    /// With boxes of a daemon that has its own agent, whose settings take precedence. They are read at the beginning of each
    /// call; without them every call is refused.
    pub fn with_daemon(daemon: Remote, settings: AgentSettings) -> Self {
        Self::with(Some(Arc::new(daemon.clone())), Some(daemon), settings)
    }

    /// A disabled agent: it has no boxes and refuses all calls.
    pub fn disabled(settings: AgentSettings) -> Self {
        let settings = AgentSettings {
            enabled: false,
            ..settings
        };
        Self::with(None, None, settings)
    }

    fn with(
        boxes: Option<Arc<dyn Boxes>>,
        daemon: Option<Remote>,
        settings: AgentSettings,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                boxes,
                daemon,
                activations: Activations::default(),
                saved_numbers: crate::output::saved::Numbers::default(),
                capture_budget: crate::output::capture::CaptureBudget::default(),
                skill_edits: tokio::sync::Mutex::default(),
                errors: ErrorRing::default(),
            }),
            settings: Arc::new(settings),
        }
    }

    /// The error of a disabled agent.
    pub fn disabled_error() -> ToolError {
        state::disabled().into()
    }

    /// The same agent with the current settings of its daemon.
    pub async fn refreshed(&self) -> Result<Self, ToolError> {
        self.with_daemon_settings().await.map_err(ToolError::from)
    }

    async fn with_daemon_settings(&self) -> Result<Self, Unavailable> {
        let Some(daemon) = self.inner.daemon.as_ref().filter(|_| self.settings.enabled) else {
            return Ok(self.clone());
        };
        let status = in_time(daemon.agent_status()).await;
        let status = status.map_err(|error| state::unreachable_runtime(&error))?;
        Ok(Self {
            settings: Arc::new(operator::apply(&self.settings, status)?),
            inner: Arc::clone(&self.inner),
        })
    }

    pub fn settings(&self) -> &AgentSettings {
        &self.settings
    }

    /// `None` if the agent is disabled.
    pub fn boxes(&self) -> Option<&Arc<dyn Boxes>> {
        let boxes = self.inner.boxes.as_ref();
        boxes.filter(|_| self.settings.enabled)
    }

    /// The tools that can be used now: all, or none and the reason.
    pub async fn tools(&self) -> ToolList {
        if let Some(unavailable) = self.runtime_state().await.unavailable {
            return ToolList {
                tools: Vec::new(),
                openai: Vec::new(),
                unavailable: Some(unavailable),
            };
        }
        let tools = self.schemas();
        ToolList {
            openai: tools.iter().map(schemas::openai).collect(),
            tools,
            unavailable: None,
        }
    }

    /// All tools, also while they are unavailable.
    pub fn schemas(&self) -> Vec<ToolInfo> {
        schemas::tools_for(self.settings.exec_timeout_sec)
    }

    /// Calls a tool. Dropping the future kills what runs in the box for it.
    pub async fn call(
        &self,
        name: &str,
        call: ToolCall,
        progress: &dyn Progress,
    ) -> Result<ToolAnswer, ToolError> {
        let outcome = match self.refreshed().await {
            Ok(agent) => tools::call(&agent, name, &call, progress).await,
            Err(error) => Err(error),
        };
        match &outcome {
            Ok(done) => {
                if let Some(failure) = &done.failure {
                    self.record(&call.query, failure);
                }
            }
            Err(error) => self.record(&call.query, error),
        }
        outcome.map(|done| done.answer)
    }

    pub async fn status(&self) -> AgentStatus {
        let settings = &self.settings;
        let runtime = self.runtime_state().await;
        let state = runtime.state();
        let (connector_error, fix) = match runtime.unavailable {
            Some(unavailable) => (unavailable.reason, Some(unavailable.fix)),
            None => (String::new(), None),
        };
        AgentStatus {
            available: state == AgentState::Ready,
            enabled: settings.enabled,
            state,
            profile: settings.profile.clone(),
            backend: state::requested_backend(settings).map(str::to_owned),
            image: settings.image.clone(),
            workspace_quota_mb: settings.workspace_quota_mb,
            endpoint: settings.endpoint.clone(),
            recent_error_count: self.inner.errors.len() as u64,
            connector_error,
            fix,
            shares_filesystem: self.boxes().is_some_and(|boxes| boxes.shares_filesystem()),
            forced_template: settings.forced_template.as_ref().map(ToString::to_string),
            runtime: runtime.runtime,
        }
    }

    /// Empty if the runtime is unavailable.
    pub async fn sessions(&self) -> Vec<SessionInfo> {
        let Some(boxes) = self.boxes() else {
            return Vec::new();
        };
        in_time(boxes.sessions()).await.unwrap_or_default()
    }

    /// Oldest first, at most 50.
    pub fn recent_errors(&self) -> Vec<AgentErrorRecord> {
        self.inner.errors.list()
    }

    /// The text about the box for the system prompt. Empty if there are no boxes.
    pub async fn guidance(&self, query: &AgentQuery) -> AgentGuidance {
        let nothing = || AgentGuidance {
            text: String::new(),
            skills: BTreeMap::new(),
        };
        let Ok(agent) = self.with_daemon_settings().await else {
            return nothing();
        };
        let boxes = match agent.boxes() {
            Some(boxes) if agent.current_state().await.unavailable.is_none() => boxes,
            _ => return nothing(),
        };
        let visible = match in_time(boxes.skills()).await {
            Ok(all) => skills::visible(all, query),
            Err(error) => {
                tracing::warn!(%error, "failed to list the skills; the guidance omits them");
                Vec::new()
            }
        };
        guidance(agent.settings(), &visible)
    }

    /// The session id of a conversation.
    pub fn session_id(&self, query: &AgentQuery) -> Result<SessionId, ToolError> {
        self.scope(query).map(|scope| scope.session_id)
    }

    pub(crate) fn scope(&self, query: &AgentQuery) -> Result<template::Scope, ToolError> {
        let forced = self.settings.forced_template.as_ref();
        template::scope(forced, query).map_err(|error| ToolError::rule(error.to_string()))
    }

    /// Reads the current state without a cache. The diagnosis of the backends is requested only if there is a problem: it can
    /// take a while, and an unused backend may hang.
    pub(crate) async fn runtime_state(&self) -> RuntimeState {
        match self.with_daemon_settings().await {
            Ok(agent) => agent.current_state().await,
            Err(unavailable) => RuntimeState {
                unavailable: Some(unavailable),
                runtime: None,
            },
        }
    }

    /// Like [`Agent::runtime_state`], without reading the settings of the daemon again.
    pub(crate) async fn current_state(&self) -> RuntimeState {
        let Some(boxes) = self.boxes() else {
            return RuntimeState {
                unavailable: Some(state::disabled()),
                runtime: None,
            };
        };
        let settings = &self.settings;
        let request = async {
            let status = boxes.status().await?;
            let unavailable = if state::has_its_backend(settings, &status) {
                None
            } else {
                state::backend_trouble(settings, &status, &boxes.backends().await?)
            };
            Ok((status, unavailable))
        };
        match in_time(request).await {
            Ok((status, unavailable)) => RuntimeState {
                unavailable,
                runtime: Some(status),
            },
            Err(error) => RuntimeState {
                unavailable: Some(state::unreachable_runtime(&error)),
                runtime: None,
            },
        }
    }

    /// The error for the caller: the runtime or its backend is unavailable, or only this request failed.
    pub async fn refusal(&self, error: BoxesError) -> ToolError {
        if !error.reached {
            return state::unreachable_runtime(&error).into();
        }
        if error.code != ErrorCode::BackendUnavailable {
            return error.into();
        }
        match self.runtime_state().await.unavailable {
            Some(unavailable) => unavailable.into(),
            None => ToolError {
                state: Some(AgentState::BackendUnusable),
                ..error.into()
            },
        }
    }

    /// Records an error. That the runtime is disabled or unavailable is part of the status, and would displace the other errors.
    pub(crate) fn record(&self, query: &AgentQuery, error: &ToolError) {
        if matches!(
            error.state,
            Some(AgentState::Disabled | AgentState::Unavailable)
        ) {
            return;
        }
        self.inner.errors.push(error_record(query, error));
    }

    /// Records an error that would otherwise occur in every call, and displace all others. Returns false if it is
    /// already recorded.
    pub(crate) fn record_once(&self, query: &AgentQuery, error: &ToolError) -> bool {
        self.inner.errors.push_new(error_record(query, error))
    }
}

fn error_record(query: &AgentQuery, error: &ToolError) -> AgentErrorRecord {
    AgentErrorRecord {
        timestamp: Timestamp::now(),
        kind: error.code,
        message: error.message.clone(),
        query_id: activation::query_id(query).unwrap_or_else(|| "unknown".to_owned()),
    }
}

/// A runtime that does not respond in time counts as unreachable.
async fn in_time<T>(request: impl Future<Output = Answer<T>>) -> Answer<T> {
    tokio::time::timeout(STATE_TIMEOUT, request)
        .await
        .unwrap_or_else(|_| {
            Err(BoxesError {
                code: ErrorCode::Timeout,
                message: format!("it did not answer within {} s", STATE_TIMEOUT.as_secs()),
                hint: None,
                reached: false,
            })
        })
}
