//! One call that is suspended while the client collects the input that the server requests.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::client::{Client, call_legacy};
use super::{CLIENT_TIMEOUT, InteractiveCalls, InteractiveRequest};
use crate::gateway::error::{METHOD_NOT_FOUND, RpcError};
use crate::gateway::event_stream::Event;
use crate::gateway::event_stream::budget::BufferedMessage;
use crate::gateway::json::{object, raw};
use crate::gateway::modern::request::ModernRequest;
use crate::gateway::notifications::log_level::LogLevel;
use crate::wire::{CallOptions, Kind, Message, Object};

/// Requests that a server sends within this time are passed to the client together.
const BATCH_WINDOW: Duration = Duration::from_millis(30);
/// Time for a new process to request the roots, right after the handshake, and to process a cancellation.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// Queue of progress notifications, which is not read while the call is suspended.
const PROGRESS_QUEUE: usize = 16;
/// Maximum number of log messages that are passed on after the response came.
const MAX_LATE_MESSAGES: usize = 256;

/// Dropping it cancels the call. The session becomes idle after a short time.
pub(super) struct InteractiveCall {
    answering: BoxFuture<'static, Result<Message, RpcError>>,
    calls: InteractiveCalls,
    /// `Some` until the call has ended.
    client: Option<Client>,
    progress: mpsc::Receiver<Message>,
    /// Progress token of the client's latest request.
    token: Option<Box<RawValue>>,
    level: Option<LogLevel>,
    input_requests: BTreeMap<String, InputRequest>,
    last_input: usize,
    /// Server requests are read until then, before the call is sent.
    settles_at: Option<Instant>,
    /// Set while server requests are open.
    suspends_at: Option<Instant>,
    /// The client has to respond until then.
    pub(super) until: Instant,
}

/// A request of the server that waits for the client.
struct InputRequest {
    /// The request id in the internal session.
    id: Box<RawValue>,
    request: Box<RawValue>,
    /// Counts against the client's budget.
    _buffered: BufferedMessage,
}

impl InteractiveCall {
    pub(super) async fn begin(
        calls: &InteractiveCalls,
        mut client: Client,
        request: &InteractiveRequest<'_>,
    ) -> Self {
        let client_request = request.client_request;
        client.prepare(client_request.level).await;
        let is_new = std::mem::take(&mut client.is_new);
        let (sender, progress) = mpsc::channel(PROGRESS_QUEUE);
        let options = CallOptions {
            // Includes the time that the client takes.
            timeout: Some(calls.longest_call),
            progress: Some(sender),
            caller: Some(client_request.id.clone()),
            ..CallOptions::default()
        };
        let (session, hosted) = (Arc::clone(&client.session), Arc::clone(request.hosted));
        let legacy = request.legacy();
        let answering = async move { call_legacy(&session, &hosted, legacy, options).await };
        let asks_for_roots = is_new && client_request.capabilities.get("roots").is_some();
        Self {
            answering: Box::pin(answering),
            calls: calls.clone(),
            client: Some(client),
            progress,
            token: client_request.progress_token(),
            level: client_request.level,
            input_requests: BTreeMap::new(),
            last_input: 0,
            settles_at: asks_for_roots.then(|| Instant::now() + SETTLE_TIME),
            suspends_at: None,
            until: Instant::now(),
        }
    }

    /// Returns the response, or `None` if the server sent requests.
    pub(super) async fn run(
        &mut self,
        notifications: &mpsc::Sender<Message>,
    ) -> Option<Result<Message, RpcError>> {
        // The client has not responded to all requests of the server.
        if !self.input_requests.is_empty() {
            return None;
        }
        loop {
            let is_settled = self.settles_at.is_none();
            let client = self.client.as_mut()?;
            // Unbiased: a server with many messages must not delay the rest.
            tokio::select! {
                () = until(self.suspends_at) => {
                    (self.suspends_at, self.settles_at) = (None, None);
                    return None;
                }
                () = until(self.settles_at) => self.settles_at = None,
                Some(event) = client.messages.next() => {
                    if let Some(message) = self.handle(event).await {
                        // A slow client loses notifications.
                        let _ = notifications.try_send(message);
                    }
                }
                Some(progress) = self.progress.recv() => {
                    if let Some(progress) = self.with_latest_token(progress) {
                        let _ = notifications.try_send(progress);
                    }
                }
                // The request is sent when the future is polled first.
                answer = &mut self.answering, if is_settled => {
                    self.forward_remaining(notifications).await;
                    return Some(answer);
                }
            }
        }
    }

    /// Passes on what came before the response.
    async fn forward_remaining(&mut self, notifications: &mpsc::Sender<Message>) {
        for _ in 0..MAX_LATE_MESSAGES {
            let Some(client) = self.client.as_mut() else {
                return;
            };
            let Some(Some(event)) = client.messages.next().now_or_never() else {
                break;
            };
            if let Some(message) = self.handle(event).await {
                let _ = notifications.try_send(message);
            }
        }
        while let Ok(progress) = self.progress.try_recv() {
            if let Some(progress) = self.with_latest_token(progress) {
                let _ = notifications.try_send(progress);
            }
        }
    }

    /// Returns a log message for the client. Stores a server request.
    async fn handle(&mut self, event: Event) -> Option<Message> {
        let message = Message::parse(&event.message.json).ok()?;
        if message.kind() == Kind::Notification {
            let is_log = message.method() == Some("notifications/message");
            let least = self.level?;
            return (is_log && LogLevel::of(&message) >= least).then_some(message);
        }
        let (id, method) = (message.id()?.to_owned(), message.method()?);
        if !matches!(
            method,
            "sampling/createMessage" | "elicitation/create" | "roots/list"
        ) {
            let text = "method not supported by clients";
            let refusal = Message::failure(Some(id), METHOD_NOT_FOUND, text, None);
            self.client.as_ref()?.session.respond(refusal).await;
            return None;
        }
        let mut request = Object::of([("method", raw(method))]);
        if let Some(params) = message.params() {
            request.set("params", params.to_owned());
        }
        self.last_input += 1;
        let input_request = InputRequest {
            id,
            request: request.raw(),
            _buffered: event.message,
        };
        let name = format!("input-{}", self.last_input);
        self.input_requests.insert(name, input_request);
        self.suspends_at
            .get_or_insert_with(|| Instant::now() + BATCH_WINDOW);
        self.until = Instant::now() + CLIENT_TIMEOUT;
        None
    }

    fn with_latest_token(&self, progress: Message) -> Option<Message> {
        let token = self.token.clone()?;
        let mut params = object(progress.params()?)?;
        params.set("progressToken", token);
        Some(progress.with_params(Some(params.raw())))
    }

    /// Passes the client's responses to the server. Requests without a response stay open.
    pub(super) async fn respond(&mut self, client_request: &ModernRequest, answers: &Object) {
        self.token = client_request.progress_token();
        for (name, answer) in answers.iter() {
            let input_request = self.input_requests.remove(name);
            if let (Some(input_request), Some(client)) = (input_request, &self.client) {
                // Only a response extends the deadline.
                self.until = Instant::now() + CLIENT_TIMEOUT;
                let answer = Message::result(input_request.id, answer.to_owned());
                client.session.respond(answer).await;
            }
        }
    }

    pub(super) fn input_required(&self, state: &str) -> Message {
        let mut requests = Object::default();
        for (name, input_request) in &self.input_requests {
            requests.set(name, input_request.request.clone());
        }
        let result = Object::of([
            ("resultType", raw("input_required")),
            ("inputRequests", requests.raw()),
            ("requestState", raw(state)),
        ]);
        Message::result(Box::default(), result.raw())
    }

    /// The process is not used again.
    pub(super) fn discard(mut self) {
        drop(self.client.take());
    }

    /// Refuses open requests; the session becomes idle.
    pub(super) async fn end(mut self) {
        if let Some(client) = self.client.take() {
            client.session.refuse_requests("the call has ended").await;
            self.calls.release(client);
        }
    }
}

/// Refuses open requests and gives the server time to process the cancellation.
impl Drop for InteractiveCall {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        self.answering = Box::pin(pending());
        let calls = self.calls.clone();
        runtime.spawn(async move {
            client.session.refuse_requests("the call has ended").await;
            sleep(SETTLE_TIME).await;
            calls.release(client);
        });
    }
}

/// Waits forever for `None`.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}
