//! The entry point for tool calls, used by HTTP, MCP and embedding programs. The tools are in `tools`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{
    AgentErrorRecord, AgentGuidance, AgentQuery, AgentState, AgentStatus, ErrorCode, SessionId,
    SessionInfo, ToolAnswer, ToolCall, ToolInfo, ToolList, Unavailable,
};
use jiff::Timestamp;

use crate::activation::{self, Activations};
use crate::boxes::{Answer, Boxes, BoxesError};
use crate::config::AgentSettings;
use crate::error::ToolError;
use crate::error_ring::ErrorRing;
use crate::guidance::guidance;
use crate::progress::Progress;
use crate::remote::Remote;
use crate::state::{self, Look};
use crate::templates::Templates;
use crate::{operator, schemas, skills, template, tools};

/// The longest that a question about the runtime itself may take.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

/// Boxes for the conversations of one platform. Cheap to clone.
#[derive(Clone)]
pub struct Agent {
    pub(crate) inner: Arc<Inner>,
    settings: Arc<AgentSettings>,
}

pub(crate) struct Inner {
    boxes: Option<Arc<dyn Boxes>>,
    /// Whose operator has the last word.
    daemon: Option<Remote>,
    pub(crate) activations: Activations,
    pub(crate) templates: Templates,
    pub(crate) kept: crate::saved_output::Numbers,
    pub(crate) holding: crate::output_capture::CaptureBudget,
    /// Held by the one that edits a file of the store.
    pub(crate) skill_edits: tokio::sync::Mutex<()>,
    errors: ErrorRing,
}

impl Agent {
    /// Settings that say `enabled = false` make it refuse everything, whatever boxes there are.
    pub fn new(boxes: Arc<dyn Boxes>, settings: AgentSettings) -> Self {
        Self::with(Some(boxes), None, settings)
    }

    /// On the boxes of a daemon that has an agent of its own. What the daemon's operator says of that one
    /// holds here too, as it is when a call begins; until the daemon has said it, every tool refuses.
    pub fn beside(daemon: Remote, settings: AgentSettings) -> Self {
        Self::with(Some(Arc::new(daemon.clone())), Some(daemon), settings)
    }

    /// An agent that is off: it has no boxes and refuses everything the same way.
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
                templates: Templates::default(),
                kept: crate::saved_output::Numbers::default(),
                holding: crate::output_capture::CaptureBudget::default(),
                skill_edits: tokio::sync::Mutex::default(),
                errors: ErrorRing::default(),
            }),
            settings: Arc::new(settings),
        }
    }

    /// The error of a disabled agent.
    pub fn off() -> ToolError {
        state::disabled().into()
    }

    /// The same agent as its operator wants it now.
    pub async fn now(&self) -> Result<Self, ToolError> {
        self.ruled().await.map_err(ToolError::from)
    }

    async fn ruled(&self) -> Result<Self, Unavailable> {
        let Some(daemon) = self.inner.daemon.as_ref().filter(|_| self.settings.enabled) else {
            return Ok(self.clone());
        };
        let said = in_time(daemon.agent_status()).await;
        let said = said.map_err(|error| state::no_answer(&error))?;
        Ok(Self {
            settings: Arc::new(operator::ruled(&self.settings, said)?),
            inner: Arc::clone(&self.inner),
        })
    }

    pub fn settings(&self) -> &AgentSettings {
        &self.settings
    }

    /// `None` where the agent is off.
    pub fn boxes(&self) -> Option<&Arc<dyn Boxes>> {
        let boxes = self.inner.boxes.as_ref();
        boxes.filter(|_| self.settings.enabled)
    }

    /// The tools that can be used now: all, or none and the reason.
    pub async fn tools(&self) -> ToolList {
        if let Some(unavailable) = self.look().await.trouble {
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

    /// All tools as they are described, also while they cannot be used.
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
        let outcome = match self.now().await {
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
        let look = self.look().await;
        let state = look.state();
        let (connector_error, fix) = match look.trouble {
            Some(trouble) => (trouble.reason, Some(trouble.fix)),
            None => (String::new(), None),
        };
        AgentStatus {
            available: state == AgentState::Ready,
            enabled: settings.enabled,
            state,
            profile: settings.profile.clone(),
            backend: state::wanted_backend(settings).map(str::to_owned),
            image: settings.image.clone(),
            workspace_quota_mb: settings.workspace_quota_mb,
            endpoint: settings.endpoint.clone(),
            recent_error_count: self.inner.errors.len() as u64,
            connector_error,
            fix,
            shares_filesystem: self.boxes().is_some_and(|boxes| boxes.shares_filesystem()),
            forced_template: settings.forced_template.as_ref().map(ToString::to_string),
            runtime: look.runtime,
        }
    }

    /// None when they cannot be asked for.
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

    /// What the model should know about its box. Nothing where it has none.
    pub async fn guidance(&self, query: &AgentQuery) -> AgentGuidance {
        let nothing = || AgentGuidance {
            text: String::new(),
            skills: BTreeMap::new(),
        };
        let Ok(agent) = self.ruled().await else {
            return nothing();
        };
        let boxes = match agent.boxes() {
            Some(boxes) if agent.look_now().await.trouble.is_none() => boxes,
            _ => return nothing(),
        };
        let visible = match in_time(boxes.skills()).await {
            Ok(all) => skills::visible(all, query),
            Err(error) => {
                tracing::warn!(%error, "guidance goes without skills, which cannot be listed");
                Vec::new()
            }
        };
        guidance(agent.settings(), &visible)
    }

    /// The box that a conversation gets.
    pub fn session_id(&self, query: &AgentQuery) -> Result<SessionId, ToolError> {
        self.scope(query).map(|scope| scope.session_id)
    }

    pub(crate) fn scope(&self, query: &AgentQuery) -> Result<template::Scope, ToolError> {
        let forced = self.settings.forced_template.as_ref();
        template::scope_of(forced, query, &self.inner.templates)
            .map_err(|error| ToolError::rule(error.to_string()))
    }

    /// Reads the current state without a cache. The diagnosis of the backends is requested only if there is a problem: it can
    /// take a while, and an unused backend may hang.
    pub(crate) async fn look(&self) -> Look {
        match self.ruled().await {
            Ok(agent) => agent.look_now().await,
            Err(trouble) => Look {
                trouble: Some(trouble),
                runtime: None,
            },
        }
    }

    /// The same for one that is as its operator wants it already.
    pub(crate) async fn look_now(&self) -> Look {
        let Some(boxes) = self.boxes() else {
            return Look {
                trouble: Some(state::disabled()),
                runtime: None,
            };
        };
        let settings = &self.settings;
        let asked = async {
            let status = boxes.status().await?;
            let trouble = if state::has_its_backend(settings, &status) {
                None
            } else {
                state::backend_trouble(settings, &status, &boxes.backends().await?)
            };
            Ok((status, trouble))
        };
        match in_time(asked).await {
            Ok((status, trouble)) => Look {
                trouble,
                runtime: Some(status),
            },
            Err(error) => Look {
                trouble: Some(state::no_answer(&error)),
                runtime: None,
            },
        }
    }

    /// What a runtime's failure means for the caller: the runtime is away, its backend is unusable, or
    /// this one thing did not work.
    pub async fn refusal(&self, error: BoxesError) -> ToolError {
        if !error.reached {
            return state::no_answer(&error).into();
        }
        if error.code != ErrorCode::BackendUnavailable {
            return error.into();
        }
        match self.look().await.trouble {
            Some(trouble) => trouble.into(),
            None => ToolError {
                state: Some(AgentState::BackendUnusable),
                ..error.into()
            },
        }
    }

    /// A disabled or unavailable runtime is reported elsewhere and would displace the other errors.
    pub(crate) fn record(&self, query: &AgentQuery, error: &ToolError) {
        if matches!(
            error.state,
            Some(AgentState::Disabled | AgentState::Unavailable)
        ) {
            return;
        }
        self.inner.errors.push(AgentErrorRecord {
            timestamp: Timestamp::now(),
            kind: error.code,
            message: error.message.clone(),
            query_id: activation::query_id(query).unwrap_or_else(|| "unknown".to_owned()),
        });
    }
}

/// A runtime that does not answer is as good as one that cannot be reached.
async fn in_time<T>(asked: impl Future<Output = Answer<T>>) -> Answer<T> {
    tokio::time::timeout(LONGEST_LOOK, asked)
        .await
        .unwrap_or_else(|_| {
            Err(BoxesError {
                code: ErrorCode::Timeout,
                message: format!("it did not answer within {} s", LONGEST_LOOK.as_secs()),
                hint: None,
                reached: false,
            })
        })
}
