//! Routes for files of a session. Paths are resolved inside the box.
#![expect(
    unused_qualifications,
    reason = "the expansion of `utoipa::path` qualifies the parameter types"
)]

mod range;
pub(super) mod tools;
pub(super) mod transfer;

use axum::response::Response;
use boxwood_api::{DeletedFile, ErrorBody, FileEntry, FileList, MkdirRequest, MoveRequest};
use boxwood_session::{FileAnswer, FileCall};
use serde::Deserialize;
use utoipa::IntoParams;

use super::error::{ApiError, ApiResult};
use super::json::{self, JsonBody};
use super::params::{InSession, Params};

const DEFAULT_LIMIT: usize = 1_000;
const MAX_LIMIT: usize = 10_000;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// An absolute path inside the box.
    path: String,
    #[serde(default)]
    limit: Option<usize>,
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/files/list", tag = "files",
    params(("session_id" = String, Path,), ListParams),
    responses(
        (status = 200, description = "The directory's entries", body = FileList),
        (status = 404, body = ErrorBody, description = "Unknown session or directory")))]
pub(super) async fn list(
    session: InSession,
    Params(params): Params<ListParams>,
) -> ApiResult<Response> {
    let path = inside(params.path)?;
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(ApiError::validation(format!(
            "limit must be between 1 and {MAX_LIMIT}"
        )));
    }
    let call = FileCall::List {
        path: path.clone(),
        limit,
    };
    match session.file(call).await? {
        FileAnswer::Entries { entries, truncated } => Ok(json::ok(&FileList {
            path,
            entries,
            truncated,
        })),
        other => Err(unexpected("list", &other)),
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StatParams {
    /// An absolute path inside the box.
    path: String,
    /// Follow the last symlink. Default: true.
    #[serde(default)]
    follow: Option<bool>,
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/files/stat", tag = "files",
    params(("session_id" = String, Path,), StatParams),
    responses(
        (status = 200, description = "The entry", body = FileEntry),
        (status = 404, body = ErrorBody, description = "Unknown session or file")))]
pub(super) async fn stat(
    session: InSession,
    Params(params): Params<StatParams>,
) -> ApiResult<Response> {
    let path = inside(params.path)?;
    let entry = entry(&session, path, params.follow.unwrap_or(true)).await?;
    Ok(json::ok(&entry))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/mkdir", tag = "files",
    params(("session_id" = String, Path,)),
    request_body = MkdirRequest,
    responses(
        (status = 201, description = "The directory", body = FileEntry),
        (status = 400, body = ErrorBody, description = "The path already exists"),
        (status = 404, body = ErrorBody, description = "Unknown session or parent directory")))]
pub(super) async fn mkdir(
    session: InSession,
    JsonBody(request): JsonBody<MkdirRequest>,
) -> ApiResult<Response> {
    let path = inside(request.path)?;
    let call = FileCall::Mkdir {
        path: path.clone(),
        parents: request.parents,
    };
    session.file(call).await?;
    let entry = entry(&session, path, true).await?;
    Ok(json::created(&entry))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/move", tag = "files",
    params(("session_id" = String, Path,)),
    request_body = MoveRequest,
    responses(
        (status = 200, description = "The moved entry", body = FileEntry),
        (status = 400, body = ErrorBody, description = "The target exists"),
        (status = 404, body = ErrorBody, description = "Unknown session or file")))]
pub(super) async fn rename(
    session: InSession,
    JsonBody(request): JsonBody<MoveRequest>,
) -> ApiResult<Response> {
    let (from, to) = (inside(request.from)?, inside(request.to)?);
    let call = FileCall::Move {
        from,
        to: to.clone(),
        overwrite: request.overwrite,
    };
    session.file(call).await?;
    let entry = entry(&session, to, false).await?;
    Ok(json::ok(&entry))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemoveParams {
    /// An absolute path inside the box.
    path: String,
    /// Delete a directory with its contents.
    #[serde(default)]
    recursive: bool,
}

#[utoipa::path(delete, path = "/v1/sessions/{session_id}/files", tag = "files",
    params(("session_id" = String, Path,), RemoveParams),
    responses(
        (status = 200, description = "Deleted", body = DeletedFile),
        (status = 400, body = ErrorBody, description = "The directory is not empty"),
        (status = 404, body = ErrorBody, description = "Unknown session or file")))]
pub(super) async fn remove(
    session: InSession,
    Params(params): Params<RemoveParams>,
) -> ApiResult<Response> {
    let path = inside(params.path)?;
    let call = FileCall::Remove {
        path: path.clone(),
        recursive: params.recursive,
    };
    session.file(call).await?;
    Ok(json::ok(&DeletedFile { deleted: path }))
}

pub(super) async fn entry(session: &InSession, path: String, follow: bool) -> ApiResult<FileEntry> {
    let call = FileCall::Stat { path, follow };
    match session.file(call).await? {
        FileAnswer::Entry(entry) => Ok(entry),
        other => Err(unexpected("stat", &other)),
    }
}

/// Checks the form of a path. The box checks the rest.
pub(super) fn inside(path: String) -> ApiResult<String> {
    if !path.starts_with('/') {
        return Err(ApiError::validation(
            "path must be an absolute path inside the sandbox",
        ));
    }
    if path.contains('\0') {
        return Err(ApiError::validation("path must not contain NUL bytes"));
    }
    // PATH_MAX, with the terminator.
    if path.len() >= 4096 {
        return Err(ApiError::validation("path must be at most 4095 bytes"));
    }
    Ok(path)
}

/// The backend violated its contract.
pub(crate) fn unexpected(call: &str, answer: &FileAnswer) -> ApiError {
    let words = std::io::Error::other(format!("unexpected result of `{call}`: {answer:?}"));
    ApiError::internal("unexpected response from the backend", &words)
}
