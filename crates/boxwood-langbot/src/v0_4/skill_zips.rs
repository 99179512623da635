//! Archives of skills, uploaded in chunks before the action.

use std::sync::Arc;

use boxwood_skills::{ZipRequest, ZipSelection};
use serde_json::{Map, Value, json};

use super::skills::{skill, with_store};
use crate::{ActionError, LangBot, params};

pub(crate) async fn preview(
    langbot: &Arc<LangBot>,
    data: &Map<String, Value>,
) -> Result<Value, ActionError> {
    let archive = langbot.uploads.take(data)?;
    let request = request(data)?;
    let planned = with_store(langbot, move |store| store.preview_zip(&archive, &request)).await?;
    let skills = planned.into_iter().map(|planned| {
        let mut entry = skill(&planned.skill);
        entry["source_path"] = planned.source_path.into();
        entry
    });
    Ok(json!({"skills": skills.collect::<Vec<_>>()}))
}

pub(crate) async fn install(
    langbot: &Arc<LangBot>,
    data: &Map<String, Value>,
) -> Result<Value, ActionError> {
    let archive = langbot.uploads.take(data)?;
    let request = request(data)?;
    let selection = ZipSelection {
        source_paths: paths(data)?,
        source_path: params::text_or(data, "source_path", "")?.to_owned(),
    };
    let installed = with_store(langbot, move |store| {
        store.install_zip(&archive, &request, &selection)
    })
    .await?;
    Ok(json!({"skills": installed.iter().map(skill).collect::<Vec<_>>()}))
}

fn request(data: &Map<String, Value>) -> Result<ZipRequest, ActionError> {
    Ok(ZipRequest {
        filename: params::text_or(data, "filename", "skill.zip")?.to_owned(),
        source_subdir: params::text_or(data, "source_subdir", "")?.to_owned(),
        target_suffix: params::text_or(data, "target_suffix", "upload")?.to_owned(),
    })
}

fn paths(data: &Map<String, Value>) -> Result<Vec<String>, ActionError> {
    let wrong = || ActionError::validation("source_paths must be a list of text");
    match data.get("source_paths") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect(),
        Some(_) => Err(wrong()),
    }
}
