//! Routes for files of a session. Paths are resolved inside the box.

mod range;
pub(crate) mod tools;
pub(crate) mod transfer;

use boxwood_api::{DeletedFile, FileEntry, FileList, MkdirRequest, MoveRequest};
use boxwood_session::FileCall;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::error::{ApiError, ApiResult};
use crate::http::json::{self, JsonBody};
use crate::http::params::{self, InSession, Params};

const DEFAULT_LIMIT: usize = 1_000;
const MAX_LIMIT: usize = 10_000;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// An absolute path inside the box.
    path: String,
    limit: Option<usize>,
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/files/list", tag = "files",
    params(ListParams),
    responses((status = 200, description = "The directory's entries", body = FileList)))]
pub(crate) async fn list(session: InSession, Params(params): Params<ListParams>) -> ApiResult {
    let path = inside(params.path)?;
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT);
    let limit = params::limit("limit", limit, MAX_LIMIT)?;
    session.list(&path, limit).await.map(json::ok)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatParams {
    /// An absolute path inside the box.
    path: String,
    /// Follow the last symlink. Default: true.
    follow: Option<bool>,
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/files/stat", tag = "files",
    params(StatParams),
    responses((status = 200, description = "The entry", body = FileEntry)))]
pub(crate) async fn stat(session: InSession, Params(params): Params<StatParams>) -> ApiResult {
    let path = inside(params.path)?;
    let follow = params.follow.unwrap_or(true);
    Ok(json::ok(session.stat(&path, follow).await?))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/mkdir", tag = "files",
    request_body = MkdirRequest,
    responses((status = 201, description = "The directory", body = FileEntry)))]
pub(crate) async fn mkdir(
    session: InSession,
    JsonBody(request): JsonBody<MkdirRequest>,
) -> ApiResult {
    let path = inside(request.path)?;
    let call = FileCall::Mkdir {
        path: path.clone(),
        parents: request.parents,
    };
    session.file(call).await?;
    Ok(json::created(session.stat(&path, true).await?))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/move", tag = "files",
    request_body = MoveRequest,
    responses((status = 200, description = "The moved entry", body = FileEntry)))]
pub(crate) async fn rename(
    session: InSession,
    JsonBody(request): JsonBody<MoveRequest>,
) -> ApiResult {
    let (from, to) = (inside(request.from)?, inside(request.to)?);
    let call = FileCall::Move {
        from,
        to: to.clone(),
        overwrite: request.overwrite,
    };
    session.file(call).await?;
    Ok(json::ok(session.stat(&to, false).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemoveParams {
    /// An absolute path inside the box.
    path: String,
    /// Delete a directory with its contents.
    #[serde(default)]
    recursive: bool,
}

#[utoipa::path(delete, path = "/v1/sessions/{session_id}/files", tag = "files",
    params(RemoveParams),
    responses((status = 200, description = "Deleted", body = DeletedFile)))]
pub(crate) async fn remove(session: InSession, Params(params): Params<RemoveParams>) -> ApiResult {
    let path = inside(params.path)?;
    let call = FileCall::Remove {
        path: path.clone(),
        recursive: params.recursive,
    };
    session.file(call).await?;
    Ok(json::ok(DeletedFile { deleted: path }))
}

/// Checks the form of a path. The box checks the rest.
pub(crate) fn inside(path: String) -> ApiResult<String> {
    let problem = if !path.starts_with('/') {
        "path must be an absolute path inside the sandbox"
    } else if path.contains('\0') {
        "path must not contain NUL bytes"
    // PATH_MAX, with the terminator.
    } else if path.len() >= 4096 {
        "path must be at most 4095 bytes"
    } else {
        return Ok(path);
    };
    Err(ApiError::validation(problem))
}
