//! Archives of skills, sent in pieces beforehand.

use std::sync::Arc;

use boxwood_skills::{ZipRequest, ZipSelection};
use serde_json::{Map, Value, json};

use super::super::{Fault, data};
use super::skills::{skill, with_store};
use crate::http::App;

pub(super) async fn preview(app: &Arc<App>, data: &Map<String, Value>) -> Result<Value, Fault> {
    let archive = app.langbot.transfers.collect(data)?;
    let request = request(data)?;
    let planned = with_store(app, move |store| store.preview_zip(&archive, &request)).await?;
    let skills: Vec<Value> = planned
        .iter()
        .map(|planned| {
            let mut answer = skill(&planned.skill);
            answer["source_path"] = planned.source_path.clone().into();
            answer
        })
        .collect();
    Ok(json!({"skills": skills}))
}

pub(super) async fn install(app: &Arc<App>, data: &Map<String, Value>) -> Result<Value, Fault> {
    let archive = app.langbot.transfers.collect(data)?;
    let request = request(data)?;
    let selection = ZipSelection {
        source_paths: paths(data)?,
        source_path: data::text_or(data, "source_path", "")?.to_owned(),
    };
    let installed = with_store(app, move |store| {
        store.install_zip(&archive, &request, &selection)
    })
    .await?;
    Ok(json!({"skills": installed.iter().map(skill).collect::<Vec<_>>()}))
}

fn request(data: &Map<String, Value>) -> Result<ZipRequest, Fault> {
    Ok(ZipRequest {
        filename: data::text_or(data, "filename", "skill.zip")?.to_owned(),
        source_subdir: data::text_or(data, "source_subdir", "")?.to_owned(),
        target_suffix: data::text_or(data, "target_suffix", "upload")?.to_owned(),
    })
}

fn paths(data: &Map<String, Value>) -> Result<Vec<String>, Fault> {
    let wrong = || Fault::validation("source_paths must be a list of text");
    match data.get("source_paths") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect(),
        Some(_) => Err(wrong()),
    }
}
