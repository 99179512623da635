//! The skill store in June's words.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use boxwood_policy::{Origin, check_place};
use boxwood_skills::{NewSkill, Skill, SkillError, SkillPatch, SkillStore, python_isoformat};
use serde_json::{Map, Value, json};

use super::super::state::real_path;
use super::super::{Fault, data};
use super::zips;
use crate::http::App;

/// `None` when it is no action about skills.
pub(super) async fn answer(
    app: &Arc<App>,
    action: &str,
    data: Map<String, Value>,
) -> Option<Result<Value, Fault>> {
    let outcome = match action {
        "box_list_skills" => list(app).await,
        "box_get_skill" => get(app, &data).await,
        // Whatever goes wrong with the others is the caller's to mend, and the clients are told so.
        "box_create_skill" => create(app, &data).await.map_err(as_validation),
        "box_update_skill" => update(app, &data).await.map_err(as_validation),
        "box_delete_skill" => delete(app, &data).await.map_err(as_validation),
        "box_scan_skill_directory" => scan(app, &data).await.map_err(as_validation),
        "box_list_skill_files" => list_files(app, &data).await.map_err(as_validation),
        "box_read_skill_file" => read_file(app, &data).await.map_err(as_validation),
        "box_write_skill_file" => write_file(app, &data).await.map_err(as_validation),
        "box_preview_skill_zip" => zips::preview(app, &data).await.map_err(as_validation),
        "box_install_skill_zip" => zips::install(app, &data).await.map_err(as_validation),
        _ => return None,
    };
    Some(outcome)
}

/// The text alone: the class of what was raised inside is not shown there.
fn as_validation(fault: Fault) -> Fault {
    Fault::validation(fault.into_message())
}

/// Runs off the event loop: the store reads and writes files.
pub(super) async fn with_store<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&SkillStore) -> Result<T, SkillError> + Send + 'static,
) -> Result<T, Fault> {
    let store = app.skills.clone();
    match tokio::task::spawn_blocking(move || work(&store)).await {
        Ok(outcome) => outcome.map_err(Fault::from),
        Err(error) => {
            tracing::error!(%error, "the skill store failed");
            Err(Fault::new("BoxError", "the skill store failed"))
        }
    }
}

async fn list(app: &App) -> Result<Value, Fault> {
    let skills = with_store(app, SkillStore::list).await?;
    Ok(json!({"skills": skills.iter().map(skill).collect::<Vec<_>>()}))
}

async fn get(app: &App, data: &Map<String, Value>) -> Result<Value, Fault> {
    let name = data::text(data, "name")?.to_owned();
    let found = with_store(app, move |store| store.get(&name)).await?;
    Ok(json!({"skill": found.as_ref().map(skill)}))
}

async fn create(app: &App, data: &Map<String, Value>) -> Result<Value, Fault> {
    let fields = object(data, "skill")?;
    let new = NewSkill {
        name: loose_text(fields, "name").unwrap_or_default(),
        display_name: loose_text(fields, "display_name"),
        description: loose_text(fields, "description"),
        instructions: loose_text(fields, "instructions"),
        package_root: loose_text(fields, "package_root")
            .filter(|path| !path.trim().is_empty())
            .map(PathBuf::from),
    };
    if let Some(package) = &new.package_root {
        check_source(app, package).await?;
    }
    let made = with_store(app, move |store| store.create(&new)).await?;
    Ok(json!({"skill": skill(&made)}))
}

async fn update(app: &App, data: &Map<String, Value>) -> Result<Value, Fault> {
    let name = data::text(data, "name")?.to_owned();
    let fields = object(data, "skill")?;
    let patch = SkillPatch {
        name: loose_text(fields, "name"),
        display_name: replaced(fields, "display_name"),
        description: replaced(fields, "description"),
        instructions: replaced(fields, "instructions"),
        package_root: loose_text(fields, "package_root")
            .filter(|path| !path.trim().is_empty())
            .map(PathBuf::from),
    };
    let updated = with_store(app, move |store| store.update(&name, &patch)).await?;
    Ok(json!({"skill": skill(&updated)}))
}

async fn delete(app: &App, data: &Map<String, Value>) -> Result<Value, Fault> {
    let name = data::text(data, "name")?.to_owned();
    let deleted = name.clone();
    with_store(app, move |store| store.delete(&name)).await?;
    Ok(json!({"deleted": deleted}))
}

async fn scan(app: &App, data: &Map<String, Value>) -> Result<Value, Fault> {
    let path = PathBuf::from(data::text(data, "path")?);
    check_source(app, &path).await?;
    let found = with_store(app, move |store| store.scan(&path)).await?;
    Ok(skill(&found))
}

/// What may not be mounted may not be copied into the store either, and mounted from there.
async fn check_source(app: &App, path: &Path) -> Result<(), Fault> {
    let given = path.display().to_string();
    let wanted = path.to_owned();
    let real = tokio::task::spawn_blocking(move || real_path(&wanted))
        .await
        .unwrap_or_else(|_| path.to_owned());
    // What is in the store already was judged when it came.
    if real.starts_with(app.skills.root()) {
        return Ok(());
    }
    check_place("path", &given, &real, Origin::LangBotPlatform, &app.rules)?;
    Ok(())
}

async fn list_files(app: &App, data: &Map<String, Value>) -> Result<Value, Fault> {
    let name = data::text(data, "name")?.to_owned();
    let path = data::text_or(data, "path", ".")?.to_owned();
    let include_hidden = data.get("include_hidden").is_some_and(is_true);
    let max_entries = count(data, "max_entries", 200)?;
    let listing = with_store(app, move |store| {
        store.list_files(&name, &path, include_hidden, max_entries)
    })
    .await?;
    let entries: Vec<Value> = listing
        .entries
        .iter()
        .map(|item| {
            json!({"path": item.path, "name": item.name, "is_dir": item.is_dir, "size": item.size})
        })
        .collect();
    Ok(json!({
        "skill": {"name": listing.skill},
        "base_path": listing.base_path,
        "entries": entries,
        "truncated": listing.truncated,
    }))
}

async fn read_file(app: &App, data: &Map<String, Value>) -> Result<Value, Fault> {
    let name = data::text(data, "name")?.to_owned();
    let path = data::text(data, "path")?.to_owned();
    let file = with_store(app, move |store| store.read_text(&name, &path)).await?;
    Ok(json!({"skill": {"name": file.skill}, "path": file.path, "content": file.content}))
}

async fn write_file(app: &App, data: &Map<String, Value>) -> Result<Value, Fault> {
    let name = data::text(data, "name")?.to_owned();
    let path = data::text(data, "path")?.to_owned();
    let content = data::text_or(data, "content", "")?.to_owned();
    let file = with_store(app, move |store| {
        store.write(&name, &path, content.as_bytes())
    })
    .await?;
    Ok(json!({
        "skill": {"name": file.skill}, "path": file.path, "bytes_written": file.bytes_written,
    }))
}

pub(super) fn skill(skill: &Skill) -> Value {
    json!({
        "name": skill.name,
        "display_name": skill.display_name,
        "description": skill.description,
        "instructions": skill.instructions,
        // Not every path is text, and one that is not must not take all others with it.
        "package_root": skill.package_root.to_string_lossy(),
        "entry_file": skill.entry_file,
        "created_at": python_isoformat(skill.created_at),
        "updated_at": python_isoformat(skill.updated_at),
    })
}

fn object<'a>(data: &'a Map<String, Value>, key: &str) -> Result<&'a Map<String, Value>, Fault> {
    data::required(data, key)?
        .as_object()
        .ok_or_else(|| Fault::validation(format!("{key} must be an object")))
}

/// Text, or anything else in Python's place of it: what is no text was turned into text there.
fn loose_text(fields: &Map<String, Value>, key: &str) -> Option<String> {
    match fields.get(key)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// What stands under the key is the new text; null stands for none, and an absent key for the old one.
fn replaced(fields: &Map<String, Value>, key: &str) -> Option<String> {
    fields
        .contains_key(key)
        .then(|| loose_text(fields, key).unwrap_or_default())
}

/// Python's idea of a true value.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(given) => *given,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

fn count(data: &Map<String, Value>, key: &str, otherwise: usize) -> Result<usize, Fault> {
    let wrong = || Fault::validation(format!("{key} must be a whole number"));
    match data.get(key) {
        None => Ok(otherwise),
        Some(Value::Number(number)) => match number.as_i64() {
            Some(number) => Ok(usize::try_from(number).unwrap_or(0)),
            None => number
                .as_f64()
                .filter(|number| number.is_finite() && *number >= 0.0)
                .map(|_| usize::MAX)
                .ok_or_else(wrong),
        },
        Some(Value::String(text)) => text.trim().parse().map_err(|_| wrong()),
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    /// A box that may write to a package can make directories of any name there.
    #[test]
    fn a_package_whose_path_is_no_text_is_told_too() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let name = std::ffi::OsString::from_vec(b"\xffbad".to_vec());
        let package = dir.path().join(name);
        std::fs::create_dir(&package).expect("directory");
        std::fs::write(package.join("SKILL.md"), "hi").expect("entry file");
        let limits = boxwood_skills::Limits::default();
        let store = SkillStore::new(dir.path().to_owned(), limits);
        let found = store.list().expect("listed");
        let told = skill(&found[0]);
        let path = told["package_root"].as_str().expect("text");
        assert!(path.ends_with("\u{fffd}bad"), "{path}");
    }
}
