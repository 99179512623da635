//! Skills in zip archives, in and out.
//!
//! Comes in: an archive and which of its skills are meant. Goes out: a plan, the skills that are now
//! in the store, or an archive. Never here: unpacking; the store trusts no archive, this route none
//! of its callers' names.
#![expect(
    unused_qualifications,
    reason = "the expansion of `utoipa::path` qualifies the parameter types"
)]

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use boxwood_api::{ErrorBody, PlannedSkill as Planned, SkillIntake};
use boxwood_skills::{
    NewSkill, PlannedSkill, Skill, SkillError, SkillStore, ZipRequest, ZipSelection,
};
use utoipa::IntoParams;

use super::App;
use super::error::{ApiError, ApiResult};
use super::ids::Params;
use super::json;
use super::skill_body::receive;
use super::skill_error::refusal;
use super::skill_files::attachment;
use super::skills::{InSkill, blocking, in_store, info, warnings};

/// Skills of one archive that are taken at a time. The archive is inflated for each of them.
const MAX_SELECTED: usize = 64;

/// What is wanted of an archive.
#[derive(Debug, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct InstallParams {
    /// What the archive is called. A skill at its top has no directory of its own: it gets one named
    /// after this, and so its name, when it says none itself. `skill.zip` when left out.
    filename: Option<String>,
    /// Where in the archive to look.
    source_subdir: Option<String>,
    /// A skill to take, by its directory in the archive; repeat it for several. May be left out where
    /// there is one.
    #[param(required = false)]
    source_path: Vec<String>,
    /// Put behind the name of the directory, after a hyphen.
    target_suffix: Option<String>,
    /// The name the skill gets, instead of the one it says it has. For one skill.
    name: Option<String>,
    /// Say what is in the archive and install nothing.
    #[param(required = false)]
    preview: bool,
}

impl InstallParams {
    /// By hand: one key may be repeated and the others may not.
    fn read(pairs: Vec<(String, String)>) -> ApiResult<Self> {
        let mut params = Self::default();
        let mut preview = None;
        for (key, value) in pairs {
            let once = match key.as_str() {
                "source_path" if params.source_path.len() < MAX_SELECTED => {
                    params.source_path.push(value);
                    continue;
                }
                "source_path" => {
                    return Err(ApiError::validation(format!(
                        "at most {MAX_SELECTED} skills can be installed at a time"
                    )));
                }
                "filename" => &mut params.filename,
                "source_subdir" => &mut params.source_subdir,
                "target_suffix" => &mut params.target_suffix,
                "name" => &mut params.name,
                "preview" => &mut preview,
                other => {
                    return Err(ApiError::validation(format!(
                        "the query is wrong: unknown field `{other}`"
                    )));
                }
            };
            if once.replace(value).is_some() {
                return Err(ApiError::validation(format!(
                    "the query is wrong: duplicate field `{key}`"
                )));
            }
        }
        params.preview = match preview.as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => {
                return Err(ApiError::validation(
                    "the query is wrong: preview must be `true` or `false`",
                ));
            }
        };
        Ok(params)
    }

    fn request(&self) -> ZipRequest {
        ZipRequest {
            filename: self
                .filename
                .clone()
                .unwrap_or_else(|| ZipRequest::default().filename),
            source_subdir: self.source_subdir.clone().unwrap_or_default(),
            target_suffix: self.target_suffix.clone().unwrap_or_default(),
        }
    }
}

#[utoipa::path(post, path = "/v1/skills/install", tag = "skills", operation_id = "install_skills",
    params(InstallParams),
    request_body(content = Vec<u8>, content_type = "application/zip"),
    responses(
        (status = 200, description = "With `preview=true`: what the archive holds", body = SkillIntake),
        (status = 201, description = "What is now in the store", body = SkillIntake),
        (status = 400, body = ErrorBody, description = "Not an archive that can be taken, or the selection does not fit it"),
        (status = 409, body = ErrorBody, description = "The name or the directory is taken"),
        (status = 413, body = ErrorBody, description = "Too large, packed or unpacked")))]
pub(super) async fn install(
    State(app): State<Arc<App>>,
    Params(pairs): Params<Vec<(String, String)>>,
    headers: HeaderMap,
    request: Request,
) -> ApiResult<Response> {
    let params = InstallParams::read(pairs)?;
    is_zip(&headers)?;
    let _place = app.skill_door.place().await?;
    let limit = app.skills.limits().max_zip_bytes;
    let bytes = receive(request, limit, app.body_timeout()).await?;
    if params.preview {
        let planned = in_store(&app, move |store| {
            let found = store.preview_zip(&bytes, &params.request())?;
            Ok(found.iter().map(|skill| plan(store, skill)).collect())
        })
        .await?;
        return Ok(json::ok(&SkillIntake {
            planned,
            installed: Vec::new(),
        }));
    }
    let door = Arc::clone(&app.skill_door);
    let installed = blocking(&app, move |store| {
        // Looking for taken names and installing are one step among those who come this way.
        let _turn = door.turn();
        let skills = take(store, &bytes, &params).map_err(|error| refusal(&error))?;
        Ok(skills.iter().map(|skill| info(store, skill)).collect())
    })
    .await?;
    Ok(json::created(&SkillIntake {
        planned: Vec::new(),
        installed,
    }))
}

/// Installs what is meant, or nothing. Each skill gets a directory of its own, named after the one it
/// had in the archive.
///
/// The store lets two packages share a name, because the seed does; a caller of this route would
/// only ever reach one of them.
fn take(
    store: &SkillStore,
    bytes: &[u8],
    params: &InstallParams,
) -> Result<Vec<Skill>, SkillError> {
    let planned = store.preview_zip(bytes, &params.request())?;
    let meant = params.meant(&planned)?;
    if let Some(name) = &params.name {
        if meant.len() != 1 {
            return Err(choose(&planned));
        }
        usable(name)?;
    }
    let mut names = BTreeSet::new();
    for found in &meant {
        let name = params.name.as_ref().unwrap_or(&found.skill.name);
        if !names.insert(name) || store.get(name)?.is_some() {
            return Err(SkillError::NameTaken { name: name.clone() });
        }
    }
    let mut installed: Vec<Skill> = Vec::new();
    for found in meant {
        match take_one(store, bytes, params, found) {
            Ok(skill) => installed.push(skill),
            Err(error) => {
                for skill in &installed {
                    // The first error is the one to tell.
                    if let Err(undo) = store.delete(&skill.name) {
                        tracing::warn!(skill = skill.name, error = %undo, "half an archive stays in the skill store");
                    }
                }
                return Err(error);
            }
        }
    }
    Ok(installed)
}

/// The one skill of an archive that was packed here, out of the directory `place` of a box.
pub(crate) fn install_package(
    store: &SkillStore,
    bytes: &[u8],
    name: Option<String>,
    place: &str,
) -> ApiResult<Skill> {
    let directory = place.trim_end_matches('/').rsplit('/').next();
    let directory = directory.unwrap_or_default();
    let params = InstallParams {
        filename: Some(format!("{directory}.zip")),
        name,
        ..InstallParams::default()
    };
    let mut taken = take(store, bytes, &params).map_err(|error| match error {
        SkillError::NoSkillBelow { .. } | SkillError::UploadEmpty => ApiError::validation(format!(
            "No SKILL.md found in {place} or its subdirectories (max depth: 2)"
        )),
        SkillError::ChooseSourcePaths { candidates } => ApiError::validation(format!(
            "Multiple skill directories found in {place}. Please choose a more specific path: {candidates}"
        )),
        other => refusal(&other),
    })?;
    taken
        .pop()
        .ok_or_else(|| ApiError::validation(format!("No SKILL.md found in {place}")))
}

fn take_one(
    store: &SkillStore,
    bytes: &[u8],
    params: &InstallParams,
    found: &PlannedSkill,
) -> Result<Skill, SkillError> {
    let mut request = params.request();
    let leaf = found.source_path.rsplit('/').next().unwrap_or_default();
    if let Some(name) = &params.name {
        request.filename = format!("{name}.zip");
    } else if !leaf.is_empty() {
        request.filename = format!("{leaf}.zip");
    }
    let selection = ZipSelection {
        source_paths: vec![found.source_path.clone()],
        ..ZipSelection::default()
    };
    let mut installed = store.install_zip(bytes, &request, &selection)?;
    let skill = installed.pop().ok_or_else(|| SkillError::NotFound {
        name: found.skill.name.clone(),
    })?;
    match &params.name {
        Some(name) if *name != skill.name => store.create(&NewSkill {
            name: name.clone(),
            // Taken over where it is.
            package_root: Some(skill.package_root),
            ..NewSkill::default()
        }),
        _ => Ok(skill),
    }
}

impl InstallParams {
    fn meant<'a>(&self, planned: &'a [PlannedSkill]) -> Result<Vec<&'a PlannedSkill>, SkillError> {
        if self.source_path.is_empty() {
            return match planned {
                [only] => Ok(vec![only]),
                _ => Err(choose(planned)),
            };
        }
        let mut meant: Vec<&PlannedSkill> = Vec::new();
        for path in &self.source_path {
            let path = path.trim().trim_matches('/');
            let found = planned.iter().find(|found| found.source_path == path);
            let found = found.ok_or_else(|| SkillError::InvalidSourcePath {
                path: path.to_owned(),
                available: paths(planned),
            })?;
            if !meant.iter().any(|other| other.source_path == path) {
                meant.push(found);
            }
        }
        Ok(meant)
    }
}

fn choose(planned: &[PlannedSkill]) -> SkillError {
    SkillError::ChooseSourcePaths {
        candidates: paths(planned),
    }
}

fn paths(planned: &[PlannedSkill]) -> String {
    let paths: Vec<&str> = planned
        .iter()
        .map(|found| found.source_path.as_str())
        .collect();
    paths.join(", ")
}

/// The store's own rule, asked before anything is unpacked: a name that is refused afterwards would
/// leave the package under its old one.
fn usable(name: &str) -> Result<(), SkillError> {
    let plain = |char: char| char.is_alphanumeric() || char == '-' || char == '_';
    match name.chars().count() {
        0 => Err(SkillError::NameRequired),
        1..=64 if name.chars().all(plain) && name.chars().any(char::is_alphanumeric) => Ok(()),
        1..=64 => Err(SkillError::NameCharacters),
        _ => Err(SkillError::NameTooLong),
    }
}

fn plan(store: &SkillStore, found: &PlannedSkill) -> Planned {
    Planned {
        name: found.skill.name.clone(),
        display_name: found.skill.display_name.clone(),
        description: found.skill.description.clone(),
        source_path: found.source_path.clone(),
        warnings: warnings(store, &found.skill.warnings),
    }
}

/// A page in a browser can send forms and plain text without asking anybody; archives it cannot.
fn is_zip(headers: &HeaderMap) -> ApiResult<()> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let essence = match (types.next(), types.next()) {
        (Some(only), None) => only.to_str().unwrap_or_default(),
        (None, _) => "",
        (Some(_), Some(_)) => {
            return Err(ApiError::validation("there are two Content-Type headers"));
        }
    };
    let essence = essence.split(';').next().unwrap_or_default().trim();
    let known = [
        "application/zip",
        "application/x-zip-compressed",
        "application/octet-stream",
    ];
    if known.iter().any(|name| essence.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    Err(
        ApiError::validation(format!("the body must be a zip archive, not `{essence}`"))
            .hint("send `Content-Type: application/zip`"),
    )
}

#[utoipa::path(get, path = "/v1/skills/{name}/export", tag = "skills", operation_id = "export_skill",
    params(("name" = String, Path,)),
    responses(
        (status = 200, description = "The package as an archive", content_type = "application/zip", body = Vec<u8>),
        (status = 404, body = ErrorBody, description = "No such skill"),
        (status = 413, body = ErrorBody, description = "Larger than the store allows")))]
pub(super) async fn export(
    State(app): State<Arc<App>>,
    InSkill(name): InSkill,
) -> ApiResult<Response> {
    let _place = app.skill_door.place().await?;
    let archive = in_store(&app, move |store| store.export_zip(&name)).await?;
    Ok(attachment(archive, "application/zip"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &[(&str, &str)]) -> ApiResult<InstallParams> {
        let pairs = query
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        InstallParams::read(pairs.collect())
    }

    #[test]
    fn only_source_paths_may_be_repeated() {
        let params = read(&[("source_path", "a"), ("source_path", "b")]).expect("fine");
        assert_eq!(params.source_path, ["a", "b"]);
        let refused = |query: &[(&str, &str)], words: &str| {
            let message = read(query).expect_err("refused").detail().message;
            assert!(message.contains(words), "{message}");
        };
        refused(&[("filename", "a"), ("filename", "b")], "duplicate");
        refused(&[("path", "a")], "unknown field `path`");
        refused(&[("preview", "yes")], "preview");
        refused(&[("source_path", "x"); 65], "at most 64");
    }

    #[test]
    fn nothing_is_put_behind_a_directorys_name_unasked() {
        let request = read(&[("filename", "pdf.zip")]).expect("fine").request();
        assert_eq!(
            (request.filename.as_str(), request.target_suffix.as_str()),
            ("pdf.zip", "")
        );
    }

    #[test]
    fn a_new_name_is_checked_before_the_package_is_there() {
        for good in ["pdf", "a-b_1", "字"] {
            assert!(usable(good).is_ok(), "{good}");
        }
        for bad in ["", "-", "a b", "../x", "a/b", "x\0", &"x".repeat(65)] {
            assert!(usable(bad).is_err(), "{bad}");
        }
    }
}
