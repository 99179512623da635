//! Streams file downloads and uploads of a session.
//!
//! Files are never in memory as a whole. An upload is written to a temporary file, which replaces the
//! target when it is complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use boxwood_api::{ErrorBody, ErrorCode, FileEntry};
use boxwood_session::{FileAnswer, FileCall, OpenFor, Writer};
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWriteExt as _};
use utoipa::IntoParams;

use super::inside;
use super::range::{RangeRequest, requested_range};
use crate::http::error::{ApiError, ApiResult};
use crate::http::params::{InSession, Params, unexpected};
use crate::http::skills::files::attachment;
use crate::http::{App, BACKEND_TIMEOUT, with_timeout};
use crate::http::{body, json};
use crate::load::RequestMemory;

const CHUNK_BYTES: u64 = 256 * 1024;

/// Memory that an upload uses between socket and file.
const UPLOAD_BUFFER: usize = 512 * 1024;

/// The workspace quota is checked after this many bytes of an upload: the daemon writes the file, so the
/// limits of the box do not apply.
const QUOTA_CHECK_BYTES: usize = 8 * 1024 * 1024;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DownloadParams {
    /// An absolute path inside the box.
    path: String,
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/files", tag = "files",
    params(DownloadParams, ("Range" = Option<String>, Header,)),
    responses(
        (status = 200, description = "The whole file", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, description = "The requested range", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 416, body = ErrorBody, description = "The range is outside of the file")))]
pub(crate) async fn download(
    session: InSession,
    Params(params): Params<DownloadParams>,
    headers: HeaderMap,
) -> ApiResult {
    let (file, entry) = session.open(&inside(params.path)?).await?;
    let size = entry.size;
    let tag = format!(
        "\"{:x}-{size:x}\"",
        entry.modified_at.as_nanosecond().cast_unsigned()
    );
    let (status, start, length) = match requested_range(&headers, size, &tag) {
        RangeRequest::All => (StatusCode::OK, 0, size),
        RangeRequest::Part { start, length } => (StatusCode::PARTIAL_CONTENT, start, length),
        RangeRequest::Unsatisfiable => return Ok(no_such_range(size)),
    };
    let content = Body::from_stream(chunks(file, start, length));
    let content = attachment(content, "application/octet-stream");
    let headers = [
        (header::CONTENT_LENGTH, length.to_string()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::ETAG, tag),
    ];
    if status != StatusCode::PARTIAL_CONTENT {
        return Ok((status, headers, content).into_response());
    }
    let range = format!("bytes {start}-{}/{size}", start + length - 1);
    let range = [(header::CONTENT_RANGE, range)];
    Ok((status, headers, range, content).into_response())
}

fn no_such_range(size: u64) -> Response {
    let error = ApiError::validation(format!(
        "the range is outside of the file, which has {size} bytes"
    ))
    .status(StatusCode::RANGE_NOT_SATISFIABLE);
    let range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
    (range, error).into_response()
}

/// Fails if the file shrinks meanwhile; the client notices by the announced length.
fn chunks(file: File, start: u64, length: u64) -> impl Stream<Item = io::Result<Bytes>> {
    let file = Arc::new(file);
    stream::try_unfold((file, start, length), |(file, at, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let reading = Arc::clone(&file);
        let size = usize::try_from(left.min(CHUNK_BYTES)).unwrap_or(usize::MAX);
        let chunk = tokio::task::spawn_blocking(move || {
            let mut buffer = vec![0; size];
            let read = reading.read_at(&mut buffer, at)?;
            buffer.truncate(read);
            Ok::<_, io::Error>(buffer)
        })
        .await
        .map_err(io::Error::other)??;
        let read = chunk.len() as u64;
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file was truncated while it was sent",
            ));
        }
        Ok(Some((Bytes::from(chunk), (file, at + read, left - read))))
    })
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UploadParams {
    /// An absolute path inside the box.
    path: String,
    /// Create missing parent directories.
    #[serde(default)]
    parents: bool,
    /// Permission bits in octal, such as `0755`. Default: those of the file it replaces, else `0644`.
    mode: Option<String>,
}

#[utoipa::path(put, path = "/v1/sessions/{session_id}/files", tag = "files",
    params(UploadParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 201, description = "The uploaded file", body = FileEntry)))]
pub(crate) async fn upload(
    State(app): State<Arc<App>>,
    session: InSession,
    Params(params): Params<UploadParams>,
    request: Request,
) -> ApiResult {
    let path = inside(params.path)?;
    split(&path)?;
    RequestMemory::of(&request, app.sessions.budget()).take(UPLOAD_BUFFER)?;
    let mode = params.mode.as_deref().map(octal).transpose()?;
    let target = UploadTarget {
        path: &path,
        parents: params.parents,
        mode,
        writer: Writer::Client,
    };
    let idle = app.body_timeout();
    let write = |file| receive(&session, request.into_body(), file, idle);
    replace_file(&session, target, write).await?;
    session.stat(&path, false).await.map(json::created)
}

/// Writes a file of the daemon itself into a box, with parent directories and without quota checks.
pub(crate) async fn put(
    session: &InSession,
    path: &str,
    mut content: impl AsyncRead + Unpin,
) -> ApiResult<()> {
    let target = UploadTarget {
        path,
        parents: true,
        mode: None,
        writer: Writer::Daemon,
    };
    let write = |mut file: tokio::fs::File| async move {
        let copied = async {
            tokio::io::copy(&mut content, &mut file).await?;
            file.flush().await
        };
        copied.await.map_err(|error| write_failed(&error))
    };
    replace_file(session, target, write).await
}

struct UploadTarget<'a> {
    path: &'a str,
    parents: bool,
    /// `None` keeps the mode of an existing file.
    mode: Option<u32>,
    writer: Writer,
}

/// Writes to a temporary file beside the target, which replaces the target when it is complete.
async fn replace_file<Writing: Future<Output = ApiResult<()>>>(
    session: &InSession,
    target: UploadTarget<'_>,
    write: impl FnOnce(tokio::fs::File) -> Writing,
) -> ApiResult<()> {
    let (directory, name) = split(target.path)?;
    let file_call = |call| {
        let calling = session.sessions.file_by(target.writer, &session.id, call);
        with_timeout(BACKEND_TIMEOUT, calling)
    };
    if target.parents {
        let path = directory.to_owned();
        file_call(FileCall::Mkdir {
            path,
            parents: true,
        })
        .await?;
    }
    let mode = match target.mode {
        Some(mode) => mode,
        None => mode_in_place(session, target.path).await,
    };
    let path = temporary_name(directory, name)?;
    let open = FileCall::Open {
        path: path.clone(),
        how: OpenFor::CreateNew { mode },
    };
    let file = match file_call(open).await? {
        FileAnswer::Opened { file, .. } => file,
        other => return Err(unexpected("open", &other)),
    };
    let mut temporary = TemporaryFile {
        session: session.clone(),
        path: Some(path.clone()),
    };
    let replacing = async {
        write(tokio::fs::File::from_std(file)).await?;
        let call = FileCall::Move {
            from: path.clone(),
            to: target.path.to_owned(),
            overwrite: true,
        };
        session.file(call).await.map(drop)
    };
    let replaced = replacing.await;
    if replaced.is_err() {
        // Before the caller gets its response.
        remove(session, path).await;
    }
    temporary.path = None;
    replaced
}

/// Removes the file if the request is cancelled.
struct TemporaryFile {
    session: InSession,
    path: Option<String>,
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let (Some(path), Ok(runtime)) = (self.path.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let session = self.session.clone();
        runtime.spawn(async move { remove(&session, path).await });
    }
}

async fn remove(session: &InSession, path: String) {
    let call = FileCall::Remove {
        path,
        recursive: false,
    };
    if let Err(error) = session.file(call).await {
        tracing::debug!(error = error.message(), session = %session.id, "failed to remove the temporary file of an aborted upload");
    }
}

async fn receive(
    session: &InSession,
    body: Body,
    mut file: tokio::fs::File,
    idle: Duration,
) -> ApiResult<()> {
    let mut unchecked_bytes = 0;
    let mut stream = body.into_data_stream();
    while let Some(chunk) = body::next_chunk(&mut stream, idle).await? {
        file.write_all(&chunk)
            .await
            .map_err(|error| write_failed(&error))?;
        unchecked_bytes += chunk.len();
        if unchecked_bytes >= QUOTA_CHECK_BYTES {
            unchecked_bytes = 0;
            file.flush().await.map_err(|error| write_failed(&error))?;
            let quota_check =
                with_timeout(BACKEND_TIMEOUT, session.sessions.check_room(&session.id)).await;
            if let Err(refusal) = quota_check {
                // The client can read the response only after its body has been read.
                body::discard(Body::from_stream(stream)).await;
                return Err(refusal);
            }
        }
    }
    file.flush().await.map_err(|error| write_failed(&error))
}

fn write_failed(error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ApiError::new(ErrorCode::Capacity, "no space left for the file")
                .hint("delete files of the session, or use a larger quota")
        }
        io::ErrorKind::FileTooLarge => {
            ApiError::new(ErrorCode::PayloadTooLarge, "the file is too large")
        }
        _ => ApiError::internal("failed to write the file", error),
    }
}

fn split(path: &str) -> ApiResult<(&str, &str)> {
    match path.rsplit_once('/') {
        Some((directory, name)) if !matches!(name, "" | "." | "..") => {
            Ok((if directory.is_empty() { "/" } else { directory }, name))
        }
        _ => Err(ApiError::validation("path must name a file")),
    }
}

/// A replaced file keeps its permissions.
async fn mode_in_place(session: &InSession, path: &str) -> u32 {
    match session.stat(path, true).await {
        Ok(entry) if entry.kind == boxwood_api::FileKind::File => entry.mode & 0o777,
        _ => 0o644,
    }
}

/// In the same directory, so that the rename stays within one file system.
fn temporary_name(directory: &str, name: &str) -> ApiResult<String> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| {
        ApiError::internal(
            "failed to get random bytes",
            &io::Error::other(error.to_string()),
        )
    })?;
    // Names have at most 255 bytes. The prefix shows which file a leftover belongs to.
    let stem: String = name.chars().take(32).collect();
    let separator = if directory.ends_with('/') { "" } else { "/" };
    Ok(format!(
        "{directory}{separator}.{stem}.{:016x}.part",
        u64::from_ne_bytes(random)
    ))
}

fn octal(text: &str) -> ApiResult<u32> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| {
            ApiError::validation(format!(
                "mode must be permission bits in octal, such as `0644`, not `{text}`"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_temporary_file_is_in_the_same_directory() {
        let check = |path: &str, start: &str| {
            let (directory, name) = split(path).expect("a file");
            let temporary = temporary_name(directory, name).expect("a name");
            assert!(temporary.starts_with(start), "{temporary}");
            let (_, name) = split(&temporary).expect("a file");
            assert!(name.len() < 255);
        };
        check("/a", "/.a.");
        check("/data/a.txt", "/data/.a.txt.");
        check(&format!("/data/{}", "字".repeat(85)), "/data/.字");
        for not_a_file in ["/", "/data/", "/data/.", "/data/.."] {
            assert!(split(not_a_file).is_err(), "{not_a_file}");
        }
    }

    #[test]
    fn modes_are_octal_permission_bits() {
        assert_eq!(octal("0755").ok(), Some(0o755));
        assert_eq!(octal("644").ok(), Some(0o644));
        for bad in ["4755", "9", "", "-1", "rw"] {
            assert!(octal(bad).is_err(), "{bad}");
        }
    }
}
