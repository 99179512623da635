//! The agent's side of boxes: one object that every door (HTTP, MCP, a program of one's own) asks.
//!
//! Comes in: a tool's name with its arguments and its conversation. Goes out: a result, or why not.
//! Never here: what one tool does; that is in `tools`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{
    AgentErrorRecord, AgentGuidance, AgentQuery, AgentState, AgentStatus, ErrorCode, SessionId,
    SessionInfo, ToolAnswer, ToolCall, ToolList,
};
use jiff::Timestamp;

use crate::activation::{self, Activations};
use crate::boxes::{Answer, Boxes, BoxesError};
use crate::config::AgentSettings;
use crate::error::ToolError;
use crate::guidance::guidance;
use crate::progress::Progress;
use crate::ring::ErrorRing;
use crate::state::{self, Look};
use crate::{schemas, skills, template, tools};

/// The longest that a question about the runtime itself may take.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

/// Boxes for the conversations of one platform. Cheap to clone.
#[derive(Clone)]
pub struct Agent {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// `None` where the settings say off.
    pub(crate) boxes: Option<Arc<dyn Boxes>>,
    pub(crate) settings: AgentSettings,
    pub(crate) activations: Activations,
    pub(crate) kept: crate::kept_output::Numbers,
    pub(crate) holding: crate::collected::Holding,
    errors: ErrorRing,
}

impl Agent {
    /// Settings that say `enabled = false` make it refuse everything, whatever boxes there are.
    pub fn new(boxes: Arc<dyn Boxes>, settings: AgentSettings) -> Self {
        let boxes = settings.enabled.then_some(boxes);
        Self::with(boxes, settings)
    }

    /// An agent that is off: it has no boxes and refuses everything the same way.
    pub fn disabled(settings: AgentSettings) -> Self {
        let settings = AgentSettings {
            enabled: false,
            ..settings
        };
        Self::with(None, settings)
    }

    fn with(boxes: Option<Arc<dyn Boxes>>, settings: AgentSettings) -> Self {
        Self {
            inner: Arc::new(Inner {
                boxes,
                settings,
                activations: Activations::default(),
                kept: crate::kept_output::Numbers::default(),
                holding: crate::collected::Holding::default(),
                errors: ErrorRing::default(),
            }),
        }
    }

    pub fn settings(&self) -> &AgentSettings {
        &self.inner.settings
    }

    /// `None` where the agent is off.
    pub fn boxes(&self) -> Option<&Arc<dyn Boxes>> {
        self.inner.boxes.as_ref()
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
        let tools = schemas::tools_for(self.inner.settings.tool_timeout_sec);
        ToolList {
            openai: tools.iter().map(schemas::openai).collect(),
            tools,
            unavailable: None,
        }
    }

    /// Calls a tool. Dropping the future kills what runs in the box for it.
    pub async fn call(
        &self,
        name: &str,
        call: ToolCall,
        progress: &dyn Progress,
    ) -> Result<ToolAnswer, ToolError> {
        let outcome = tools::call(self, name, &call, progress).await;
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
        let look = self.look().await;
        let state = look.state();
        let (connector_error, fix) = match look.trouble {
            Some(trouble) => (trouble.reason, Some(trouble.fix)),
            None => (String::new(), None),
        };
        AgentStatus {
            available: state == AgentState::Ready,
            enabled: self.inner.settings.enabled,
            state,
            profile: self.inner.settings.profile.clone(),
            recent_error_count: self.inner.errors.len() as u64,
            connector_error,
            fix,
            shares_filesystem: self
                .inner
                .boxes
                .as_ref()
                .is_some_and(|boxes| boxes.shares_filesystem()),
            forced_template: self
                .inner
                .settings
                .forced_template
                .as_ref()
                .map(ToString::to_string),
            runtime: look.runtime,
        }
    }

    /// None when they cannot be asked for.
    pub async fn sessions(&self) -> Vec<SessionInfo> {
        let Some(boxes) = &self.inner.boxes else {
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
        let boxes = match &self.inner.boxes {
            Some(boxes) if self.look().await.trouble.is_none() => boxes,
            _ => {
                return AgentGuidance {
                    text: String::new(),
                    skills: BTreeMap::new(),
                };
            }
        };
        let visible = match in_time(boxes.skills()).await {
            Ok(all) => skills::visible(all, query),
            Err(error) => {
                tracing::warn!(%error, "guidance goes without skills, which cannot be listed");
                Vec::new()
            }
        };
        guidance(&self.inner.settings, &visible)
    }

    /// The box that a conversation gets.
    pub fn session_id(&self, query: &AgentQuery) -> Result<SessionId, ToolError> {
        self.scope(query).map(|scope| scope.session_id)
    }

    pub(crate) fn scope(&self, query: &AgentQuery) -> Result<template::Scope, ToolError> {
        template::scope(self.inner.settings.forced_template.as_ref(), query)
            .map_err(|error| ToolError::rule(error.to_string()))
    }

    /// Looks at what there is now. Nothing is remembered: the answer is never older than the question.
    pub(crate) async fn look(&self) -> Look {
        let Some(boxes) = &self.inner.boxes else {
            return Look {
                trouble: Some(state::disabled()),
                runtime: None,
            };
        };
        let asked = async { Ok((boxes.status().await?, boxes.backends().await?)) };
        match in_time(asked).await {
            Ok((status, backends)) => Look {
                trouble: state::backend_trouble(&self.inner.settings, &status, &backends),
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
    pub(crate) async fn refusal(&self, error: BoxesError) -> ToolError {
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

    /// That the runtime is off or away is told to everybody already; it would drive out the rest.
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
