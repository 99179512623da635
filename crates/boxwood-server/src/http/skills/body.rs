//! Receives archives and files for the skill store.
//!
//! The store needs them as a whole, so they are kept in memory. Their size and number are limited.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use boxwood_api::ErrorCode;
use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::http::body;
use crate::http::error::{ApiError, ApiResult};

/// Uploads in memory at a time.
const MAX_UPLOADS: usize = 8;

const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Limits concurrent uploads, and serialises those that check the store before they write.
pub(crate) struct UploadGate {
    uploads: Semaphore,
    write_lock: Mutex<()>,
}

impl Default for UploadGate {
    fn default() -> Self {
        Self {
            uploads: Semaphore::new(MAX_UPLOADS),
            write_lock: Mutex::new(()),
        }
    }
}

impl UploadGate {
    /// A permit for one upload; held until the upload is stored.
    pub(crate) async fn permit(&self) -> ApiResult<SemaphorePermit<'_>> {
        match tokio::time::timeout(PERMIT_TIMEOUT, self.uploads.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(ApiError::new(
                ErrorCode::Capacity,
                "too many concurrent uploads to the skill store",
            )
            .hint("try again in a moment")),
        }
    }

    /// Serialises read-modify-write operations. Blocks.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        // The mutex guards no data, so poisoning does not matter.
        self.write_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a body of at most `limit` bytes. `idle` is the timeout for each chunk.
pub(crate) async fn receive(request: Request, limit: u64, idle: Duration) -> ApiResult<Bytes> {
    let request = body::read(request, limit, idle, None).await;
    let request = request.map_err(|error| match error.code() {
        ErrorCode::PayloadTooLarge => error.hint("the limits are configured in `[skills.limits]`"),
        _ => error,
    })?;
    Ok(request.into_body())
}
