//! Actions without a workspace.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::admission;
use super::files::volume_probe;
use super::instance::Instance;
use super::placement::{Workspace, is_workspace_session};
use super::state::Settings;
use crate::error::{blocking, not_ready, permission};
use crate::{ActionError, LangBot, models, results, session_calls};

pub(crate) async fn answer(
    langbot: &Arc<LangBot>,
    instance: &Instance,
    action: &str,
    data: Map<String, Value>,
) -> Result<Value, ActionError> {
    match action {
        "__ping" => Ok(json!({})),
        "__file_chunk" => {
            langbot.uploads.add_chunk(&data)?;
            Ok(json!({}))
        }
        "box_health" => health(langbot).await,
        "box_get_backend_info" => Ok(backend(langbot, &langbot.v0_7.settings()).await),
        "box_init" => init(langbot, data).await,
        "box_upsert_sandbox_admission_grant" => upsert(langbot, instance, &data).await,
        "box_revoke_sandbox_admission_grant" => revoke(langbot, instance, &data).await,
        "box_verify_shared_workspace" => verify(langbot, &data).await,
        "box_shutdown" => {
            shutdown(langbot).await;
            Ok(json!({}))
        }
        _ => Err(ActionError::unknown_action(&action)),
    }
}

async fn health(langbot: &Arc<LangBot>) -> Result<Value, ActionError> {
    let settings = langbot.v0_7.settings();
    if !settings.policy.required {
        return Ok(backend(langbot, &settings).await);
    }
    let report = langbot.v0_7.readiness.report(langbot, &settings).await;
    if report["ready"] == true {
        Ok(report)
    } else {
        Err(not_ready("managed sandbox isolation is not ready"))
    }
}

/// With a policy, the backend is available only if it is isolated as required.
pub(crate) async fn backend(langbot: &LangBot, settings: &Settings) -> Value {
    if !settings.policy.required {
        return json!(langbot.backend());
    }
    let report = langbot.v0_7.readiness.report(langbot, settings).await;
    json!({
        "name": report["backend"]["name"],
        "available": report["ready"],
        "readiness": report,
    })
}

async fn init(langbot: &Arc<LangBot>, data: Map<String, Value>) -> Result<Value, ActionError> {
    if data.get("backend").and_then(Value::as_str).map(str::trim) == Some("host") {
        return Err(ActionError::validation(
            "the host backend is not supported: commands run only in boxes",
        ));
    }
    let settings = {
        let mut section = langbot.config();
        let mut candidate = section.clone();
        candidate.merge(data);
        let settings = langbot.v0_7.configure(&candidate, langbot.root())?;
        *section = candidate;
        settings
    };
    langbot.probe_backend().await;
    make_workspace(langbot, settings).await?;
    Ok(json!({ "initialized": true }))
}

/// Creates the default workspace if it is missing and allowed.
pub(crate) async fn make_workspace(
    langbot: &LangBot,
    settings: Settings,
) -> Result<(), ActionError> {
    let rules = langbot.rules.clone();
    blocking("the default workspace could not be created", move || {
        settings.local.ensure_default_workspace(&rules)
    })
    .await
}

async fn upsert(
    langbot: &Arc<LangBot>,
    instance: &Instance,
    data: &Map<String, Value>,
) -> Result<Value, ActionError> {
    let grant = models::admission_grant(data).map_err(ActionError::validation)?;
    if grant.instance_uuid != instance.as_str() {
        return Err(permission(
            "Sandbox admission grant does not match the trusted instance",
        ));
    }
    let state = &langbot.v0_7;
    let settings = state.settings();
    let (placement, max_records) = (grant.placement(), settings.max_records());
    let now = Timestamp::now();
    let (grant, keep) = state
        .grants
        .install(grant, &settings.policy, max_records, now)?;
    admission::drop_sessions(langbot, placement.workspace, keep).await;
    state.generations.observe(placement, max_records)?;
    Ok(json!({
        "installed": true,
        "workspace_uuid": grant.workspace_uuid,
        "execution_generation": grant.execution_generation,
        "entitlement_revision": grant.entitlement_revision,
        "max_sessions": grant.max_sessions,
        "max_managed_processes": grant.max_managed_processes,
        "expires_at": results::isoformat(grant.expires_at),
    }))
}

async fn revoke(
    langbot: &Arc<LangBot>,
    instance: &Instance,
    data: &Map<String, Value>,
) -> Result<Value, ActionError> {
    let revocation = models::admission_revocation(data).map_err(ActionError::validation)?;
    if revocation.instance_uuid != instance.as_str() {
        return Err(permission(
            "Sandbox admission revocation does not match the trusted instance",
        ));
    }
    let state = &langbot.v0_7;
    let settings = state.settings();
    let workspace = Workspace::new(&revocation.instance_uuid, &revocation.workspace_uuid);
    state.grants.revoke(
        workspace,
        revocation.entitlement_revision,
        &settings.policy,
        settings.max_records(),
    )?;
    admission::drop_sessions(langbot, workspace, admission::grants::Keep::Nothing).await;
    Ok(json!({
        "revoked": true,
        "workspace_uuid": revocation.workspace_uuid,
        "entitlement_revision": revocation.entitlement_revision,
    }))
}

async fn verify(langbot: &Arc<LangBot>, data: &Map<String, Value>) -> Result<Value, ActionError> {
    let name = volume_probe::name(data.get("marker_name"))?.to_owned();
    let local = langbot.v0_7.settings().local;
    blocking("the shared workspace could not be checked", move || {
        volume_probe::verify(&local.managed_root()?, &name)
    })
    .await
}

/// Deletes all sessions of all workspaces. The daemon continues, because it may have other clients.
async fn shutdown(langbot: &LangBot) {
    let all = langbot
        .sessions
        .ids()
        .into_iter()
        .filter(is_workspace_session);
    session_calls::delete_all(langbot, all, "LangBot shut down").await;
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use boxwood_api::BackendInfo;
    use boxwood_policy::{Facts, PolicyRules};
    use boxwood_session::{Backends, Candidate, Choice, Sessions};
    use boxwood_skills::SkillStore;
    use boxwood_test_support::FakeBackend;

    use super::*;
    use crate::{Environment, Services, Setup};

    fn langbot(root: &Path) -> LangBot {
        let backends = ["one", "two"].map(|name| Candidate::initialised(FakeBackend::named(name)));
        let backends = Backends::new(backends, Choice::Auto);
        let setup = Setup::new(crate::Settings {
            environment: Environment::default(),
            root: root.to_owned(),
            may_choose_backend: true,
            may_move_skills: false,
            max_zip_bytes: 1024,
        });
        let services = Services {
            sessions: Sessions::new(backends, boxwood_session::Settings::default()),
            rules: PolicyRules::default(),
            skills: SkillStore::new(root.join("skills"), boxwood_skills::Limits::default()),
            start_timeout: Duration::from_mins(1),
            backend_timeout: Duration::from_mins(1),
            gather_facts: |_, _| Box::pin(async { Facts::default() }),
            record_exec: Box::new(|_| {}),
        };
        LangBot::new(setup.expect("valid settings"), services)
    }

    #[tokio::test]
    async fn init_probes_the_selected_backend() {
        let dir = tempfile::tempdir().expect("directory");
        let langbot = Arc::new(langbot(dir.path()));
        let data = json!({"backend": "two"});
        let data = data.as_object().expect("an object").clone();
        init(&langbot, data).await.expect("initialized");
        let expected = BackendInfo {
            name: Some("two".to_owned()),
            available: true,
        };
        assert_eq!(langbot.backend(), expected);
    }
}
