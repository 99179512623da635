//! One connection of today's client: its actions.
//!
//! Comes in: a request of a platform that was let in. Goes out: its answer. Never here: anything that
//! the two eras have in common; that is in `calls` and `answers`.

use std::sync::Arc;

use boxwood_api::{ProcessId, ProcessStatus, SessionId, SpecRequest};
use serde_json::{Map, Value, json};

use super::admission;
use super::artifacts::Artifact;
use super::instance::Instance;
use super::policy::MANAGED_SESSION;
use super::state::Settings;
use super::tenancy::Placement;
use super::words::{self, Context};
use super::{control, grants, managed, storage};
use crate::http::App;
use crate::langbot::conversation::Request;
use crate::langbot::{Era, Fault, answers, calls, data, pydantic};

pub(crate) struct Caller {
    instance: Instance,
}

/// What works without a workspace.
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

/// What works for a workspace alone.
const TENANTS: [&str; 11] = [
    "__stream_ack",
    "box_status",
    "box_get_storage_analysis",
    "box_exec",
    "box_create_session",
    "box_get_session",
    "box_get_sessions",
    "box_delete_session",
    "box_start_managed_process",
    "box_get_managed_process",
    "box_stop_managed_process",
];

/// What needs a grant where grants are needed.
fn needs_grant(action: &str) -> bool {
    !matches!(
        action,
        "__stream_ack" | "box_status" | "box_get_storage_analysis"
    )
}

impl Caller {
    pub(super) fn new(instance: Instance) -> Self {
        Self { instance }
    }

    pub(in crate::langbot) async fn answer(
        &self,
        app: &Arc<App>,
        request: Request,
    ) -> Result<Value, Fault> {
        let Request {
            action,
            data,
            context,
        } = request;
        let context = context.as_ref().map(Context::read).transpose()?;
        let is_control = CONTROL.contains(&action.as_str());
        if !is_control && !TENANTS.contains(&action.as_str()) {
            return Err(Fault::new(
                "ValueError",
                format!("Action {action} not found"),
            ));
        }
        if let Some(context) = &context
            && context.instance != self.instance.as_str()
        {
            return Err(permission(
                "Box action context does not match the trusted instance",
            ));
        }
        if is_control {
            return control::answer(app, &self.instance, &action, data).await;
        }
        let Some(Context { placement, .. }) = context else {
            return Err(permission(
                "Box tenant action requires a trusted Workspace context",
            ));
        };
        tenants_action(app, placement, &action, data).await
    }
}

pub(super) fn permission(text: &str) -> Fault {
    Fault::new("PermissionError", text)
}

async fn tenants_action(
    app: &Arc<App>,
    placement: Placement,
    action: &str,
    data: Map<String, Value>,
) -> Result<Value, Fault> {
    let state = &app.langbot.today;
    let settings = state.settings();
    if settings.policy.required && needs_grant(action) {
        admission::require(app, &settings, placement).await?;
    }
    let standing = state
        .fence
        .enter(placement, &app.sessions, settings.max_records())
        .await?;
    let tenant = Tenant {
        app,
        placement,
        settings,
    };
    // Every action there is, and so as large as the largest of them.
    let work = Box::pin(tenant.answer(action, data));
    let mut answer = standing.guard(&app.sessions, work).await?;
    tenant.show_logical(&mut answer);
    Ok(answer)
}

/// A workspace whose turn it is.
struct Tenant<'a> {
    app: &'a Arc<App>,
    placement: Placement,
    settings: Settings,
}

impl Tenant<'_> {
    async fn answer(&self, action: &str, data: Map<String, Value>) -> Result<Value, Fault> {
        Ok(match action {
            "__stream_ack" => stream_ack(&data)?,
            "box_status" => self.status().await?,
            "box_get_storage_analysis" => {
                storage::analyse(self.app, self.settings.local.clone(), self.placement).await?
            }
            "box_exec" => self.exec(&data).await?,
            "box_create_session" => self.create(&data).await?,
            "box_get_session" => {
                let id = self.named_session(&data)?;
                let mut answer = answers::detail(&self.app.sessions.detail(&id)?);
                answer.insert("status".to_owned(), self.word(&id).into());
                answer.into()
            }
            "box_get_sessions" => json!({ "sessions": self.sessions() }),
            "box_delete_session" => {
                let id = self.named_session(&data)?;
                calls::delete(self.app, &id).await?;
                json!({ "deleted": data.get("session_id") })
            }
            "box_start_managed_process" => self.start_process(&data).await?,
            "box_get_managed_process" => {
                let (id, process) = self.named_process(&data)?;
                answers::process(&self.app.sessions.process(&id, &process)?).into()
            }
            "box_stop_managed_process" => {
                let (id, process) = self.named_process(&data)?;
                calls::stop_process(self.app, &id, &process).await?;
                json!({ "stopped": process })
            }
            _ => {
                return Err(Fault::new(
                    "ValueError",
                    format!("Action {action} not found"),
                ));
            }
        })
    }

    /// The id inside of a session as the platform's users know it. Under a policy there is only one.
    fn session(&self, logical: &str) -> Result<SessionId, Fault> {
        if self.settings.policy.required && logical.trim() != MANAGED_SESSION {
            return Err(grants::denied(
                "Managed sandbox session_id is runtime-owned",
            ));
        }
        self.placement.physical(logical)
    }

    fn named_session(&self, data: &Map<String, Value>) -> Result<SessionId, Fault> {
        self.session(&words::id_text(data::required(data, "session_id")?))
    }

    fn named_process(&self, data: &Map<String, Value>) -> Result<(SessionId, ProcessId), Fault> {
        let id = self.named_session(data)?;
        // The session first: whoever names a wrong one wants to know that.
        self.app.sessions.detail(&id)?;
        let process = data::process_id(data, &id)?;
        Ok((id, process))
    }

    fn sessions(&self) -> Vec<Value> {
        self.app
            .sessions
            .list()
            .iter()
            .filter(|info| self.placement.owns(&info.session_id))
            .map(|info| self.shown(info))
            .collect()
    }

    fn shown(&self, info: &boxwood_api::SessionInfo) -> Value {
        let mut answer = answers::session(info);
        answer.insert("status".to_owned(), self.word(&info.session_id).into());
        answer.into()
    }

    fn word(&self, id: &SessionId) -> &'static str {
        if self.app.langbot.today.is_busy(id) {
            "running"
        } else {
            "idle"
        }
    }

    async fn status(&self) -> Result<Value, Fault> {
        let app = self.app;
        let mut limit = self.settings.limits.max_sessions;
        if self.settings.policy.required {
            let grant = admission::require(app, &self.settings, self.placement).await?;
            limit = limit.min(grant.max_sessions);
        }
        let sessions = storage::sessions_of(app, self.placement);
        let running = sessions
            .iter()
            .flat_map(|session| session.managed_processes.values())
            .filter(|process| process.status == ProcessStatus::Running)
            .count();
        let used = sessions.len() as u64;
        let everybody = app.langbot.today.seats.sessions(&app.sessions);
        let remaining = limit
            .saturating_sub(used)
            .min(self.settings.limits.max_sessions.saturating_sub(everybody));
        let mut status = answers::status(&app.sessions.status());
        status.insert(
            "backend".to_owned(),
            control::backend(app, &self.settings).await,
        );
        status.insert("active_sessions".to_owned(), used.into());
        status.insert("managed_processes".to_owned(), running.into());
        status.insert("limits".to_owned(), self.settings.limits.shown());
        status.insert(
            "capacity".to_owned(),
            json!({ "limit": limit, "used": used, "remaining": remaining }),
        );
        Ok(status.into())
    }

    async fn exec(&self, data: &Map<String, Value>) -> Result<Value, Fault> {
        let wish = pydantic::box_spec(data, Era::Today).map_err(Fault::validation)?;
        // Before anything is made: a session for no command would only be in the way.
        if wish.request.cmd.trim().is_empty() {
            return Err(Fault::validation("cmd must not be empty"));
        }
        let (id, request) = self.settled(wish).await?;
        let state = &self.app.langbot.today;
        let limit = self.settings.limits.max_sessions;
        let seat = state.seats.for_session(&self.app.sessions, &id, limit)?;
        let busy = state.busy(&id);
        let done = calls::exec(self.app, request).await;
        drop((busy, seat));
        let done = done?;
        Ok(answers::exec(&done.result, done.timeout_sec).into())
    }

    async fn create(&self, data: &Map<String, Value>) -> Result<Value, Fault> {
        let wish = pydantic::box_spec(data, Era::Today).map_err(Fault::validation)?;
        let (id, request) = self.settled(wish).await?;
        let state = &self.app.langbot.today;
        let limit = self.settings.limits.max_sessions;
        let _seat = state.seats.for_session(&self.app.sessions, &id, limit)?;
        let info = calls::create(self.app, request).await?;
        Ok(self.shown(&info))
    }

    /// The wish as it will be judged: with the id inside, within the policy, its packages looked at.
    async fn settled(&self, wish: pydantic::GivenSpec) -> Result<(SessionId, SpecRequest), Fault> {
        let artifacts: Vec<Artifact> = Artifact::of(&wish);
        let mut request = wish.request;
        let managed = self.settings.policy.required;
        if !managed {
            let logical = request.session_id.as_ref().map_or("", SessionId::as_str);
            let id = self
                .placement
                .physical(logical)
                .map_err(|fault| Fault::validation(fault.message()))?;
            request.session_id = Some(id);
        }
        if !managed && artifacts.is_empty() {
            return with_id(request);
        }
        let (placement, settings) = (self.placement, self.settings.clone());
        let app = Arc::clone(self.app);
        let looking = tokio::task::spawn_blocking(move || {
            if managed {
                let (policy, local) = (&settings.policy, &settings.local);
                request = managed::normalise(request, &artifacts, placement, policy, local)?;
            }
            for artifact in &artifacts {
                artifact.verify_unless_mounted(&request, &app.sessions)?;
            }
            with_id(request)
        });
        looking.await.unwrap_or_else(|error| {
            tracing::error!(%error, "looking at a request's directories failed");
            Err(Fault::new(
                "BoxError",
                "the directories could not be looked at",
            ))
        })
    }

    async fn start_process(&self, data: &Map<String, Value>) -> Result<Value, Fault> {
        let id = self.named_session(data)?;
        let spec = data::required(data, "spec")?;
        let spec = pydantic::process_spec(spec, Era::Today).map_err(Fault::validation)?;
        if self.settings.policy.required {
            let grant = admission::require(self.app, &self.settings, self.placement).await?;
            if grant.max_managed_processes == 0 {
                return Err(grants::denied(
                    "Sandbox admission grant does not permit managed processes",
                ));
            }
        }
        let memory_mb = self.app.sessions.detail(&id)?.session.memory_mb;
        if spec.memory_mb > memory_mb {
            // Processes of a box share its memory; one cannot have more of it than there is.
            tracing::debug!(session = %id, asked = spec.memory_mb, memory_mb, "a process gets its box's memory");
        }
        let state = &self.app.langbot.today;
        let limit = self.settings.limits.max_managed_processes;
        let process = &spec.spec.process_id;
        let _seat = state
            .seats
            .for_process(&self.app.sessions, &id, process, limit)?;
        let info = calls::start_process(self.app, &id, spec.spec).await?;
        Ok(answers::process(&info).into())
    }

    /// Hides the ids inside, wherever they stand in an answer.
    fn show_logical(&self, answer: &mut Value) {
        match answer {
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

fn with_id(request: SpecRequest) -> Result<(SessionId, SpecRequest), Fault> {
    match &request.session_id {
        Some(id) => Ok((id.clone(), request)),
        None => Err(Fault::validation("session_id must not be empty")),
    }
}

/// No action of a box streams, so there is never anything to acknowledge.
fn stream_ack(data: &Map<String, Value>) -> Result<Value, Fault> {
    let whole = |key: &str| data.get(key).is_some_and(|it| it.is_i64() || it.is_u64());
    if whole("seq_id") && whole("index") {
        Ok(json!({ "accepted": false }))
    } else {
        Err(Fault::new(
            "ValueError",
            "Stream acknowledgement requires integer sequence and index",
        ))
    }
}
