//! Actions of a client of SDK 0.7. What it shares with 0.4 is in `session_calls` and `results`.

use std::sync::Arc;

use boxwood_api::{ProcessId, ProcessStatus, SessionId, SessionInfo, SpecRequest};
use serde_json::{Map, Value, json};

use super::admission::policy::MANAGED_SESSION;
use super::admission::{self, managed_spec};
use super::capacity::Permit;
use super::files::artifacts;
use super::instance::Instance;
use super::placement::{Placement, Workspace};
use super::state::Settings;
use super::{control, storage_report};
use crate::error::{blocking, denied, permission, value_error};
use crate::transport::Request;
use crate::{ActionError, LangBot, WireFormat, models, params, results, session_calls};

/// Actions without a workspace.
const CONTROL: [&str; 9] = [
    "__ping",
    "__file_chunk",
    "box_health",
    "box_get_backend_info",
    "box_init",
    "box_upsert_sandbox_admission_grant",
    "box_revoke_sandbox_admission_grant",
    "box_verify_shared_workspace",
    "box_shutdown",
];

/// Actions of a workspace that need no grant.
const WITHOUT_GRANT: [&str; 3] = ["__stream_ack", "box_status", "box_get_storage_analysis"];

/// Actions of a workspace that need a grant if the policy requires grants.
const WITH_GRANT: [&str; 8] = [
    "box_exec",
    "box_create_session",
    "box_get_session",
    "box_get_sessions",
    "box_delete_session",
    "box_start_managed_process",
    "box_get_managed_process",
    "box_stop_managed_process",
];

pub(crate) async fn run(
    langbot: &Arc<LangBot>,
    instance: &Instance,
    request: Request,
) -> Result<Value, ActionError> {
    let Request {
        action,
        data,
        context,
    } = request;
    let context = context.as_ref().map(models::action_context).transpose();
    let context = context.map_err(|text| ActionError::new("ValidationError", text))?;
    let is_in = |actions: &[&str]| actions.contains(&action.as_str());
    let is_control = is_in(&CONTROL);
    if !is_control && !is_in(&WITHOUT_GRANT) && !is_in(&WITH_GRANT) {
        return Err(ActionError::unknown_action(&action));
    }
    if let Some(context) = &context
        && context.instance_uuid != instance.as_str()
    {
        return Err(permission(
            "Box action context does not match the trusted instance",
        ));
    }
    if is_control {
        return control::answer(langbot, instance, &action, data).await;
    }
    let Some(context) = context else {
        return Err(permission(
            "Box tenant action requires a trusted Workspace context",
        ));
    };
    let workspace = Workspace::new(&context.instance_uuid, &context.workspace_uuid);
    let placement = Placement::new(workspace, context.placement_generation);
    run_in_workspace(langbot, placement, &action, data).await
}

async fn run_in_workspace(
    langbot: &Arc<LangBot>,
    placement: Placement,
    action: &str,
    data: Map<String, Value>,
) -> Result<Value, ActionError> {
    let state = &langbot.v0_7;
    let settings = state.settings();
    if settings.policy.required && WITH_GRANT.contains(&action) {
        admission::require(langbot, &settings, placement).await?;
    }
    let current = state
        .generations
        .enter(placement, &langbot.sessions, settings.max_records())
        .await?;
    let tenant = Tenant {
        langbot,
        placement,
        settings,
    };
    // Boxed, because the future is as large as the largest action.
    let work = Box::pin(tenant.answer(action, data));
    let mut response = current.guard(&langbot.sessions, work).await?;
    tenant.show_logical(&mut response);
    Ok(response)
}

/// An action of a workspace.
struct Tenant<'a> {
    langbot: &'a Arc<LangBot>,
    placement: Placement,
    settings: Settings,
}

impl Tenant<'_> {
    async fn answer(&self, action: &str, data: Map<String, Value>) -> Result<Value, ActionError> {
        Ok(match action {
            "__stream_ack" => stream_ack(&data)?,
            "box_status" => self.status().await?,
            "box_get_storage_analysis" => {
                storage_report::analyse(self.langbot, self.settings.local.clone(), self.placement)
                    .await?
            }
            "box_exec" => self.exec(&data).await?,
            "box_create_session" => self.create(&data).await?,
            "box_get_session" => {
                let id = self.named_session(&data)?;
                self.with_status(results::detail(&self.langbot.sessions.detail(&id)?), &id)
            }
            "box_get_sessions" => json!({ "sessions": self.sessions() }),
            "box_delete_session" => {
                let id = self.named_session(&data)?;
                session_calls::delete(self.langbot, &id).await?;
                json!({ "deleted": data.get("session_id") })
            }
            "box_start_managed_process" => self.start_process(&data).await?,
            "box_get_managed_process" => {
                let (id, process) = self.named_process(&data)?;
                results::process(&self.langbot.sessions.process(&id, &process)?)
            }
            "box_stop_managed_process" => {
                let (id, process) = self.named_process(&data)?;
                session_calls::stop_process(self.langbot, &id, &process).await?;
                json!({ "stopped": process })
            }
            _ => return Err(ActionError::unknown_action(&action)),
        })
    }

    /// The physical id of a session. With a policy there is only one session.
    fn named_session(&self, data: &Map<String, Value>) -> Result<SessionId, ActionError> {
        let logical = params::text(data, "session_id")?;
        if self.settings.policy.required && logical.trim() != MANAGED_SESSION {
            return Err(denied("Managed sandbox session_id is runtime-owned"));
        }
        self.placement.physical(logical)
    }

    fn named_process(
        &self,
        data: &Map<String, Value>,
    ) -> Result<(SessionId, ProcessId), ActionError> {
        let id = self.named_session(data)?;
        let process = params::process_id(data, &self.langbot.sessions, &id)?;
        Ok((id, process))
    }

    fn sessions(&self) -> Vec<Value> {
        self.langbot
            .sessions
            .list()
            .iter()
            .filter(|info| self.placement.owns(&info.session_id))
            .map(|info| self.session_response(info))
            .collect()
    }

    fn session_response(&self, info: &SessionInfo) -> Value {
        self.with_status(results::session(info), &info.session_id)
    }

    fn with_status(&self, mut session: Value, id: &SessionId) -> Value {
        let is_busy = self.langbot.v0_7.is_busy(id);
        session["status"] = if is_busy { "running" } else { "idle" }.into();
        session
    }

    async fn status(&self) -> Result<Value, ActionError> {
        let langbot = self.langbot;
        let mut limit = self.settings.limits.max_sessions;
        if self.settings.policy.required {
            let grant = admission::require(langbot, &self.settings, self.placement).await?;
            limit = limit.min(grant.max_sessions);
        }
        let sessions = storage_report::sessions_of(langbot, self.placement);
        let running = sessions
            .iter()
            .flat_map(|session| session.managed_processes.values())
            .filter(|process| process.status == ProcessStatus::Running)
            .count();
        let used = sessions.len() as u64;
        let all_sessions = langbot.v0_7.capacity.sessions(&langbot.sessions);
        let free = self
            .settings
            .limits
            .max_sessions
            .saturating_sub(all_sessions);
        let remaining = limit.saturating_sub(used).min(free);
        Ok(json!({
            "backend": control::backend(langbot, &self.settings).await,
            "active_sessions": used,
            "managed_processes": running,
            "session_ttl_sec": langbot.sessions.status().session_ttl_sec,
            "limits": self.settings.limits,
            "capacity": { "limit": limit, "used": used, "remaining": remaining },
        }))
    }

    async fn exec(&self, data: &Map<String, Value>) -> Result<Value, ActionError> {
        let spec = models::box_spec(data, WireFormat::V0_7).map_err(ActionError::validation)?;
        // Checked before the session is created.
        if spec.request.cmd.trim().is_empty() {
            return Err(ActionError::validation("cmd must not be empty"));
        }
        let (id, request) = self.prepare(spec).await?;
        let _permit = self.reserve(&id)?;
        let _busy = self.langbot.v0_7.busy(&id);
        session_calls::exec(self.langbot, request).await
    }

    async fn create(&self, data: &Map<String, Value>) -> Result<Value, ActionError> {
        let spec = models::box_spec(data, WireFormat::V0_7).map_err(ActionError::validation)?;
        let (id, request) = self.prepare(spec).await?;
        let _permit = self.reserve(&id)?;
        let info = session_calls::create(self.langbot, request).await?;
        Ok(self.session_response(&info))
    }

    fn reserve(&self, id: &SessionId) -> Result<Permit<'_>, ActionError> {
        let limit = self.settings.limits.max_sessions;
        let capacity = &self.langbot.v0_7.capacity;
        capacity.reserve_session(&self.langbot.sessions, id, limit)
    }

    /// The request with its physical id, within the policy, and with verified packages.
    async fn prepare(
        &self,
        spec: models::ValidSpec,
    ) -> Result<(SessionId, SpecRequest), ActionError> {
        let (mut request, proofs) = (spec.request, spec.mount_proofs);
        let managed = self.settings.policy.required;
        if !managed {
            let logical = request.session_id.as_ref().map_or("", SessionId::as_str);
            let id = self
                .placement
                .physical(logical)
                .map_err(|error| ActionError::validation(error.message()))?;
            request.session_id = Some(id);
        }
        if !managed && proofs.iter().all(|proof| proof.manifest_path.is_none()) {
            return with_id(request);
        }
        let (placement, settings) = (self.placement, self.settings.clone());
        let langbot = Arc::clone(self.langbot);
        blocking("the directories could not be checked", move || {
            if managed {
                let (policy, local) = (&settings.policy, &settings.local);
                request = managed_spec::normalise(request, &proofs, placement, policy, local)?;
            }
            artifacts::verify_all(&request, &proofs, &langbot.sessions)?;
            with_id(request)
        })
        .await
    }

    async fn start_process(&self, data: &Map<String, Value>) -> Result<Value, ActionError> {
        let id = self.named_session(data)?;
        let spec = params::required(data, "spec")?;
        let spec = models::process_spec(spec, WireFormat::V0_7).map_err(ActionError::validation)?;
        if self.settings.policy.required {
            let grant = admission::require(self.langbot, &self.settings, self.placement).await?;
            if grant.max_managed_processes == 0 {
                return Err(denied(
                    "Sandbox admission grant does not permit managed processes",
                ));
            }
        }
        let memory_mb = self.langbot.sessions.detail(&id)?.session.memory_mb;
        if spec.memory_mb > memory_mb {
            // Processes share the memory of their box.
            tracing::debug!(session = %id, requested = spec.memory_mb, memory_mb, "a process requests more memory than its box has");
        }
        let limit = self.settings.limits.max_managed_processes;
        let (capacity, process) = (&self.langbot.v0_7.capacity, &spec.spec.process_id);
        let _permit = capacity.reserve_process(&self.langbot.sessions, &id, process, limit)?;
        session_calls::start_process(self.langbot, &id, spec.spec).await
    }

    /// Replaces physical ids in a response.
    fn show_logical(&self, response: &mut Value) {
        match response {
            Value::Array(items) => items.iter_mut().for_each(|item| self.show_logical(item)),
            Value::Object(map) => {
                for (key, value) in map {
                    match value {
                        Value::String(text) if key == "session_id" => {
                            *text = self.placement.logical(text).to_owned();
                        }
                        value => self.show_logical(value),
                    }
                }
            }
            _ => {}
        }
    }
}

fn with_id(request: SpecRequest) -> Result<(SessionId, SpecRequest), ActionError> {
    match &request.session_id {
        Some(id) => Ok((id.clone(), request)),
        None => Err(ActionError::validation("session_id must not be empty")),
    }
}

/// No action streams, so there is nothing to acknowledge.
fn stream_ack(data: &Map<String, Value>) -> Result<Value, ActionError> {
    let is_integer = |key: &str| data.get(key).is_some_and(|it| it.is_i64() || it.is_u64());
    if is_integer("seq_id") && is_integer("index") {
        Ok(json!({ "accepted": false }))
    } else {
        Err(value_error(
            "Stream acknowledgement requires integer sequence and index",
        ))
    }
}
