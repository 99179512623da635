//! The 0.4 wire format: 24 actions, no placement.

mod skill_zips;
mod skills;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::transport::Request;
use crate::{ActionError, LangBot, WireFormat, models, params, results, session_calls};

pub(crate) async fn run(langbot: &Arc<LangBot>, request: Request) -> Result<Value, ActionError> {
    let Request { action, data, .. } = request;
    Ok(match action.as_str() {
        "__ping" => json!({}),
        "__file_chunk" => {
            langbot.uploads.add_chunk(&data)?;
            json!({})
        }
        "box_init" => {
            langbot.configure(data).await?;
            json!({"initialized": true})
        }
        "box_health" | "box_get_backend_info" => json!(langbot.backend()),
        "box_status" => status(langbot),
        "box_exec" => session_calls::exec(langbot, spec(&data)?).await?,
        "box_create_session" => {
            let info = session_calls::create(langbot, spec(&data)?).await?;
            results::session(&info)
        }
        "box_get_session" => {
            let id = params::session_id(&data)?;
            results::detail(&langbot.sessions.detail(&id)?)
        }
        "box_get_sessions" => {
            let sessions = langbot.sessions.list();
            json!({"sessions": sessions.iter().map(results::session).collect::<Vec<_>>()})
        }
        "box_delete_session" => {
            let id = params::session_id(&data)?;
            session_calls::delete(langbot, &id).await?;
            json!({"deleted": id})
        }
        "box_start_managed_process" => start_process(langbot, &data).await?,
        "box_get_managed_process" => {
            let id = params::session_id(&data)?;
            let process = params::process_id(&data, &langbot.sessions, &id)?;
            results::process(&langbot.sessions.process(&id, &process)?)
        }
        "box_stop_managed_process" => {
            let id = params::session_id(&data)?;
            let process = params::process_id(&data, &langbot.sessions, &id)?;
            session_calls::stop_process(langbot, &id, &process).await?;
            json!({"stopped": process})
        }
        "box_shutdown" => {
            shutdown(langbot).await;
            json!({})
        }
        _ => skills::answer(langbot, &action, data).await?,
    })
}

fn spec(data: &Map<String, Value>) -> Result<boxwood_api::SpecRequest, ActionError> {
    let valid = models::box_spec(data, WireFormat::V0_4).map_err(ActionError::validation)?;
    Ok(valid.request)
}

fn status(langbot: &LangBot) -> Value {
    let status = langbot.sessions.status();
    json!({
        "backend": langbot.backend(),
        "active_sessions": status.active_sessions,
        "managed_processes": status.managed_processes,
        "session_ttl_sec": status.session_ttl_sec,
    })
}

async fn start_process(langbot: &LangBot, data: &Map<String, Value>) -> Result<Value, ActionError> {
    let session_id = params::text(data, "session_id")?;
    let spec = params::required(data, "spec")?;
    let spec = models::process_spec(spec, WireFormat::V0_4).map_err(ActionError::validation)?;
    let id = params::known_session(session_id)?;
    session_calls::start_process(langbot, &id, spec.spec).await
}

/// Persistent sessions are kept. The daemon continues, because it may have other clients.
async fn shutdown(langbot: &LangBot) {
    let temporary = langbot
        .sessions
        .list()
        .into_iter()
        .filter(|session| !session.persistent)
        .map(|session| session.session_id);
    session_calls::delete_all(langbot, temporary, "LangBot shut down").await;
}
