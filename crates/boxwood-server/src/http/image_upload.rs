//! An archive on its way to a backend, never whole in memory.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use boxwood_api::{ErrorCode, ImageInfo, ImageName};
use boxwood_backend::Backend;
use futures_util::StreamExt as _;
use tokio::io::{AsyncWriteExt as _, DuplexStream};

use super::error::{ApiError, ApiResult};
use super::images::refusal;
use super::json;

/// The most an archive may have as it is sent. What it unpacks to has a bound of the backend's.
const MAX_ARCHIVE_BYTES: u64 = 20 << 30;
/// Between the connection and the backend.
const BUFFER_BYTES: usize = 256 * 1024;

/// Gives a body to a backend. `idle` is for the next piece, not for all of them.
pub(super) async fn import(
    backend: &dyn Backend,
    name: &ImageName,
    request: Request,
    idle: Duration,
) -> ApiResult<ImageInfo> {
    if request.body().size_hint().lower() > MAX_ARCHIVE_BYTES {
        pass_over(request).await;
        return Err(too_large());
    }
    let body = request.into_body();
    let (archive, writer) = tokio::io::duplex(BUFFER_BYTES);
    let mut body = body.into_data_stream();
    let outcome = {
        let importing = backend.images().import(name, Box::new(archive));
        let pumping = pump(&mut body, writer, idle);
        tokio::pin!(importing, pumping);
        tokio::select! {
            outcome = &mut importing => outcome,
            pumped = &mut pumping => {
                // An upload that broke off must not look like one that ended: the import is dropped
                // where it stands.
                pumped?;
                importing.await
            }
        }
    };
    match outcome {
        Ok(info) => Ok(info),
        Err(error) => {
            json::discard(Body::from_stream(body)).await;
            Err(refusal(&error))
        }
    }
}

/// For an archive that nobody wants: who sends it shall hear why.
pub(super) async fn pass_over(request: Request) {
    // A caller that waits for our leave has sent nothing yet.
    if !request.headers().contains_key(header::EXPECT) {
        json::discard(request.into_body()).await;
    }
}

async fn pump(
    body: &mut BodyDataStream,
    mut archive: DuplexStream,
    idle: Duration,
) -> ApiResult<()> {
    let mut sent = 0;
    loop {
        let piece = tokio::time::timeout(idle, body.next()).await.map_err(|_| {
            let words = format!("nothing of the upload came for {} s", idle.as_secs());
            ApiError::new(ErrorCode::Timeout, words).status(StatusCode::REQUEST_TIMEOUT)
        })?;
        let Some(piece) = piece else { break };
        let piece = piece.map_err(|_| ApiError::validation("the upload ended early"))?;
        sent += piece.len() as u64;
        if sent > MAX_ARCHIVE_BYTES {
            return Err(too_large());
        }
        if archive.write_all(&piece).await.is_err() {
            // The backend has heard enough, and says why by itself.
            return Ok(());
        }
    }
    // An error means the same here.
    let _ = archive.shutdown().await;
    Ok(())
}

fn too_large() -> ApiError {
    ApiError::new(
        ErrorCode::PayloadTooLarge,
        format!("the archive is larger than {MAX_ARCHIVE_BYTES} bytes"),
    )
}
