//! What a request and its answer weigh in memory.
//!
//! Comes in: bytes as they are read. Goes out: that they may be kept, or a refusal. A request weighs
//! until it is answered and its bytes are let go, and a large answer until it is sent: its reader may be slow.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use boxwood_session::{Budget, Held, SessionError};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// Answers below this are sent in one go; there are as many as connections, at most.
const LARGE: u64 = 64 * 1024;

/// What is handed to the socket at a time.
const PIECE: usize = 64 * 1024;

/// In the extensions of every request.
#[derive(Clone)]
pub(crate) struct Weight(Arc<Mutex<Held>>);

impl Weight {
    pub(crate) fn new(budget: &Budget) -> Self {
        Self(Arc::new(Mutex::new(budget.hold())))
    }

    /// That of a request; one of its own where nobody gave it one.
    pub(crate) fn of(request: &Request, budget: &Budget) -> Self {
        let given = request.extensions().get::<Self>();
        given.cloned().unwrap_or_else(|| Self::new(budget))
    }

    pub(crate) fn take(&self, bytes: usize) -> Result<(), SessionError> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.take(bytes)
    }

    /// What was read is not kept after all.
    pub(crate) fn give_back(&self) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.give_back();
    }
}

/// The same answer, weighing until it is sent.
pub(crate) fn weigh(response: Response, budget: &Budget) -> Response {
    // Answers that are streamed do not say how long they are, and are never in memory as a whole.
    let Some(bytes) = response.body().size_hint().exact() else {
        return response;
    };
    if bytes < LARGE {
        return response;
    }
    let mut held = budget.hold();
    held.count(usize::try_from(bytes).unwrap_or(usize::MAX));
    response.map(|body| {
        Body::new(Weighed {
            body,
            unsent: Bytes::new(),
            _held: held,
        })
    })
}

/// Hands its bytes out in pieces: a body that gives everything at once is forgotten at once, long
/// before it is sent.
struct Weighed {
    body: Body,
    unsent: Bytes,
    _held: Held,
}

impl HttpBody for Weighed {
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
        let length = self.unsent.len().min(PIECE);
        let piece = self.unsent.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
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
    async fn a_large_answer_weighs_until_its_last_piece_is_taken() {
        let budget = Budget::new(10 * 1024 * 1024);
        let text = vec![b'x'; 1024 * 1024 + 1];
        let response = weigh(Response::new(Body::from(text.clone())), &budget);
        assert_eq!(response.body().size_hint().exact(), Some(text.len() as u64));
        assert_eq!(budget.used(), text.len());
        let mut body = response.into_body();
        let mut got = 0;
        while let Some(frame) = next(&mut body).await {
            assert_eq!(budget.used(), text.len());
            got += frame.len();
        }
        assert_eq!(got, text.len());
        assert!(body.is_end_stream());
        drop(body);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_small_answer_is_left_alone() {
        let budget = Budget::new(1024);
        let response = weigh(Response::new(Body::from("small")), &budget);
        assert_eq!(budget.used(), 0);
        drop(response);
    }

    async fn next(body: &mut Body) -> Option<Bytes> {
        let frame =
            std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        frame.expect("no error").into_data().ok()
    }
}
