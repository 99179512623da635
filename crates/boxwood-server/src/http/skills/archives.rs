//! Imports and exports skills as zip archives.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri};
use boxwood_api::{ErrorBody, PlannedSkill as Planned, SkillIntake};
use boxwood_skills::{PlannedSkill, Skill, SkillError, SkillStore, ZipRequest};
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

/// Maximum number of skills per request.
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
) -> ApiResult {
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
        return Ok(json::ok(SkillIntake {
            planned,
            installed: Vec::new(),
        }));
    }
    let uploads = Arc::clone(&app.skill_uploads);
    let installed = with_store(&app.skills, move |store| {
        // Holds the lock, so that checking names and installing is atomic.
        let _write_lock = uploads.lock();
        // The store allows two skills with the same name, as LangBot Box does, of which only one would be reachable.
        let name = params.name.as_deref();
        let skills =
            store.install_unique(&bytes, &params.request(), params.source_path.clone(), name);
        let skills = skills.map_err(|error| refusal(&error))?;
        Ok(skills.iter().map(info).collect())
    })
    .await?;
    Ok(json::created(SkillIntake {
        planned: Vec::new(),
        installed,
    }))
}

/// Installs the single skill of an archive that was packed from the directory `path` of a box.
pub(crate) fn install_package(
    store: &SkillStore,
    bytes: &[u8],
    name: Option<&str>,
    path: &str,
) -> ApiResult<Skill> {
    let directory = path.trim_end_matches('/').rsplit('/').next();
    let directory = directory.unwrap_or_default();
    let request = ZipRequest {
        filename: format!("{directory}.zip"),
        target_suffix: String::new(),
        ..ZipRequest::default()
    };
    let installed = store.install_unique(bytes, &request, Vec::new(), name);
    let mut installed = installed.map_err(|error| match error {
        SkillError::NoSkillBelow { .. } | SkillError::UploadEmpty => ApiError::validation(format!(
            "No SKILL.md found in {path} or its subdirectories (max depth: 2)"
        )),
        SkillError::ChooseSourcePaths { candidates } => ApiError::validation(format!(
            "Multiple skill directories found in {path}. Please choose a more specific path: {candidates}"
        )),
        other => refusal(&other),
    })?;
    installed
        .pop()
        .ok_or_else(|| ApiError::validation(format!("No SKILL.md found in {path}")))
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
    match json::content_type(headers)?.unwrap_or_default().as_str() {
        "application/zip" | "application/x-zip-compressed" | "application/octet-stream" => Ok(()),
        other => Err(ApiError::validation(format!(
            "the body must be a zip archive, not `{other}`"
        ))
        .hint("send `Content-Type: application/zip`")),
    }
}

#[utoipa::path(get, path = "/v1/skills/{name}/export", tag = "skills", operation_id = "export_skill",
    responses((status = 200, description = "The package as an archive", content_type = "application/zip", body = Vec<u8>)))]
pub(crate) async fn export(State(app): State<Arc<App>>, InSkill(name): InSkill) -> ApiResult {
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
        let refused = |query: &str, expected: &str| {
            let message = read(query).expect_err("refused").detail().message;
            assert!(message.contains(expected), "{message}");
        };
        refused("filename=a&filename=b", "duplicate");
        refused("path=a", "unknown field `path`");
        refused("preview=yes", "`true` or `false`");
        refused(&vec!["source_path=x"; 65].join("&"), "at most 64");
    }

    #[test]
    fn the_default_target_suffix_is_empty() {
        let request = read("filename=pdf.zip").expect("fine").request();
        assert_eq!(
            (request.filename.as_str(), request.target_suffix.as_str()),
            ("pdf.zip", "")
        );
    }
}
