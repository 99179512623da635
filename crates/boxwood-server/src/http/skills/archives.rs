//! Imports and exports skills as zip archives.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::response::Response;
use boxwood_api::{ErrorBody, PlannedSkill as Planned, SkillIntake};
use boxwood_skills::{
    NewSkill, PlannedSkill, Skill, SkillError, SkillStore, ZipRequest, ZipSelection,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::receive;
use super::error::refusal;
use super::files::attachment;
use super::{InSkill, in_store, info, with_store};
use crate::http::App;
use crate::http::error::{ApiError, ApiResult};
use crate::http::json;
use crate::http::params::parse_query;

/// Maximum number of skills per request. The archive is inflated once for each.
const MAX_SELECTED: usize = 64;

/// Query parameters of an installation.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InstallParams {
    /// File name of the archive. A skill at the top level is stored under this name, which is also
    /// its default name. Default: `skill.zip`.
    filename: Option<String>,
    /// Directory in the archive to search.
    source_subdir: Option<String>,
    /// A skill to install, by its directory in the archive. Can be repeated. Optional if there is
    /// only one skill.
    #[param(required = false)]
    source_path: Vec<String>,
    /// Suffix of the directory name, after a hyphen.
    target_suffix: Option<String>,
    /// The name of the skill, overriding its own. For a single skill.
    name: Option<String>,
    /// List the contents of the archive without installing.
    #[param(required = false)]
    preview: bool,
}

impl InstallParams {
    /// `source_path` is read separately, because only this key may be repeated.
    fn read(query: &str) -> ApiResult<Self> {
        let is_path = |pair: &&str| pair.split('=').next() == Some("source_path");
        let (paths, others): (Vec<_>, Vec<_>) = query.split('&').partition(is_path);
        if paths.len() > MAX_SELECTED {
            return Err(ApiError::validation(format!(
                "at most {MAX_SELECTED} skills can be installed at a time"
            )));
        }
        let paths: Vec<(String, String)> = parse_query(&paths.join("&"))?;
        Ok(Self {
            source_path: paths.into_iter().map(|(_, path)| path).collect(),
            ..parse_query(&others.join("&"))?
        })
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
        (status = 200, description = "With `preview=true`: the contents of the archive", body = SkillIntake),
        (status = 201, description = "The installed skills", body = SkillIntake),
        (status = 409, body = ErrorBody, description = "The name or the directory is in use")))]
pub(crate) async fn install(
    State(app): State<Arc<App>>,
    uri: Uri,
    headers: HeaderMap,
    request: Request,
) -> ApiResult<Response> {
    let params = InstallParams::read(uri.query().unwrap_or_default())?;
    is_zip(&headers)?;
    let _permit = app.skill_uploads.permit().await?;
    let limit = app.skills.limits().max_zip_bytes;
    let bytes = receive(request, limit, app.body_timeout()).await?;
    if params.preview {
        let planned = in_store(&app, move |store| {
            let found = store.preview_zip(&bytes, &params.request())?;
            Ok(found.iter().map(plan).collect())
        })
        .await?;
        return Ok(json::ok(&SkillIntake {
            planned,
            installed: Vec::new(),
        }));
    }
    let uploads = Arc::clone(&app.skill_uploads);
    let installed = with_store(&app.skills, move |store| {
        // Holds the lock, so that checking names and installing is atomic.
        let _write_lock = uploads.lock();
        let skills = take(store, &bytes, &params).map_err(|error| refusal(&error))?;
        Ok(skills.iter().map(info).collect())
    })
    .await?;
    Ok(json::created(&SkillIntake {
        planned: Vec::new(),
        installed,
    }))
}

/// Installs all selected skills, or none. Each gets its own directory, named like the one in the
/// archive.
///
/// The store allows two packages with the same name, as LangBot Box does. This route refuses it,
/// because only one of them would be reachable.
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
                    // Report the first error.
                    if let Err(undo) = store.delete(&skill.name) {
                        tracing::warn!(skill = skill.name, error = %undo, "failed to undo a partial installation; the skill stays in the store");
                    }
                }
                return Err(error);
            }
        }
    }
    Ok(installed)
}

/// Installs the single skill of an archive that was packed from the directory `place` of a box.
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
            // Used as it is.
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

/// Applies the store's naming rule before unpacking: a name that is refused later would leave the
/// package with its old name.
fn usable(name: &str) -> Result<(), SkillError> {
    let plain = |char: char| char.is_alphanumeric() || char == '-' || char == '_';
    match name.chars().count() {
        0 => Err(SkillError::NameRequired),
        1..=64 if name.chars().all(plain) && name.chars().any(char::is_alphanumeric) => Ok(()),
        1..=64 => Err(SkillError::NameCharacters),
        _ => Err(SkillError::NameTooLong),
    }
}

fn plan(found: &PlannedSkill) -> Planned {
    Planned {
        name: found.skill.name.clone(),
        display_name: found.skill.display_name.clone(),
        description: found.skill.description.clone(),
        source_path: found.source_path.clone(),
        warnings: found.skill.warnings.clone(),
    }
}

/// Browsers send forms and plain text across origins without a preflight request, but not archives.
fn is_zip(headers: &HeaderMap) -> ApiResult<()> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let essence = match (types.next(), types.next()) {
        (Some(only), None) => only.to_str().unwrap_or_default(),
        (None, _) => "",
        (Some(_), Some(_)) => {
            return Err(ApiError::validation("more than one Content-Type header"));
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
    responses((status = 200, description = "The package as an archive", content_type = "application/zip", body = Vec<u8>)))]
pub(crate) async fn export(
    State(app): State<Arc<App>>,
    InSkill(name): InSkill,
) -> ApiResult<Response> {
    let _permit = app.skill_uploads.permit().await?;
    let archive = in_store(&app, move |store| store.export_zip(&name)).await?;
    Ok(attachment(archive, "application/zip"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> ApiResult<InstallParams> {
        InstallParams::read(query)
    }

    #[test]
    fn only_source_paths_may_be_repeated() {
        let params = read("source_path=a&name=x%20y&source_path=b%2Fc").expect("fine");
        assert_eq!(params.source_path, ["a", "b/c"]);
        assert_eq!(params.name.as_deref(), Some("x y"));
        let refused = |query: &str, words: &str| {
            let message = read(query).expect_err("refused").detail().message;
            assert!(message.contains(words), "{message}");
        };
        refused("filename=a&filename=b", "duplicate");
        refused("path=a", "unknown field `path`");
        refused("preview=yes", "`true` or `false`");
        refused(&vec!["source_path=x"; 65].join("&"), "at most 64");
    }

    #[test]
    fn nothing_is_put_behind_a_directorys_name_unasked() {
        let request = read("filename=pdf.zip").expect("fine").request();
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
