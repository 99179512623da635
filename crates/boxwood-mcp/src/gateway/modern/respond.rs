//! The HTTP response to one modern request.
//!
//! JSON if there is only a response; an SSE stream if other messages come first or the call takes long.
//! Dropping the response cancels the call.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::StatusCode;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::agent_server::Answer;
use crate::gateway::error::{INTERNAL_ERROR, RpcError, status_of};
use crate::gateway::event_stream::budget::ClientBudget;
use crate::gateway::event_stream::{EventKind, EventStream, FirstOutput, Mode};
use crate::gateway::http::{response, sse};
use crate::gateway::modern::listen::ACKNOWLEDGED;
use crate::wire::Message;

/// Client errors, which have their own HTTP status, are found long before.
const STREAM_AFTER: Duration = Duration::from_secs(10);

type Running = BoxFuture<'static, Result<Message, RpcError>>;

/// `notifications` are sent before the response.
pub(crate) async fn reply(
    id: Box<RawValue>,
    running: Running,
    notifications: mpsc::Receiver<Message>,
    keep_alive: Duration,
    client_budget: ClientBudget,
) -> Answer {
    let event_stream = EventStream::new(client_budget, Mode::ReadOnce);
    let status = Arc::<OnceLock<StatusCode>>::default();
    let pumping = pump(
        id,
        running,
        notifications,
        event_stream.clone(),
        Arc::clone(&status),
    );
    // Runs even if the client does not read, so that buffered bytes are counted.
    let pumping = AbortOnDropHandle::new(tokio::spawn(pumping));
    let first_output = timeout(STREAM_AFTER, event_stream.first_output()).await;
    let is_silent = first_output.is_err();
    match first_output {
        Ok(FirstOutput::Response(answer)) => {
            let status = status.get().copied().unwrap_or_default();
            response::json(status, answer.into_bytes())
        }
        Ok(FirstOutput::Stream) | Err(_) => {
            let opening = if is_silent { sse::ALIVE } else { b"" };
            let reader = event_stream.reader(Some(0));
            let opening = Bytes::from_static(opening);
            sse::respond(reader, None, opening, keep_alive, pumping)
        }
    }
}

/// Writes all messages of a call to the event stream.
async fn pump(
    id: Box<RawValue>,
    running: Running,
    mut notifications: mpsc::Receiver<Message>,
    event_stream: EventStream,
    status: Arc<OnceLock<StatusCode>>,
) {
    let mut running = AssertUnwindSafe(running).catch_unwind();
    let outcome = loop {
        // Unbiased: a server with many messages must not block the response.
        tokio::select! {
            Some(message) = notifications.recv() => push(&event_stream, &message),
            outcome = &mut running => break outcome,
        }
    };
    while let Ok(message) = notifications.try_recv() {
        push(&event_stream, &message);
    }
    let outcome = outcome.unwrap_or_else(|_| {
        tracing::error!("MCP request handler panicked");
        let text = "internal error; try again";
        Err(RpcError::new(INTERNAL_ERROR, text))
    });
    let (code, answer) = finished(&id, outcome);
    // Set only here.
    let _ = status.set(code);
    event_stream.answer(&answer);
    event_stream.close();
}

/// Acknowledgements are never dropped.
fn push(event_stream: &EventStream, notification: &Message) {
    let kind = match notification.method() {
        Some(ACKNOWLEDGED) => EventKind::Request,
        _ => EventKind::Notification,
    };
    event_stream.push(kind, notification.json());
}

fn finished(id: &RawValue, outcome: Result<Message, RpcError>) -> (StatusCode, Message) {
    match outcome {
        Ok(message) => {
            let code = message.error_parts().map(|(code, _)| code);
            let status = code.map_or(StatusCode::OK, status_of);
            (status, message.with_id(id.to_owned()))
        }
        Err(error) => (error.status, error.message(Some(id))),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;
    use crate::gateway::event_stream::budget::MemoryBudget;
    use crate::gateway::json::raw;

    #[tokio::test]
    async fn unread_notifications_are_counted_and_dropped_beyond_a_limit() {
        let budget = MemoryBudget::new(64 << 20);
        let client_budget = budget.of(None);
        let (sender, receiver) = mpsc::channel(1);
        let running: Running = Box::pin(async move {
            let first = Message::notification(ACKNOWLEDGED, None);
            sender.send(first).await.expect("the receiver is open");
            let params = raw(&json!({ "text": "x".repeat(1 << 19) }));
            for _ in 0..100 {
                let notification =
                    Message::notification("notifications/message", Some(params.clone()));
                sender
                    .send(notification)
                    .await
                    .expect("the receiver is open");
            }
            Ok(Message::result(raw(&1), raw("done")))
        });
        let keep_alive = Duration::from_secs(15);
        let answer = reply(raw(&7), running, receiver, keep_alive, client_budget).await;
        let full = async {
            while budget.unread() < 3 << 20 {
                tokio::task::yield_now().await;
            }
        };
        timeout(STREAM_AFTER, full).await.expect("it is counted");
        let body = answer.into_body().collect().await.expect("a body");
        let text = String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8");
        assert!(text.len() < 6 << 20, "{} bytes waited", text.len());
        assert!(text.contains(ACKNOWLEDGED) && text.contains(r#""id":7,"result":"done""#));
        assert_eq!(budget.unread(), 0);
    }

    #[tokio::test]
    async fn a_panic_in_a_call_becomes_an_error_response() {
        let (_sender, receiver) = mpsc::channel(1);
        let running: Running = Box::pin(async { panic!("as a mistake of ours would") });
        let client_budget = MemoryBudget::new(1 << 20).of(None);
        let answer = reply(raw(&7), running, receiver, STREAM_AFTER, client_budget).await;
        let body = answer.into_body().collect().await.expect("a body");
        let text = String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8");
        assert!(text.contains(r#""id":7,"error""#), "{text}");
    }
}
