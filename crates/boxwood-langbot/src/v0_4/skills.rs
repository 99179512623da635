//! Actions of the skill store in the 0.4 wire format.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use boxwood_policy::{Origin, check_place};
use boxwood_skills::{
    NewSkill, Skill, SkillError, SkillPatch, SkillStore, python_isoformat, real_path,
};
use serde_json::{Map, Value, json};

use super::skill_zips;
use crate::error::blocking;
use crate::{ActionError, LangBot, params};

/// Fails if it is not an action of the skill store.
pub(crate) async fn answer(
    langbot: &Arc<LangBot>,
    action: &str,
    data: Map<String, Value>,
) -> Result<Value, ActionError> {
    let outcome = match action {
        "box_list_skills" => return list(langbot).await,
        "box_get_skill" => return get(langbot, &data).await,
        "box_create_skill" => create(langbot, &data).await,
        "box_update_skill" => update(langbot, &data).await,
        "box_delete_skill" => delete(langbot, &data).await,
        "box_scan_skill_directory" => scan(langbot, &data).await,
        "box_list_skill_files" => list_files(langbot, &data).await,
        "box_read_skill_file" => read_file(langbot, &data).await,
        "box_write_skill_file" => write_file(langbot, &data).await,
        "box_preview_skill_zip" => skill_zips::preview(langbot, &data).await,
        "box_install_skill_zip" => skill_zips::install(langbot, &data).await,
        _ => return Err(ActionError::unknown_action(&action)),
    };
    // Clients expect a validation error for every failure of these actions.
    outcome.map_err(|error| ActionError::validation(error.message()))
}

/// Runs on a blocking thread: the store reads and writes files.
pub(crate) async fn with_store<T: Send + 'static>(
    langbot: &LangBot,
    work: impl FnOnce(&SkillStore) -> Result<T, SkillError> + Send + 'static,
) -> Result<T, ActionError> {
    let store = langbot.skills.clone();
    blocking("the skill store failed", move || Ok(work(&store)?)).await
}

async fn list(langbot: &LangBot) -> Result<Value, ActionError> {
    let skills = with_store(langbot, SkillStore::list).await?;
    Ok(json!({"skills": skills.iter().map(skill).collect::<Vec<_>>()}))
}

async fn get(langbot: &LangBot, data: &Map<String, Value>) -> Result<Value, ActionError> {
    let name = params::text(data, "name")?.to_owned();
    let found = with_store(langbot, move |store| store.get(&name)).await?;
    Ok(json!({"skill": found.as_ref().map(skill)}))
}

async fn create(langbot: &LangBot, data: &Map<String, Value>) -> Result<Value, ActionError> {
    let fields = object(data, "skill")?;
    let new = NewSkill {
        name: loose_text(fields, "name").unwrap_or_default(),
        display_name: loose_text(fields, "display_name"),
        description: loose_text(fields, "description"),
        instructions: loose_text(fields, "instructions"),
        package_root: package_root(fields),
    };
    if let Some(package) = &new.package_root {
        check_source(langbot, package).await?;
    }
    let created = with_store(langbot, move |store| store.create(&new)).await?;
    Ok(json!({"skill": skill(&created)}))
}

async fn update(langbot: &LangBot, data: &Map<String, Value>) -> Result<Value, ActionError> {
    let name = params::text(data, "name")?.to_owned();
    let fields = object(data, "skill")?;
    let patch = SkillPatch {
        name: loose_text(fields, "name"),
        display_name: replaced(fields, "display_name"),
        description: replaced(fields, "description"),
        instructions: replaced(fields, "instructions"),
        package_root: package_root(fields),
    };
    let updated = with_store(langbot, move |store| store.update(&name, &patch)).await?;
    Ok(json!({"skill": skill(&updated)}))
}

async fn delete(langbot: &LangBot, data: &Map<String, Value>) -> Result<Value, ActionError> {
    let name = params::text(data, "name")?.to_owned();
    let deleted = name.clone();
    with_store(langbot, move |store| store.delete(&name)).await?;
    Ok(json!({"deleted": deleted}))
}

async fn scan(langbot: &LangBot, data: &Map<String, Value>) -> Result<Value, ActionError> {
    let path = PathBuf::from(params::text(data, "path")?);
    check_source(langbot, &path).await?;
    let found = with_store(langbot, move |store| store.scan(&path)).await?;
    Ok(skill(&found))
}

/// A directory that may not be mounted may not be imported either.
async fn check_source(langbot: &LangBot, path: &Path) -> Result<(), ActionError> {
    let path_text = path.display().to_string();
    let requested_path = path.to_owned();
    let real = blocking("the path could not be resolved", move || {
        Ok(real_path(&requested_path))
    })
    .await?;
    // Directories of the store were checked when they were imported.
    if real.starts_with(langbot.skills.root()) {
        return Ok(());
    }
    let rules = &langbot.rules;
    Ok(check_place(
        "path",
        &path_text,
        &real,
        Origin::LangBotPlatform,
        rules,
    )?)
}

async fn list_files(langbot: &LangBot, data: &Map<String, Value>) -> Result<Value, ActionError> {
    let name = params::text(data, "name")?.to_owned();
    let path = params::text_or(data, "path", ".")?.to_owned();
    let include_hidden = match data.get("include_hidden") {
        None => false,
        Some(value) => value
            .as_bool()
            .ok_or_else(|| ActionError::validation("include_hidden must be true or false"))?,
    };
    let max_entries = match data.get("max_entries") {
        None => 200,
        Some(value) => value
            .as_i64()
            .ok_or_else(|| ActionError::validation("max_entries must be a whole number"))?,
    };
    let max_entries = usize::try_from(max_entries).unwrap_or(0);
    let listing = with_store(langbot, move |store| {
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

async fn read_file(langbot: &LangBot, data: &Map<String, Value>) -> Result<Value, ActionError> {
    let name = params::text(data, "name")?.to_owned();
    let path = params::text(data, "path")?.to_owned();
    let file = with_store(langbot, move |store| store.read_text(&name, &path)).await?;
    Ok(json!({"skill": {"name": file.skill}, "path": file.path, "content": file.content}))
}

async fn write_file(langbot: &LangBot, data: &Map<String, Value>) -> Result<Value, ActionError> {
    let name = params::text(data, "name")?.to_owned();
    let path = params::text(data, "path")?.to_owned();
    let content = params::text_or(data, "content", "")?.to_owned();
    let file = with_store(langbot, move |store| {
        store.write(&name, &path, content.as_bytes())
    })
    .await?;
    Ok(json!({
        "skill": {"name": file.skill}, "path": file.path, "bytes_written": file.bytes_written,
    }))
}

pub(crate) fn skill(skill: &Skill) -> Value {
    json!({
        "name": skill.name,
        "display_name": skill.display_name,
        "description": skill.description,
        "instructions": skill.instructions,
        // A path that is not UTF-8 must not fail the whole list.
        "package_root": skill.package_root.to_string_lossy(),
        "entry_file": skill.entry_file,
        "created_at": python_isoformat(skill.created_at),
        "updated_at": python_isoformat(skill.updated_at),
    })
}

fn object<'a>(
    data: &'a Map<String, Value>,
    key: &str,
) -> Result<&'a Map<String, Value>, ActionError> {
    params::required(data, key)?
        .as_object()
        .ok_or_else(|| ActionError::validation(format!("{key} must be an object")))
}

/// Converts values that are not strings to strings, as LangBot Box does.
fn loose_text(fields: &Map<String, Value>, key: &str) -> Option<String> {
    match fields.get(key)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn package_root(fields: &Map<String, Value>) -> Option<PathBuf> {
    let path = loose_text(fields, "package_root")?;
    (!path.trim().is_empty()).then(|| PathBuf::from(path))
}

/// The new value: null removes it, an absent key keeps the old one.
fn replaced(fields: &Map<String, Value>, key: &str) -> Option<String> {
    fields
        .contains_key(key)
        .then(|| loose_text(fields, key).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    /// A box with write access to a package can create directories with any name.
    #[test]
    fn a_package_whose_path_is_not_utf8_is_listed() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let name = std::ffi::OsString::from_vec(b"\xffbad".to_vec());
        let package = dir.path().join(name);
        std::fs::create_dir(&package).expect("directory");
        std::fs::write(package.join("SKILL.md"), "hi").expect("entry file");
        let limits = boxwood_skills::Limits::default();
        let store = SkillStore::new(dir.path().to_owned(), limits);
        let found = store.list().expect("listed");
        let listed = skill(&found[0]);
        let path = listed["package_root"].as_str().expect("text");
        assert!(path.ends_with("\u{fffd}bad"), "{path}");
    }
}
