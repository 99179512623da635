//! Streams an image archive to a backend.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::extract::Request;
use boxwood_api::{ErrorCode, ImageInfo, ImageName};
use boxwood_backend::Backend;
use tokio::io::{AsyncWriteExt as _, DuplexStream};

use crate::http::body;
use crate::http::error::{ApiError, ApiResult};

/// Maximum size of the archive. The backend limits the unpacked size.
const MAX_ARCHIVE_BYTES: u64 = 20 << 30;
/// Size of the buffer between connection and backend.
const BUFFER_BYTES: usize = 256 * 1024;

/// Streams a body to a backend. `idle` is the timeout for each chunk.
pub(crate) async fn import(
    backend: &dyn Backend,
    name: &ImageName,
    request: Request,
    idle: Duration,
) -> ApiResult<ImageInfo> {
    if request.body().size_hint().lower() > MAX_ARCHIVE_BYTES {
        body::discard_request(request).await;
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
                // Drop the import, so that a truncated upload is not taken for a complete one.
                pumped?;
                importing.await
            }
        }
    };
    match outcome {
        Ok(info) => Ok(info),
        Err(error) => {
            body::discard(Body::from_stream(body)).await;
            Err(error.into())
        }
    }
}

async fn pump(
    body: &mut BodyDataStream,
    mut archive: DuplexStream,
    idle: Duration,
) -> ApiResult<()> {
    let mut sent = 0;
    while let Some(chunk) = body::next_chunk(body, idle).await? {
        sent += chunk.len() as u64;
        if sent > MAX_ARCHIVE_BYTES {
            return Err(too_large());
        }
        if archive.write_all(&chunk).await.is_err() {
            // The backend has stopped reading and reports why.
            return Ok(());
        }
    }
    // An error means the same.
    let _ = archive.shutdown().await;
    Ok(())
}

fn too_large() -> ApiError {
    ApiError::new(
        ErrorCode::PayloadTooLarge,
        format!("the archive is larger than {MAX_ARCHIVE_BYTES} bytes"),
    )
}
