//! The bytes of a session's files, streamed both ways.
//!
//! Comes in: a path, and for uploads a body of any length. Goes out: the bytes, or a complete file in
//! its place. Never here: whole files in memory.
#![expect(
    unused_qualifications,
    reason = "the expansion of `utoipa::path` qualifies the parameter types"
)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use boxwood_api::{ErrorBody, ErrorCode, FileEntry, SessionId};
use boxwood_session::{FileAnswer, FileCall, OpenFor, Sessions, Writer};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWriteExt as _};
use utoipa::IntoParams;

use super::error::{ApiError, ApiResult};
use super::files::{entry, inside, unexpected};
use super::ids::{InSession, Params};
use super::json;
use super::range::{Wanted, wanted};
use super::{App, PATIENCE, within};
use crate::load::Weight;

/// One read of a file, and so the most of it that is in memory at a time.
const PIECE: u64 = 256 * 1024;

/// What an upload has in memory between the socket and the file.
const IN_TRANSIT: usize = 512 * 1024;

/// So much of an upload is written before the workspace's quota is asked again: the daemon writes here,
/// and nobody stops it as boxes are stopped.
const JUDGED_EVERY: usize = 8 * 1024 * 1024;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DownloadParams {
    /// An absolute path inside the box.
    path: String,
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/files", tag = "files",
    params(("session_id" = String, Path,), DownloadParams, ("Range" = Option<String>, Header,)),
    responses(
        (status = 200, description = "The whole file", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, description = "The range", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 400, body = ErrorBody, description = "Not a regular file"),
        (status = 404, body = ErrorBody, description = "No such session or file"),
        (status = 416, body = ErrorBody, description = "The file has no such bytes")))]
pub(super) async fn download(
    session: InSession,
    Params(params): Params<DownloadParams>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let call = FileCall::Open {
        path: inside(params.path)?,
        how: OpenFor::Read,
    };
    let (file, entry) = match session.file(call).await? {
        FileAnswer::Opened { file, entry } => (file, entry),
        other => return Err(unexpected("open", &other)),
    };
    let size = entry.size;
    let tag = format!(
        "\"{:x}-{size:x}\"",
        entry.modified_at.as_nanosecond().cast_unsigned()
    );
    let (status, start, length) = match wanted(&headers, size, &tag) {
        Wanted::All => (StatusCode::OK, 0, size),
        Wanted::Part { start, length } => (StatusCode::PARTIAL_CONTENT, start, length),
        Wanted::Nothing => return Ok(no_such_range(size)),
    };
    let mut response = Response::new(Body::from_stream(pieces(file, start, length)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, "application/octet-stream".to_owned());
    set(header::CONTENT_LENGTH, length.to_string());
    set(header::ACCEPT_RANGES, "bytes".to_owned());
    set(header::ETAG, tag);
    // Whatever the file is, a browser shall not run it on our origin.
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned());
    set(header::CONTENT_DISPOSITION, "attachment".to_owned());
    if status == StatusCode::PARTIAL_CONTENT {
        let last = start + length - 1;
        set(
            header::CONTENT_RANGE,
            format!("bytes {start}-{last}/{size}"),
        );
    }
    Ok(response)
}

fn no_such_range(size: u64) -> Response {
    use axum::response::IntoResponse as _;
    let error = ApiError::validation(format!("the file has {size} bytes and not that range"))
        .status(StatusCode::RANGE_NOT_SATISFIABLE);
    let mut response = error.into_response();
    if let Ok(range) = HeaderValue::try_from(format!("bytes */{size}")) {
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    response
}

/// A file that shrinks meanwhile breaks the answer off, which the announced length makes plain.
fn pieces(file: File, start: u64, length: u64) -> impl Stream<Item = io::Result<Bytes>> {
    let file = Arc::new(file);
    stream::try_unfold((file, start, length), |(file, at, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let reading = Arc::clone(&file);
        let size = usize::try_from(left.min(PIECE)).unwrap_or(usize::MAX);
        let piece = tokio::task::spawn_blocking(move || {
            let mut buffer = vec![0; size];
            let read = reading.read_at(&mut buffer, at)?;
            buffer.truncate(read);
            Ok::<_, io::Error>(buffer)
        })
        .await
        .map_err(io::Error::other)??;
        let read = piece.len() as u64;
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file became shorter while it was sent",
            ));
        }
        Ok(Some((Bytes::from(piece), (file, at + read, left - read))))
    })
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UploadParams {
    /// An absolute path inside the box.
    path: String,
    /// Also make the directories above it.
    #[serde(default)]
    parents: bool,
    /// Permission bits in octal, such as `0755`; those of the file it replaces, else `0644`, when
    /// left out.
    #[serde(default)]
    mode: Option<String>,
}

#[utoipa::path(put, path = "/v1/sessions/{session_id}/files", tag = "files",
    params(("session_id" = String, Path,), UploadParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "The file, complete and in its place", body = FileEntry),
        (status = 400, body = ErrorBody, description = "A directory is in the way"),
        (status = 404, body = ErrorBody, description = "No such session or parent"),
        (status = 503, body = ErrorBody, description = "No room left in the box")))]
pub(super) async fn upload(
    State(app): State<Arc<App>>,
    session: InSession,
    Params(params): Params<UploadParams>,
    request: Request,
) -> ApiResult<Response> {
    let path = inside(params.path)?;
    split(&path)?;
    Weight::of(&request, app.sessions.budget()).take(IN_TRANSIT)?;
    let mode = params.mode.as_deref().map(octal).transpose()?;
    let wish = Wish {
        path: &path,
        parents: params.parents,
        mode,
        writer: Writer::Client,
    };
    let (file, landing) = Landing::begin(&session, wish).await?;
    let received = receive(&session, request.into_body(), file, app.body_timeout()).await;
    if let Err(error) = received {
        landing.give_up(&session).await;
        return Err(error);
    }
    landing.end(&session, &path).await?;
    let entry = entry(&session, path, false).await?;
    Ok(json::created(&entry))
}

/// The same for what the daemon itself keeps in a box, with the directories above the file. No quota is asked.
pub(crate) async fn put(
    session: &InSession,
    path: &str,
    mut content: impl AsyncRead + Unpin,
) -> ApiResult<()> {
    let wish = Wish {
        path,
        parents: true,
        mode: None,
        writer: Writer::Daemon,
    };
    let (file, landing) = Landing::begin(session, wish).await?;
    let mut file = tokio::fs::File::from_std(file);
    let copied = async {
        tokio::io::copy(&mut content, &mut file).await?;
        file.flush().await
    }
    .await;
    drop(file);
    if let Err(error) = copied {
        landing.give_up(session).await;
        return Err(write_failed(&error));
    }
    landing.end(session, path).await
}

/// A file to be written.
struct Wish<'a> {
    path: &'a str,
    parents: bool,
    /// Of the file that is there, when left out.
    mode: Option<u32>,
    writer: Writer,
}

/// A file that is being written beside the place it will have.
struct Landing {
    temporary: String,
    cleanup: Cleanup,
}

impl Landing {
    async fn begin(session: &InSession, wish: Wish<'_>) -> ApiResult<(File, Self)> {
        let (directory, name) = split(wish.path)?;
        let file = |call| session.sessions.file_by(wish.writer, &session.id, call);
        if wish.parents {
            let call = FileCall::Mkdir {
                path: directory.to_owned(),
                parents: true,
            };
            within(PATIENCE, file(call)).await?;
        }
        let mode = match wish.mode {
            Some(mode) => mode,
            None => mode_in_place(session, wish.path).await,
        };
        let temporary = temporary_name(directory, name)?;
        let call = FileCall::Open {
            path: temporary.clone(),
            how: OpenFor::CreateNew { mode },
        };
        let file = match within(PATIENCE, file(call)).await? {
            FileAnswer::Opened { file, .. } => file,
            other => return Err(unexpected("open", &other)),
        };
        let cleanup = Cleanup {
            sessions: session.sessions.clone(),
            id: session.id.clone(),
            temporary: Some(temporary.clone()),
        };
        Ok((file, Self { temporary, cleanup }))
    }

    /// All of it is there: it takes its place.
    async fn end(mut self, session: &InSession, path: &str) -> ApiResult<()> {
        let call = FileCall::Move {
            from: self.temporary,
            to: path.to_owned(),
            overwrite: true,
        };
        session.file(call).await?;
        self.cleanup.temporary = None;
        Ok(())
    }

    /// It came to nothing, and takes no more room by the time the caller hears of it.
    async fn give_up(mut self, session: &InSession) {
        let call = FileCall::Remove {
            path: self.temporary,
            recursive: false,
        };
        if session.file(call).await.is_ok() {
            self.cleanup.temporary = None;
        }
    }
}

/// Removes what a broken upload left, also when the caller has gone and nobody waits for us.
struct Cleanup {
    sessions: Sessions,
    id: SessionId,
    temporary: Option<String>,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let (Some(path), Ok(runtime)) =
            (self.temporary.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let (sessions, id) = (self.sessions.clone(), self.id.clone());
        runtime.spawn(async move {
            let call = FileCall::Remove {
                path,
                recursive: false,
            };
            if let Err(error) = sessions.file(&id, call).await {
                tracing::debug!(%error, session = %id, "the rest of a broken upload could not be removed");
            }
        });
    }
}

async fn receive(session: &InSession, body: Body, file: File, idle: Duration) -> ApiResult<()> {
    let mut unjudged = 0;
    let mut file = tokio::fs::File::from_std(file);
    let mut stream = body.into_data_stream();
    loop {
        let piece = tokio::time::timeout(idle, stream.next())
            .await
            .map_err(|_| {
                let words = format!("nothing of the upload came for {} s", idle.as_secs());
                ApiError::new(ErrorCode::Timeout, words).status(StatusCode::REQUEST_TIMEOUT)
            })?;
        let Some(piece) = piece else { break };
        let piece = piece.map_err(|_| ApiError::validation("the upload ended early"))?;
        file.write_all(&piece)
            .await
            .map_err(|error| write_failed(&error))?;
        unjudged += piece.len();
        if unjudged >= JUDGED_EVERY {
            unjudged = 0;
            file.flush().await.map_err(|error| write_failed(&error))?;
            let room = within(PATIENCE, session.sessions.check_room(&session.id)).await;
            if let Err(refusal) = room {
                // An answer while the caller still writes would be lost with the connection.
                json::discard(Body::from_stream(stream)).await;
                return Err(refusal);
            }
        }
    }
    file.flush().await.map_err(|error| write_failed(&error))
}

fn write_failed(error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ApiError::new(ErrorCode::Capacity, "there is no room left for the file")
                .hint("remove files from the session, or use a larger quota")
        }
        io::ErrorKind::FileTooLarge => {
            ApiError::new(ErrorCode::PayloadTooLarge, "the file is too large")
        }
        _ => ApiError::internal("the file could not be written", error),
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

/// A replaced file keeps its permissions, as it would if it were written over.
async fn mode_in_place(session: &InSession, path: &str) -> u32 {
    match entry(session, path.to_owned(), true).await {
        Ok(entry) if entry.kind == boxwood_api::FileKind::File => entry.mode & 0o777,
        _ => 0o644,
    }
}

/// Beside the file, so that the rename stays within one file system.
fn temporary_name(directory: &str, name: &str) -> ApiResult<String> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| {
        ApiError::internal(
            "no random numbers are to be had",
            &io::Error::other(error.to_string()),
        )
    })?;
    // A name may be up to 255 bytes; what is cut off still tells a person whose rest it is.
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
    fn the_temporary_file_is_beside_the_real_one() {
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
