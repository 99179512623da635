//! Routes for the files of a skill. Paths are relative to its package; the store ensures that they
//! stay inside.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use boxwood_api::{
    DeletedFile, ErrorBody, MoveSkillFileRequest, MovedSkillFile, SkillFileList, WrittenSkillFile,
};
use boxwood_skills::{SkillError, SkillStore};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use utoipa::IntoParams;

use super::body::receive;
use super::error::refusal;
use super::{InSkill, InSkillFile, in_store, with_store};
use crate::http::App;
use crate::http::error::{ApiError, ApiResult};
use crate::http::json::{self, JsonBody};
use crate::http::params::{self, Params};

const DEFAULT_ENTRIES: usize = 200;
const MAX_ENTRIES: usize = 10_000;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// A directory of the package. Default: the package itself.
    path: Option<String>,
    /// Include entries whose name starts with a dot.
    #[serde(default)]
    include_hidden: bool,
    /// Default: 200.
    max_entries: Option<usize>,
}

#[utoipa::path(get, path = "/v1/skills/{name}/files", tag = "skills", operation_id = "list_skill_files",
    params(ListParams),
    responses((status = 200, description = "The directory's entries", body = SkillFileList)))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    InSkill(name): InSkill,
    Params(params): Params<ListParams>,
) -> ApiResult {
    let max_entries = params.max_entries.unwrap_or(DEFAULT_ENTRIES);
    let max_entries = params::limit("max_entries", max_entries, MAX_ENTRIES)?;
    let path = params.path.unwrap_or_else(|| ".".to_owned());
    let found = in_store(&app, move |store| {
        store.list_files(&name, &path, params.include_hidden, max_entries)
    })
    .await?;
    Ok(json::ok(SkillFileList {
        path: found.base_path,
        entries: found.entries,
        truncated: found.truncated,
    }))
}

#[utoipa::path(get, path = "/v1/skills/{name}/files/{*path}", tag = "skills", operation_id = "read_skill_file",
    responses((status = 200, description = "The content", content_type = "application/octet-stream", body = Vec<u8>)))]
pub(crate) async fn read(
    State(app): State<Arc<App>>,
    InSkillFile(name, path): InSkillFile,
) -> ApiResult {
    let (content, tag) = in_store(&app, move |store| {
        let file = store.read_bytes(&name, &path)?;
        let tag = tag_of(&file.content);
        Ok((file.content, tag))
    })
    .await?;
    let content = attachment(content, "application/octet-stream");
    Ok(([(header::ETAG, tag)], content).into_response())
}

/// Served as an attachment, so that browsers do not render it on the daemon's origin.
pub(crate) fn attachment(content: impl Into<Body>, kind: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_DISPOSITION, "attachment"),
    ];
    (headers, content.into()).into_response()
}

#[utoipa::path(put, path = "/v1/skills/{name}/files/{*path}", tag = "skills", operation_id = "write_skill_file",
    params(("If-Match" = Option<String>, Header,)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "The written file", body = WrittenSkillFile),
        (status = 412, body = ErrorBody, description = "The file has changed: `If-Match` does not match")))]
pub(crate) async fn write(
    State(app): State<Arc<App>>,
    InSkillFile(name, path): InSkillFile,
    headers: HeaderMap,
    request: Request,
) -> ApiResult {
    let expected_tags = if_match(&headers)?;
    let _permit = app.skill_uploads.permit().await?;
    let limit = app.skills.limits().max_file_bytes;
    let content = receive(request, limit, app.body_timeout()).await?;
    let uploads = Arc::clone(&app.skill_uploads);
    let written = with_store(&app.skills, move |store| {
        // Holds the lock, so that checking and writing is atomic.
        let _write_lock = uploads.lock();
        if let Some(expected_tags) = expected_tags {
            check_tag(store, &name, &path, &expected_tags)?;
        }
        store
            .write(&name, &path, &content)
            .map_err(|error| refusal(&error))
    })
    .await?;
    Ok(json::created(WrittenSkillFile {
        path: written.path,
        bytes_written: written.bytes_written,
    }))
}

#[utoipa::path(delete, path = "/v1/skills/{name}/files/{*path}", tag = "skills", operation_id = "delete_skill_file",
    responses((status = 200, description = "Deleted, including the contents of a directory", body = DeletedFile)))]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    InSkillFile(name, path): InSkillFile,
) -> ApiResult {
    let deleted = in_store(&app, move |store| {
        store.delete_file(&name, &path)?;
        Ok(DeletedFile { deleted: path })
    });
    deleted.await.map(json::ok)
}

#[utoipa::path(post, path = "/v1/skills/{name}/move", tag = "skills", operation_id = "move_skill_file",
    request_body = MoveSkillFileRequest,
    responses(
        (status = 200, description = "The moved file", body = MovedSkillFile),
        (status = 409, body = ErrorBody, description = "The target exists")))]
pub(crate) async fn rename(
    State(app): State<Arc<App>>,
    InSkill(name): InSkill,
    JsonBody(request): JsonBody<MoveSkillFileRequest>,
) -> ApiResult {
    let moved = in_store(&app, move |store| {
        let MoveSkillFileRequest { from, to } = request;
        store.move_file(&name, &from, &to)?;
        Ok(MovedSkillFile { from, to })
    });
    moved.await.map(json::ok)
}

/// The entity tag. Derived from the content, because modification times are too coarse.
fn tag_of(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    format!("\"{}\"", data_encoding::HEXLOWER.encode(&digest[..16]))
}

/// The tags of `If-Match`; `None` without the header.
fn if_match(headers: &HeaderMap) -> ApiResult<Option<Vec<String>>> {
    let mut tags = Vec::new();
    for value in headers.get_all(header::IF_MATCH) {
        let text = value
            .to_str()
            .map_err(|_| ApiError::validation("the If-Match header cannot be read"))?;
        tags.extend(text.split(',').map(|tag| tag.trim().to_owned()));
    }
    Ok((!tags.is_empty()).then_some(tags))
}

/// Fails unless the file exists with one of these tags; `*` stands for any.
fn check_tag(
    store: &SkillStore,
    name: &str,
    path: &str,
    expected_tags: &[String],
) -> ApiResult<()> {
    let found = match store.read_bytes(name, path) {
        Ok(file) => Some(tag_of(&file.content)),
        Err(SkillError::FileNotFound { .. }) => None,
        Err(error) => return Err(refusal(&error)),
    };
    if let Some(found) = &found
        && expected_tags.iter().any(|tag| tag == "*" || tag == found)
    {
        return Ok(());
    }
    let message = match found {
        Some(_) => "the file has changed since it was read",
        None => "the file no longer exists",
    };
    Err(ApiError::validation(message)
        .status(StatusCode::PRECONDITION_FAILED)
        .hint("read it again and repeat the change"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn entity_tags_depend_on_the_content() {
        assert_eq!(tag_of(b""), "\"e3b0c44298fc1c149afbf4c8996fb924\"");
        assert_ne!(tag_of(b"a"), tag_of(b"b"));
    }

    #[test]
    fn if_match_has_a_star_or_a_list_of_tags() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_MATCH, HeaderValue::from_static(text));
            if_match(&headers).expect("readable").expect("a condition")
        };
        assert_eq!(read("*"), ["*"]);
        assert_eq!(read("\"a\", \"b\""), ["\"a\"", "\"b\""]);
        assert!(matches!(if_match(&HeaderMap::new()), Ok(None)));
    }
}
