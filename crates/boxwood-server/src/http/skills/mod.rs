//! Routes for skills: list, create, update and delete. Files of a package are in [`files`],
//! archives in [`archives`].

pub(super) mod archives;
pub(super) mod body;
pub(super) mod error;
pub(super) mod files;

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use boxwood_api::{
    CreateSkillRequest, DeletedSkill, ErrorBody, SkillDetail, SkillInfo, SkillList, SkillProblem,
    UpdateSkillRequest,
};
use boxwood_skills::{NewSkill, Problem, Skill, SkillError, SkillPatch, SkillStore};

use super::error::{ApiError, ApiResult};
use super::json::{self, JsonBody};
use super::params::path_value;
use super::{App, BACKEND_TIMEOUT, with_timeout};
use error::refusal;

#[utoipa::path(get, path = "/v1/skills", tag = "skills", operation_id = "list_skills",
    responses((status = 200, description = "All skills, and packages that cannot be read", body = SkillList)))]
pub(super) async fn list(State(app): State<Arc<App>>) -> ApiResult {
    let list = in_store(&app, |store| {
        let skills = store.list()?;
        let problems = store.problems()?;
        Ok(SkillList {
            skills: skills.iter().map(info).collect(),
            problems: problems.iter().map(|found| problem(store, found)).collect(),
        })
    });
    list.await.map(json::ok)
}

#[utoipa::path(post, path = "/v1/skills", tag = "skills", operation_id = "create_skill",
    request_body = CreateSkillRequest,
    responses(
        (status = 201, description = "The skill", body = SkillDetail),
        (status = 409, body = ErrorBody, description = "A skill with this name exists")))]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    JsonBody(request): JsonBody<CreateSkillRequest>,
) -> ApiResult {
    let detail = in_store(&app, move |store| {
        let new = NewSkill {
            name: request.name,
            display_name: request.display_name,
            description: request.description,
            instructions: request.instructions,
            package_root: None,
        };
        store.create(&new).map(detail_of)
    });
    detail.await.map(json::created)
}

#[utoipa::path(get, path = "/v1/skills/{name}", tag = "skills", operation_id = "get_skill",
    responses((status = 200, description = "The skill with its instructions", body = SkillDetail)))]
pub(super) async fn detail(State(app): State<Arc<App>>, InSkill(name): InSkill) -> ApiResult {
    let detail = in_store(&app, move |store| {
        let found = store.get(&name)?.ok_or(SkillError::NotFound { name })?;
        Ok(detail_of(found))
    });
    detail.await.map(json::ok)
}

#[utoipa::path(patch, path = "/v1/skills/{name}", tag = "skills", operation_id = "update_skill",
    request_body = UpdateSkillRequest,
    responses((status = 200, description = "The updated skill", body = SkillDetail)))]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    InSkill(name): InSkill,
    JsonBody(request): JsonBody<UpdateSkillRequest>,
) -> ApiResult {
    let detail = in_store(&app, move |store| {
        let patch = SkillPatch {
            display_name: request.display_name,
            description: request.description,
            instructions: request.instructions,
            ..SkillPatch::default()
        };
        store.update(&name, &patch).map(detail_of)
    });
    detail.await.map(json::ok)
}

#[utoipa::path(delete, path = "/v1/skills/{name}", tag = "skills", operation_id = "delete_skill",
    responses((status = 200, description = "The skill was deleted", body = DeletedSkill)))]
pub(super) async fn delete(State(app): State<Arc<App>>, InSkill(name): InSkill) -> ApiResult {
    let deleted = in_store(&app, move |store| {
        store.delete(&name)?;
        Ok(DeletedSkill { deleted: name })
    });
    deleted.await.map(json::ok)
}

/// The skill in the path. Any text; unknown names are not found.
pub(super) struct InSkill(pub(super) String);

/// The skill and the file in the path.
pub(super) struct InSkillFile(pub(super) String, pub(super) String);

/// A fixed route below `/v1/skills/`, which can also be the name of a skill.
pub(super) const INSTALL: &str = "install";

impl<S: Send + Sync> FromRequestParts<S> for InSkill {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        InSkillFile::from_request_parts(parts, state)
            .await
            .map(|InSkillFile(name, _)| Self(name))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for InSkillFile {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let name = path_value(parts, state, "name").await?;
        let path = path_value(parts, state, "path").await?;
        Ok(Self(
            name.unwrap_or_else(|| INSTALL.to_owned()),
            path.unwrap_or_default(),
        ))
    }
}

/// Runs a store operation off the event loop, because it accesses the disk.
pub(super) async fn in_store<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&SkillStore) -> Result<T, SkillError> + Send + 'static,
) -> ApiResult<T> {
    let work = move |store: &SkillStore| work(store).map_err(|error| refusal(&error));
    with_store(&app.skills, work).await
}

/// Like [`in_store`], for operations that return an [`ApiError`].
pub(crate) async fn with_store<T: Send + 'static>(
    store: &SkillStore,
    work: impl FnOnce(&SkillStore) -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    let store = store.clone();
    let work = tokio::task::spawn_blocking(move || work(&store));
    let flat = async move {
        work.await
            .map_err(|error| ApiError::internal("internal error in the skill store", &error))?
    };
    with_timeout(BACKEND_TIMEOUT, flat).await
}

pub(crate) fn info(skill: &Skill) -> SkillInfo {
    SkillInfo {
        name: skill.name.clone(),
        display_name: skill.display_name.clone(),
        description: skill.description.clone(),
        created_at: skill.created_at,
        updated_at: skill.updated_at,
        warnings: skill.warnings.clone(),
    }
}

pub(crate) fn detail_of(skill: Skill) -> SkillDetail {
    SkillDetail {
        skill: info(&skill),
        instructions: skill.instructions,
        entry_file: skill.entry_file,
    }
}

fn problem(store: &SkillStore, problem: &Problem) -> SkillProblem {
    SkillProblem {
        path: below(store, &problem.path),
        message: problem.reason.clone(),
    }
}

/// A path relative to the store. The location of the store is not exposed.
pub(super) fn below(store: &SkillStore, path: &std::path::Path) -> String {
    let root = store.root();
    let relative = path
        .strip_prefix(&root)
        .ok()
        .or_else(|| {
            let real = root.canonicalize().ok()?;
            path.strip_prefix(real).ok()
        })
        .filter(|rest| !rest.as_os_str().is_empty());
    relative
        .or_else(|| path.file_name().map(std::path::Path::new))
        .unwrap_or(std::path::Path::new("."))
        .to_string_lossy()
        .into_owned()
}
