//! Reads request bodies within limits of size and time.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use boxwood_api::ErrorCode;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;

use super::App;
use super::error::{ApiError, ApiResult};
use crate::load::RequestMemory;

/// The request with its whole body, which is charged to the returned memory. The charge must live as long
/// as the body or what was parsed from it.
pub(super) async fn read_whole(
    app: &App,
    request: Request,
) -> ApiResult<(axum::http::Request<Bytes>, RequestMemory)> {
    let memory = RequestMemory::of(&request, app.sessions.budget());
    let (limit, timeout) = (app.http.max_body_bytes, app.body_timeout());
    let reading = read(request, limit as u64, timeout, Some(&memory));
    match tokio::time::timeout(timeout, reading).await {
        Ok(request) => Ok((request?, memory)),
        Err(_) => Err(timed_out(format!(
            "the body did not arrive within {} s",
            timeout.as_secs()
        ))),
    }
}

fn timed_out(message: String) -> ApiError {
    ApiError::new(ErrorCode::Timeout, message).status(StatusCode::REQUEST_TIMEOUT)
}

/// Reads a body of at most `limit` bytes. `idle` is the timeout for each chunk.
pub(super) async fn read(
    request: Request,
    limit: u64,
    idle: Duration,
    memory: Option<&RequestMemory>,
) -> ApiResult<axum::http::Request<Bytes>> {
    let too_large = || {
        let message = format!("the body is larger than {limit} bytes");
        ApiError::new(ErrorCode::PayloadTooLarge, message)
    };
    if request.body().size_hint().lower() > limit {
        discard_request(request).await;
        return Err(too_large());
    }
    let (parts, body) = request.into_parts();
    let mut stream = body.into_data_stream();
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(chunk) = next_chunk(&mut stream, idle).await? {
        let charged = memory.map_or(Ok(()), |memory| memory.take(chunk.len()));
        let refusal = if (first.len() + rest.len() + chunk.len()) as u64 > limit {
            Some(too_large())
        } else {
            charged.err().map(ApiError::from)
        };
        if let Some(refusal) = refusal {
            if let Some(memory) = memory {
                memory.give_back();
            }
            discard(Body::from_stream(stream)).await;
            return Err(refusal);
        }
        // Most bodies are a single chunk, which is not copied.
        if first.is_empty() {
            first = chunk;
        } else {
            rest.extend_from_slice(&chunk);
        }
    }
    if !rest.is_empty() {
        first = [&first[..], &rest[..]].concat().into();
    }
    Ok(axum::http::Request::from_parts(parts, first))
}

/// The next chunk of a body. `idle` is the timeout for it.
pub(super) async fn next_chunk(
    stream: &mut BodyDataStream,
    idle: Duration,
) -> ApiResult<Option<Bytes>> {
    let Ok(chunk) = tokio::time::timeout(idle, stream.next()).await else {
        let message = format!("no data of the body received for {} s", idle.as_secs());
        return Err(timed_out(message));
    };
    chunk
        .transpose()
        .map_err(|_| ApiError::validation("the body ended before its announced length"))
}

/// Reads and drops the body of a request that is refused, so that the client can read the response.
pub(super) async fn discard_request(request: Request) {
    // A client that waits for `100 Continue` has sent nothing yet.
    if !request.headers().contains_key(header::EXPECT) {
        discard(request.into_body()).await;
    }
}

/// Reads and drops the rest of the body before a refusal. Otherwise the connection would be reset while
/// the client still writes, and the response would be lost.
pub(super) async fn discard(body: Body) {
    discard_up_to(body, 64 * 1024 * 1024, Duration::from_secs(5)).await;
}

/// Like [`discard_request`] with tighter limits, for unauthenticated requests.
pub(super) async fn discard_briefly(request: Request) {
    if !request.headers().contains_key(header::EXPECT) {
        discard_up_to(request.into_body(), 1024 * 1024, Duration::from_secs(1)).await;
    }
}

async fn discard_up_to(body: Body, max_bytes: usize, timeout: Duration) {
    let mut stream = body.into_data_stream();
    let reading = async {
        let mut seen = 0;
        while let Some(Ok(chunk)) = stream.next().await {
            seen += chunk.len();
            if seen > max_bytes {
                break;
            }
        }
    };
    // The response is sent in either case.
    let _ = tokio::time::timeout(timeout, reading).await;
}
