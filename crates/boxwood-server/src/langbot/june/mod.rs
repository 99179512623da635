//! June's dialect: 24 actions, no tenancy.

mod skills;
mod zips;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::conversation::Request;
use super::pydantic;
use super::{Era, Fault, answers, calls, data};
use crate::http::App;

pub(super) async fn answer(app: &Arc<App>, request: Request) -> Result<Value, Fault> {
    let Request { action, data, .. } = request;
    Ok(match action.as_str() {
        "__ping" => json!({}),
        "__file_chunk" => {
            app.langbot.transfers.take_piece(&data)?;
            json!({})
        }
        "box_init" => {
            app.langbot.configure(data, app).await?;
            json!({"initialized": true})
        }
        "box_health" | "box_get_backend_info" => json!(app.langbot.backend(app)),
        "box_status" => status(app),
        "box_exec" => {
            let spec = spec(&data)?;
            let done = calls::exec(app, spec).await?;
            answers::exec(&done.result, done.timeout_sec).into()
        }
        "box_create_session" => {
            let info = calls::create(app, spec(&data)?).await?;
            answers::session(&info).into()
        }
        "box_get_session" => {
            let id = data::session_id(&data)?;
            answers::detail(&app.sessions.detail(&id)?).into()
        }
        "box_get_sessions" => {
            let sessions: Vec<_> = app.sessions.list().iter().map(answers::session).collect();
            json!({"sessions": sessions})
        }
        "box_delete_session" => {
            let id = data::session_id(&data)?;
            calls::delete(app, &id).await?;
            json!({"deleted": id})
        }
        "box_start_managed_process" => start_process(app, &data).await?,
        "box_get_managed_process" => {
            let id = data::session_id(&data)?;
            // The session first: whoever names a wrong one wants to know that.
            app.sessions.detail(&id)?;
            let process = data::process_id(&data, &id)?;
            answers::process(&app.sessions.process(&id, &process)?).into()
        }
        "box_stop_managed_process" => {
            let id = data::session_id(&data)?;
            app.sessions.detail(&id)?;
            let process = data::process_id(&data, &id)?;
            calls::stop_process(app, &id, &process).await?;
            json!({"stopped": process})
        }
        "box_shutdown" => {
            shutdown(app).await;
            json!({})
        }
        _ => match skills::answer(app, &action, data).await {
            Some(outcome) => outcome?,
            None => {
                return Err(Fault::new(
                    "ValueError",
                    format!("Action {action} not found"),
                ));
            }
        },
    })
}

fn spec(data: &Map<String, Value>) -> Result<boxwood_api::SpecRequest, Fault> {
    let given = pydantic::box_spec(data, Era::June).map_err(Fault::validation)?;
    Ok(given.request)
}

fn status(app: &App) -> Value {
    let mut status = app.sessions.status();
    status.backend = app.langbot.backend(app);
    answers::status(&status).into()
}

async fn start_process(app: &App, data: &Map<String, Value>) -> Result<Value, Fault> {
    let given = data::text(data, "session_id")?;
    let spec = data::required(data, "spec")?;
    let spec = pydantic::process_spec(spec, Era::June).map_err(Fault::validation)?;
    let id = data::known_session(given)?;
    let info = calls::start_process(app, &id, spec.spec).await?;
    Ok(answers::process(&info).into())
}

/// Persistent sessions stay, and so does the daemon: it may serve others.
async fn shutdown(app: &App) {
    let passing = app
        .sessions
        .list()
        .into_iter()
        .filter(|session| !session.persistent)
        .map(|session| session.session_id);
    calls::delete_all(app, passing, "LangBot shut down").await;
}
