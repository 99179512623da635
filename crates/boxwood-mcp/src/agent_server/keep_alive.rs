//! Keeps slow stateless responses alive.
//!
//! The SDK sends nothing before it knows the status, and clients time out. After a while the response is started as
//! an event stream with periodic comments.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, StreamBody};
use tokio::time::timeout;

/// The event stream starts after this time. Client errors, which need their own status, are detected long before.
const STREAM_AFTER: Duration = Duration::from_secs(10);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const EVENT_STREAM: &str = "text/event-stream";

/// A response of the SDK.
type ServiceResponse = Response<BoxBody<Bytes, Infallible>>;
type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The response itself if it is ready soon. Dropping the result cancels it.
pub(crate) async fn answer(mut answering: BoxFuture<'static, ServiceResponse>) -> Answer {
    match timeout(STREAM_AFTER, &mut answering).await {
        Ok(answer) => answer.map(BodyExt::boxed_unsync),
        Err(_) => as_event_stream(answering),
    }
}

enum StreamState {
    Waiting(BoxFuture<'static, ServiceResponse>),
    /// The response is already an event stream.
    Forwarding(BoxBody<Bytes, Infallible>),
    Ended,
}

fn as_event_stream(answering: BoxFuture<'static, ServiceResponse>) -> Answer {
    let frames = stream::unfold(StreamState::Waiting(answering), |state| async move {
        let (bytes, state) = next(state).await?;
        Some((Ok(Frame::data(bytes)), state))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

async fn next(mut state: StreamState) -> Option<(Bytes, StreamState)> {
    loop {
        state = match state {
            StreamState::Waiting(mut answering) => {
                let Ok(answer) = timeout(KEEP_ALIVE_INTERVAL, &mut answering).await else {
                    return Some((
                        Bytes::from_static(b":\n\n"),
                        StreamState::Waiting(answering),
                    ));
                };
                if is_events(&answer) {
                    StreamState::Forwarding(answer.into_body())
                } else {
                    return Some((event(answer).await, StreamState::Ended));
                }
            }
            StreamState::Forwarding(mut body) => match body.frame().await? {
                Ok(frame) => match frame.into_data() {
                    Ok(bytes) => return Some((bytes, StreamState::Forwarding(body))),
                    Err(_) => StreamState::Forwarding(body),
                },
                Err(never) => match never {},
            },
            StreamState::Ended => return None,
        };
    }
}

fn is_events(answer: &ServiceResponse) -> bool {
    let kind = answer.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(EVENT_STREAM.as_bytes()))
}

/// A one-line JSON body as one event.
async fn event(answer: ServiceResponse) -> Bytes {
    let json = match answer.into_body().collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(never) => match never {},
    };
    [&b"data: "[..], &json, b"\n\n"].concat().into()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use http_body_util::Full;

    use super::*;

    fn after(
        seconds: u64,
        status: StatusCode,
        kind: &'static str,
    ) -> BoxFuture<'static, ServiceResponse> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let text = if kind == EVENT_STREAM {
                "data: {}\n\n"
            } else {
                "{}"
            };
            let mut answer = Response::new(Full::from(text).boxed());
            *answer.status_mut() = status;
            let headers = answer.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            answer
        })
    }

    async fn text(answer: Answer) -> String {
        let bytes = answer.into_body().collect().await.expect("body").to_bytes();
        String::from_utf8(bytes.to_vec()).expect("UTF-8")
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_response_keeps_its_status() {
        let quick = answer(after(1, StatusCode::BAD_REQUEST, "application/json")).await;
        assert_eq!(quick.status(), StatusCode::BAD_REQUEST);
        assert_eq!(text(quick).await, "{}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_response_sends_keep_alive_comments() {
        for kind in ["application/json", EVENT_STREAM] {
            let slow = answer(after(50, StatusCode::OK, kind)).await;
            assert_eq!(slow.headers()[header::CONTENT_TYPE], EVENT_STREAM);
            assert_eq!(text(slow).await, ":\n\n:\n\ndata: {}\n\n", "{kind}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_disconnect_cancels_the_response() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel::<()>(1);
        let endless: BoxFuture<'static, ServiceResponse> = Box::pin(async move {
            let _sender = sender;
            std::future::pending().await
        });
        let response = answer(endless).await;
        drop(response);
        assert_eq!(receiver.recv().await, None);
    }
}
