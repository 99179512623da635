//! Archives and files on their way into the skill store.
//!
//! Comes in: a body. Goes out: its bytes, when they are not too many. Never here: what they mean. The
//! store wants them whole, so they are kept in memory, and both their size and how many bodies there
//! are at a time have a bound.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use boxwood_api::ErrorCode;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::error::{ApiError, ApiResult};
use super::json;

/// Bodies that are in memory at a time.
const PLACES: usize = 8;

/// For one of them to become free.
const WAIT: Duration = Duration::from_secs(10);

/// Who may come into the store with bytes, and in which order.
pub(crate) struct Door {
    places: Semaphore,
    turn: Mutex<()>,
}

impl Default for Door {
    fn default() -> Self {
        Self {
            places: Semaphore::new(PLACES),
            turn: Mutex::new(()),
        }
    }
}

impl Door {
    /// A place for one body in memory; held until the store has it.
    pub(crate) async fn place(&self) -> ApiResult<SemaphorePermit<'_>> {
        match tokio::time::timeout(WAIT, self.places.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(ApiError::new(
                ErrorCode::Capacity,
                "too many uploads into the skill store at a time",
            )
            .hint("try again in a moment")),
        }
    }

    /// One writer at a time, for a write that looks first. Call it where blocking is allowed.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        // Whoever panicked here left the store itself as it was.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a body of at most `limit` bytes. `idle` is for the next piece, not for all of them.
pub(super) async fn receive(request: Request, limit: u64, idle: Duration) -> ApiResult<Bytes> {
    let too_large = || {
        ApiError::new(
            ErrorCode::PayloadTooLarge,
            format!("the body is larger than {limit} bytes"),
        )
        .hint("the operator's bounds are in `[skills.limits]`")
    };
    let waits = request.headers().contains_key(header::EXPECT);
    let body = request.into_body();
    if body.size_hint().lower() > limit {
        // A caller that waits for our leave has sent nothing yet.
        if !waits {
            json::discard(body).await;
        }
        return Err(too_large());
    }
    let mut stream = body.into_data_stream();
    let mut bytes = BytesMut::new();
    loop {
        let piece = tokio::time::timeout(idle, stream.next())
            .await
            .map_err(|_| {
                let words = format!("nothing of the upload came for {} s", idle.as_secs());
                ApiError::new(ErrorCode::Timeout, words).status(StatusCode::REQUEST_TIMEOUT)
            })?;
        let Some(piece) = piece else { break };
        let piece = piece.map_err(|_| ApiError::validation("the upload ended early"))?;
        if (bytes.len() + piece.len()) as u64 > limit {
            json::discard(axum::body::Body::from_stream(stream)).await;
            return Err(too_large());
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}
