//! Routes that agents' file tools are made of: text in, text out, and the search for it. Each is done
//! in one go inside the box.

use axum::response::Response;
use boxwood_api::{
    EditTextRequest, EditedText, ErrorBody, GlobMatches, GlobRequest, GrepMatches, GrepRequest,
    ReadTextRequest, TextSlice, WriteTextRequest, WrittenText,
};

use super::error::{ApiError, ApiResult};
use super::files::inside;
use super::ids::InSession;
use super::json::{self, JsonBody};
use super::{PATIENCE, within};

/// Numbers that count from 1.
fn check<const N: usize>(numbers: [(Option<u64>, &str); N]) -> ApiResult<()> {
    match numbers.iter().find(|(number, _)| *number == Some(0)) {
        Some((_, name)) => Err(ApiError::validation(format!("{name} must be at least 1"))),
        None => Ok(()),
    }
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/read", tag = "files",
    params(("session_id" = String, Path,)),
    request_body = ReadTextRequest,
    responses(
        (status = 200, description = "Some lines of the file, or the directory's names", body = TextSlice),
        (status = 400, body = ErrorBody, description = "Not a file or a directory"),
        (status = 404, body = ErrorBody, description = "No such session or file")))]
pub(super) async fn read(
    session: InSession,
    JsonBody(mut request): JsonBody<ReadTextRequest>,
) -> ApiResult<Response> {
    request.path = inside(request.path)?;
    check([
        (request.offset, "offset"),
        (request.limit, "limit"),
        (request.max_bytes, "max_bytes"),
    ])?;
    let slice = within(PATIENCE, session.sessions.read_text(&session.id, request)).await?;
    Ok(json::ok(&slice))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/write", tag = "files",
    params(("session_id" = String, Path,)),
    request_body = WriteTextRequest,
    responses(
        (status = 200, description = "The file has this text", body = WrittenText),
        (status = 400, body = ErrorBody, description = "Something that is no file is in the way, or the text is too long"),
        (status = 403, body = ErrorBody, description = "The box may not write there"),
        (status = 404, body = ErrorBody, description = "No such session")))]
pub(super) async fn write(
    session: InSession,
    JsonBody(mut request): JsonBody<WriteTextRequest>,
) -> ApiResult<Response> {
    request.path = inside(request.path)?;
    let written = within(PATIENCE, session.sessions.write_text(&session.id, request)).await?;
    Ok(json::ok(&written))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/edit", tag = "files",
    params(("session_id" = String, Path,)),
    request_body = EditTextRequest,
    responses(
        (status = 200, description = "What changed", body = EditedText),
        (status = 400, body = ErrorBody, description = "The text is not there, or in more places than one"),
        (status = 403, body = ErrorBody, description = "The box may not write there"),
        (status = 404, body = ErrorBody, description = "No such session or file")))]
pub(super) async fn edit(
    session: InSession,
    JsonBody(mut request): JsonBody<EditTextRequest>,
) -> ApiResult<Response> {
    request.path = inside(request.path)?;
    let edited = within(PATIENCE, session.sessions.edit_text(&session.id, request)).await?;
    Ok(json::ok(&edited))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/glob", tag = "files",
    params(("session_id" = String, Path,)),
    request_body = GlobRequest,
    responses(
        (status = 200, description = "Files that fit, those changed last first", body = GlobMatches),
        (status = 400, body = ErrorBody, description = "Not a directory, or not a pattern"),
        (status = 404, body = ErrorBody, description = "No such session")))]
pub(super) async fn glob(
    session: InSession,
    JsonBody(mut request): JsonBody<GlobRequest>,
) -> ApiResult<Response> {
    request.path = inside(request.path)?;
    check([(request.limit, "limit")])?;
    let matches = within(PATIENCE, session.sessions.glob(&session.id, request)).await?;
    Ok(json::ok(&matches))
}

#[utoipa::path(post, path = "/v1/sessions/{session_id}/files/grep", tag = "files",
    params(("session_id" = String, Path,)),
    request_body = GrepRequest,
    responses(
        (status = 200, description = "Lines that fit", body = GrepMatches),
        (status = 400, body = ErrorBody, description = "Not a regular expression"),
        (status = 404, body = ErrorBody, description = "No such session or path")))]
pub(super) async fn grep(
    session: InSession,
    JsonBody(mut request): JsonBody<GrepRequest>,
) -> ApiResult<Response> {
    request.path = inside(request.path)?;
    check([(request.limit, "limit")])?;
    let matches = within(PATIENCE, session.sessions.grep(&session.id, request)).await?;
    Ok(json::ok(&matches))
}
