//! Routes for the agents' file tools. Each is one operation inside the box.

use boxwood_api::{
    EditTextRequest, EditedText, GlobMatches, GlobRequest, GrepMatches, GrepRequest,
    ReadTextRequest, TextSlice, WriteTextRequest, WrittenText,
};

use super::inside;
use crate::http::error::{ApiError, ApiResult};
use crate::http::json::{self, JsonBody};
use crate::http::params::InSession;
use crate::http::{BACKEND_TIMEOUT, with_timeout};

/// Refuses zero for numbers that count from 1.
fn refuse_zeros<const N: usize>(numbers: [(Option<u64>, &str); N]) -> ApiResult<()> {
    match numbers.iter().find(|(number, _)| *number == Some(0)) {
        Some((_, name)) => Err(ApiError::validation(format!("{name} must be at least 1"))),
        None => Ok(()),
    }
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/read", tag = "files",
    request_body = ReadTextRequest,
    responses((status = 200, description = "Lines of the file, or the names in the directory", body = TextSlice)))]
pub(crate) async fn read(
    InSession { id, sessions }: InSession,
    JsonBody(mut request): JsonBody<ReadTextRequest>,
) -> ApiResult {
    request.path = inside(request.path)?;
    refuse_zeros([
        (request.offset, "offset"),
        (request.limit, "limit"),
        (request.max_bytes, "max_bytes"),
    ])?;
    let reading = sessions.read_text(&id, request);
    with_timeout(BACKEND_TIMEOUT, reading).await.map(json::ok)
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/write", tag = "files",
    request_body = WriteTextRequest,
    responses((status = 200, description = "The file was written", body = WrittenText)))]
pub(crate) async fn write(
    InSession { id, sessions }: InSession,
    JsonBody(mut request): JsonBody<WriteTextRequest>,
) -> ApiResult {
    request.path = inside(request.path)?;
    let writing = sessions.write_text(&id, request);
    with_timeout(BACKEND_TIMEOUT, writing).await.map(json::ok)
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/edit", tag = "files",
    request_body = EditTextRequest,
    responses((status = 200, description = "The change", body = EditedText)))]
pub(crate) async fn edit(
    InSession { id, sessions }: InSession,
    JsonBody(mut request): JsonBody<EditTextRequest>,
) -> ApiResult {
    request.path = inside(request.path)?;
    let editing = sessions.edit_text(&id, request);
    with_timeout(BACKEND_TIMEOUT, editing).await.map(json::ok)
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/glob", tag = "files",
    request_body = GlobRequest,
    responses((status = 200, description = "Matching files, most recently changed first", body = GlobMatches)))]
pub(crate) async fn glob(
    InSession { id, sessions }: InSession,
    JsonBody(mut request): JsonBody<GlobRequest>,
) -> ApiResult {
    request.path = inside(request.path)?;
    refuse_zeros([(request.limit, "limit")])?;
    let searching = sessions.glob(&id, request);
    with_timeout(BACKEND_TIMEOUT, searching).await.map(json::ok)
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/grep", tag = "files",
    request_body = GrepRequest,
    responses((status = 200, description = "Matching lines", body = GrepMatches)))]
pub(crate) async fn grep(
    InSession { id, sessions }: InSession,
    JsonBody(mut request): JsonBody<GrepRequest>,
) -> ApiResult {
    request.path = inside(request.path)?;
    refuse_zeros([(request.limit, "limit")])?;
    let searching = sessions.grep(&id, request);
    with_timeout(BACKEND_TIMEOUT, searching).await.map(json::ok)
}
