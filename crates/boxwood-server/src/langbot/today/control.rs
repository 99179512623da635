//! The actions of the platform itself, which are about no workspace or about any.

use std::sync::Arc;

use boxwood_policy::{Origin, check_place};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::caller::permission;
use super::instance::Instance;
use super::local::not_ready;
use super::state::Settings;
use super::tenancy::is_tenants;
use super::{admission, marker, words};
use crate::http::App;
use crate::langbot::{Fault, calls};

pub(super) async fn answer(
    app: &Arc<App>,
    instance: &Instance,
    action: &str,
    data: Map<String, Value>,
) -> Result<Value, Fault> {
    match action {
        "__ping" => Ok(json!({})),
        "__file_chunk" => {
            app.langbot.transfers.take_piece(&data)?;
            Ok(json!({}))
        }
        "box_health" => health(app).await,
        "box_get_backend_info" => Ok(backend(app, &app.langbot.today.settings()).await),
        "box_init" => init(app, data).await,
        "box_upsert_sandbox_admission_grant" => upsert(app, instance, &data).await,
        "box_revoke_sandbox_admission_grant" => revoke(app, instance, &data).await,
        "box_verify_shared_workspace" => verify(app, &data).await,
        "box_shutdown" => {
            shutdown(app).await;
            Ok(json!({}))
        }
        _ => Err(Fault::new(
            "ValueError",
            format!("Action {action} not found"),
        )),
    }
}

async fn health(app: &Arc<App>) -> Result<Value, Fault> {
    let settings = app.langbot.today.settings();
    if !settings.policy.required {
        return Ok(backend(app, &settings).await);
    }
    let report = app.langbot.today.readiness.look(app, &settings).await;
    if report["ready"] == true {
        Ok(report)
    } else {
        Err(not_ready("managed sandbox isolation is not ready"))
    }
}

/// Under a policy a backend is only as available as it is closed.
pub(super) async fn backend(app: &App, settings: &Settings) -> Value {
    if !settings.policy.required {
        return json!(app.langbot.backend(app));
    }
    let report = app.langbot.today.readiness.look(app, settings).await;
    json!({
        "name": report["backend"]["name"],
        "available": report["ready"],
        "readiness": report,
    })
}

async fn init(app: &Arc<App>, data: Map<String, Value>) -> Result<Value, Fault> {
    if data.get("backend").and_then(Value::as_str).map(str::trim) == Some("host") {
        return Err(Fault::validation(
            "host backend is not offered: commands run in a box or not at all",
        ));
    }
    let settings = {
        let mut section = app.langbot.section();
        let mut candidate = section.clone();
        candidate.merge(data);
        let settings = app
            .langbot
            .today
            .configure(&candidate, app.langbot.root())?;
        *section = candidate;
        settings
    };
    make_workspace(app, settings).await?;
    Ok(json!({ "initialized": true }))
}

/// The default workspace, when it is missing and may be made.
pub(super) async fn make_workspace(app: &App, settings: Settings) -> Result<(), Fault> {
    let rules = app.rules.clone();
    let making = tokio::task::spawn_blocking(move || {
        settings.local.ensure_default_workspace(|given, real| {
            let given = given.display().to_string();
            check_place(
                "box.local.default_workspace",
                &given,
                real,
                Origin::LangBotPlatform,
                &rules,
            )
        })
    });
    making.await.unwrap_or_else(|error| {
        tracing::error!(%error, "making the default workspace failed");
        Err(Fault::new(
            "BoxError",
            "the default workspace could not be made",
        ))
    })
}

async fn upsert(
    app: &Arc<App>,
    instance: &Instance,
    data: &Map<String, Value>,
) -> Result<Value, Fault> {
    let (named, grant) = words::grant(data)?;
    if named != instance.as_str() {
        return Err(permission(
            "Sandbox admission grant does not match the trusted instance",
        ));
    }
    let state = &app.langbot.today;
    let settings = state.settings();
    let (placement, most) = (grant.placement, settings.max_records());
    let now = Timestamp::now();
    let installed = state.grants.install(grant, &settings.policy, most, now)?;
    admission::drop_sessions(app, placement.workspace(), installed.keep).await;
    state.fence.observe(placement, most)?;
    let grant = installed.grant;
    Ok(json!({
        "installed": true,
        "workspace_uuid": grant.workspace_uuid,
        "execution_generation": grant.placement.generation(),
        "entitlement_revision": grant.revision,
        "max_sessions": grant.max_sessions,
        "max_managed_processes": grant.max_managed_processes,
        "expires_at": words::isoformat(grant.expires_at),
    }))
}

async fn revoke(
    app: &Arc<App>,
    instance: &Instance,
    data: &Map<String, Value>,
) -> Result<Value, Fault> {
    let revocation = words::revocation(data)?;
    if revocation.instance != instance.as_str() {
        return Err(permission(
            "Sandbox admission revocation does not match the trusted instance",
        ));
    }
    let state = &app.langbot.today;
    let settings = state.settings();
    let workspace = revocation.workspace;
    state.grants.revoke(
        workspace,
        revocation.revision,
        &settings.policy,
        settings.max_records(),
    )?;
    admission::drop_sessions(app, workspace, super::grants::Keep::Nothing).await;
    Ok(json!({
        "revoked": true,
        "workspace_uuid": revocation.workspace_uuid,
        "entitlement_revision": revocation.revision,
    }))
}

async fn verify(app: &Arc<App>, data: &Map<String, Value>) -> Result<Value, Fault> {
    let name = marker::name(data.get("marker_name"))?.to_owned();
    let local = app.langbot.today.settings().local;
    let reading =
        tokio::task::spawn_blocking(move || marker::verify(&local.managed_root()?, &name));
    reading
        .await
        .unwrap_or_else(|_| Err(not_ready("the shared workspace could not be looked at")))
}

/// Every session of every workspace, persistent or not. The daemon stays: it may serve others.
async fn shutdown(app: &App) {
    let all = app.sessions.ids().into_iter().filter(is_tenants);
    calls::delete_all(app, all, "LangBot shut down").await;
}
