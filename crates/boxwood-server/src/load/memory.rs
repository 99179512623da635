//! Charges request bodies and large responses to the memory budget.
//!
//! A request is charged until it is answered and its bytes are dropped, a large response until it has
//! been sent, because its reader may be slow.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use boxwood_session::{Budget, Held, SessionError};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// Smaller responses are not charged: there is at most one per connection.
const MIN_CHARGED_BYTES: u64 = 64 * 1024;

const CHUNK_BYTES: usize = 64 * 1024;

/// The memory charged to a request. Part of the extensions of every request.
#[derive(Clone)]
pub(crate) struct RequestMemory(Arc<Mutex<Held>>);

impl RequestMemory {
    pub(crate) fn new(budget: &Budget) -> Self {
        Self(Arc::new(Mutex::new(budget.hold())))
    }

    /// The charge of the request, or a new one if it has none.
    pub(crate) fn of(request: &Request, budget: &Budget) -> Self {
        let existing = request.extensions().get::<Self>();
        existing.cloned().unwrap_or_else(|| Self::new(budget))
    }

    pub(crate) fn take(&self, bytes: usize) -> Result<(), SessionError> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.take(bytes)
    }

    /// Releases the whole charge.
    pub(crate) fn give_back(&self) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.give_back();
    }
}

/// Charges a large response until it has been sent.
pub(crate) fn charge_response(response: Response, budget: &Budget) -> Response {
    // Streamed responses have no exact size and are never in memory as a whole.
    let Some(bytes) = response.body().size_hint().exact() else {
        return response;
    };
    if bytes < MIN_CHARGED_BYTES {
        return response;
    }
    let mut held = budget.hold();
    held.count(usize::try_from(bytes).unwrap_or(usize::MAX));
    response.map(|body| {
        Body::new(ChargedBody {
            body,
            unsent: Bytes::new(),
            _held: held,
        })
    })
}

/// Yields its bytes in chunks: hyper would drop a body that yields everything at once long before it
/// has been sent.
struct ChargedBody {
    body: Body,
    unsent: Bytes,
    _held: Held,
}

impl HttpBody for ChargedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.unsent.is_empty() {
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.unsent = bytes,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        let length = self.unsent.len().min(CHUNK_BYTES);
        let chunk = self.unsent.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.unsent.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(rest + self.unsent.len() as u64),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_large_response_is_charged_until_its_last_chunk_is_taken() {
        let budget = Budget::new(10 * 1024 * 1024);
        let text = vec![b'x'; 1024 * 1024 + 1];
        let response = charge_response(Response::new(Body::from(text.clone())), &budget);
        assert_eq!(response.body().size_hint().exact(), Some(text.len() as u64));
        assert_eq!(budget.used(), text.len());
        let mut body = response.into_body();
        let mut received = 0;
        while let Some(frame) = next(&mut body).await {
            assert_eq!(budget.used(), text.len());
            received += frame.len();
        }
        assert_eq!(received, text.len());
        assert!(body.is_end_stream());
        drop(body);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_small_response_is_not_charged() {
        let budget = Budget::new(1024);
        let response = charge_response(Response::new(Body::from("small")), &budget);
        assert_eq!(budget.used(), 0);
        drop(response);
    }

    async fn next(body: &mut Body) -> Option<Bytes> {
        let frame =
            std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        frame.expect("no error").into_data().ok()
    }
}
