//! The context of a tool call.

use std::time::Duration;

use boxwood_api::{AgentQuery, ErrorCode, SessionId, SpecRequest, ToolAnswer};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{MAX_CALL_DURATION, is_about_the_operation, not_done, object};
use crate::agent::Agent;
use crate::boxes::{Answer, Boxes, BoxesError};
use crate::error::ToolError;
use crate::paths::{self, PathError, SkillAccess, ToolPath};
use crate::progress::Progress;
use crate::skills::Skills;
use crate::state;
use crate::template::Scope;

pub(super) struct CallContext<'a> {
    pub(super) agent: &'a Agent,
    pub(super) boxes: &'a dyn Boxes,
    pub(super) query: &'a AgentQuery,
    pub(super) session: SessionId,
    pub(super) skills: Skills,
    pub(super) progress: &'a dyn Progress,
    /// The box must exist by then.
    start_by: Instant,
    /// Notices about the box, for the model.
    notices: Vec<String>,
    mounted: Vec<String>,
}

impl<'a> CallContext<'a> {
    pub(super) async fn prepare(
        agent: &'a Agent,
        boxes: &'a dyn Boxes,
        query: &'a AgentQuery,
        scope: Scope,
        progress: &'a dyn Progress,
    ) -> Result<Self, ToolError> {
        let start_by = Instant::now() + max_start_duration(agent);
        let session = scope.session_id;
        let mut notices = Vec::new();
        if let Some(problem) = scope.problem {
            let problem = ToolError::rule(format!(
                "the pipeline's session-id template was not used: {problem}"
            ));
            if agent.record_once(query, &problem) {
                tracing::warn!(%session, %problem, "a pipeline's session-id template is invalid; using the one with the narrowest scope");
            }
            notices.push(problem.message);
        }
        let listed = tokio::time::timeout_at(start_by, boxes.skills()).await;
        let all = match listed.map_err(|_| ToolError::late(max_start_duration(agent)))? {
            Ok(all) => all,
            Err(error) if stops_everything(&error) => return Err(agent.refusal(error).await),
            // Most calls need no skills.
            Err(error) => {
                tracing::warn!(%error, "failed to list the skills; the call runs without them");
                notices.push(format!("skills are not available: {error}"));
                Vec::new()
            }
        };
        let activated = agent.inner.activations.of(&session, query);
        let skills = Skills::new(all, query, activated);
        let mounted = skills.mounted();
        notices.extend(mounted.notice());
        Ok(Self {
            agent,
            boxes,
            query,
            session,
            skills,
            progress,
            start_by,
            notices,
            mounted: mounted.names,
        })
    }

    /// Limits the preparation of a command to the timeout for starting a box.
    pub(super) async fn before_start<T>(
        &self,
        begins: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        tokio::time::timeout_at(self.start_by, begins)
            .await
            .unwrap_or_else(|_| Err(ToolError::late(max_start_duration(self.agent))))
    }

    /// The spec of the conversation's box, without a command. An agent cannot choose images, mounts, limits, the network or
    /// another session. The runtime validates it.
    pub(super) fn spec(&self) -> SpecRequest {
        let settings = self.agent.settings();
        let workspace = settings.default_workspace.as_ref();
        SpecRequest {
            session_id: Some(self.session.clone()),
            profile: Some(settings.profile.clone()),
            image: settings.image.clone(),
            host_path: workspace.map(|path| path.to_string_lossy().into_owned()),
            workspace_quota_mb: settings.workspace_quota_mb,
            backend: state::requested_backend(settings).map(str::to_owned),
            skills: self.mounted.clone(),
            ..SpecRequest::default()
        }
    }

    pub(super) fn notices(&self) -> Vec<String> {
        self.notices.clone()
    }

    /// Creates the box if there is none, and mounts the skills of the conversation.
    pub(super) async fn open(&self) -> Result<(), ToolError> {
        match self.boxes.get_or_create(self.spec()).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.agent.refusal(error).await),
        }
    }

    pub(super) fn target(&self, path: &str, access: SkillAccess) -> Result<ToolPath, ToolError> {
        let target = match access {
            SkillAccess::Read => paths::resolve_readable(path)?,
            SkillAccess::Use => paths::resolve(path)?,
        };
        if let ToolPath::Skill { name, .. } = &target {
            self.check_skill(name, access)?;
        }
        Ok(target)
    }

    pub(super) fn check_skill(&self, name: &str, access: SkillAccess) -> Result<(), ToolError> {
        paths::check_skill(name, access, &self.skills.activated, &self.skills.visible)?;
        Ok(())
    }

    /// The result of an operation in the box: the fields of the answer, or the failure.
    pub(super) async fn result(
        &self,
        answer: Answer<impl Serialize>,
    ) -> Result<Map<String, Value>, ToolError> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.failure(error).await,
        };
        let mut result = object([("ok", true.into())]);
        if let Ok(Value::Object(fields)) = serde_json::to_value(answer) {
            result.extend(fields);
        }
        Ok(result)
    }

    /// A failure in the box is a result; a failure before it is an error.
    pub(super) async fn failure(&self, error: BoxesError) -> Result<Map<String, Value>, ToolError> {
        if error.reached && is_about_the_operation(error.code) {
            Ok(not_done(error.message))
        } else {
            Err(self.agent.refusal(error).await)
        }
    }

    pub(super) fn answer(&self, result: Map<String, Value>) -> ToolAnswer {
        ToolAnswer {
            result,
            session_id: Some(self.session.to_string()),
        }
    }
}

fn max_start_duration(agent: &Agent) -> Duration {
    Duration::from_secs(agent.settings().start_timeout_sec).min(MAX_CALL_DURATION)
}

/// Returns true if every other request would fail too.
fn stops_everything(error: &BoxesError) -> bool {
    !error.reached
        || matches!(
            error.code,
            ErrorCode::BackendUnavailable | ErrorCode::Unauthorized
        )
}

impl From<PathError> for ToolError {
    fn from(error: PathError) -> Self {
        Self::rule(error.to_string())
    }
}
